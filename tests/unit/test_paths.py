"""The state directory: which one it is, which ones it can't be, and that nobody else looks into it."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker import paths
from broker.errors import HomeError
from broker.paths import Home, find_home

SUN_PATH = 104
"""Bytes of a socket's path on macOS, its closing NUL included; Linux has four more."""


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a path as short as they come."""
    root = Path(tempfile.mkdtemp(prefix="xa", dir="/tmp"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch, short: Path) -> Path:
    """A user's home with an agent's directory in it."""
    home = short / "u"
    (home / ".claude" / "projects").mkdir(parents=True)
    monkeypatch.setattr(paths, "_passwd_home", lambda: str(home))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME", "CROSS_AGENT_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return home


@pytest.fixture
def private_tmp(monkeypatch: pytest.MonkeyPatch, short: Path) -> Path:
    """Where sockets of homes with long paths go, for this test."""
    place = short / "t"
    monkeypatch.setattr(paths, "_private_tmp", lambda: str(place))
    return place


def refused(root: Path | str) -> HomeError:
    with pytest.raises(HomeError) as caught:
        Home(str(root)).prepare()
    assert caught.value.code == "bad_home"
    assert caught.value.next_step
    return caught.value


# which one


@pytest.mark.requirement("EN-01", "EN-04")
def test_it_is_what_the_variable_says_else_a_place_in_the_home_of_the_passwd_entry(
    monkeypatch: pytest.MonkeyPatch, user: Path
) -> None:
    assert find_home().root == str(user / ".cross-agent")
    for blank in ("", "  "):
        monkeypatch.setenv("CROSS_AGENT_HOME", blank)
        assert find_home().root == str(user / ".cross-agent")
    monkeypatch.setenv("CROSS_AGENT_HOME", "/x/../y")
    assert find_home().root == "/y"


@pytest.mark.requirement("EN-04")
def test_no_other_variable_plays_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    passwd = pwd.getpwuid(os.getuid()).pw_dir
    for environment in ({}, dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR", "USER"), "/nowhere")):
        monkeypatch.setattr(os, "environ", environment)
        assert find_home().root == os.path.join(passwd, ".cross-agent")


@pytest.mark.requirement("EN-01")
def test_everything_of_ours_is_below_it() -> None:
    home = Home("/h")
    for name in ("run", "logs", "database", "config", "broker_record", "broker_lock", "start_lock", "starts", "wake", "shims"):
        assert getattr(home, name).startswith("/h/")


# owner only


@pytest.mark.requirement("EN-01")
def test_what_is_made_is_the_owners_alone_whatever_the_umask(user: Path) -> None:
    old = os.umask(0)
    try:
        home = Home(str(user / "a" / "state"))
        home.prepare()
    finally:
        os.umask(old)
    for directory in (home.root, home.run, home.logs, home.wake, home.shims):
        assert mode(directory) == 0o700


@pytest.mark.requirement("EN-01")
def test_an_older_looser_installation_is_tightened(user: Path) -> None:
    home = Home(str(user / "state"))
    home.prepare()
    for path in (home.database, home.config, home.broker_record, f"{home.logs}/broker.log", f"{home.shims}/1@1.json"):
        Path(path).write_text("x")
        os.chmod(path, 0o666)
    for directory in (home.run, home.logs, home.root):
        os.chmod(directory, 0o755)
    home.prepare()
    for directory in (home.root, home.run, home.logs):
        assert mode(directory) == 0o700
    for path in (home.database, home.config, home.broker_record, f"{home.logs}/broker.log", f"{home.shims}/1@1.json"):
        assert mode(path) == 0o600


@pytest.mark.requirement("EN-02")
def test_tightening_steps_around_what_only_lies_there(user: Path) -> None:
    """A directory that merely contains a store is fine; links lead to what is not ours."""
    home = Home(str(user / "state"))
    store = user / "state" / ".claude"
    (store / "projects").mkdir(parents=True, mode=0o755)
    os.chmod(store, 0o755)
    (store / "settings.json").write_text("{}")
    os.chmod(store / "settings.json", 0o644)
    elsewhere = user / "elsewhere"
    elsewhere.write_text("x")
    os.chmod(elsewhere, 0o644)
    (user / "state" / "link").symlink_to(elsewhere)
    home.prepare()
    assert (mode(store), mode(store / "settings.json"), mode(elsewhere)) == (0o755, 0o644, 0o644)


@pytest.mark.requirement("EN-01", "EN-10")
def test_what_goes_while_somebody_tightens_is_not_missed(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes come and go: their wake-up pipes and drafts vanish between two looks."""
    home = Home(str(user / "state"))
    home.prepare()
    for directory in (home.root, home.run, home.wake):
        Path(directory, "going").write_text("x")
        os.chmod(Path(directory, "going"), 0o644)
    scan = os.scandir

    def scanning(path: str) -> Iterator[Any]:
        for entry in list(scan(path)):
            if entry.name == "going":
                os.unlink(entry.path)
            yield entry

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scanning)
        home.prepare()
    assert not Path(home.wake, "going").exists()


# which ones it can't be


@pytest.mark.requirement("EN-02")
def test_what_belongs_to_everything_is_refused(user: Path) -> None:
    for root in ("/", "//", str(user), f"{user}/", f"{user}/.claude/.."):
        assert "not a directory of its own" in str(refused(root))


@pytest.mark.requirement("EN-02")
@pytest.mark.parametrize("name", [".claude", ".codex", ".grok"])
@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_an_agents_directory_is_refused_and_so_is_everything_in_it(user: Path, name: str, below: str) -> None:
    assert "belongs to an agent" in str(refused(user / name / below))
    assert not (user / name / "x").exists()
    assert not (user / name / "run").exists()


@pytest.mark.requirement("EN-02")
@pytest.mark.parametrize("variable", ["CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME"])
def test_so_is_where_an_agents_directory_was_moved_to(user: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    moved = user / "moved"
    moved.mkdir()
    monkeypatch.setenv(variable, str(moved))
    for root in (moved, moved / "state"):
        assert "belongs to an agent" in str(refused(root))
    Home(str(user / "moved-not")).prepare()


@pytest.mark.requirement("EN-02")
def test_a_link_does_not_lead_around_it(user: Path) -> None:
    (user / "link").symlink_to(user / ".claude")
    (user / "home").symlink_to(user)
    for root in (user / "link", user / "link" / "state", user / "home" / ".claude" / "state"):
        assert "belongs to an agent" in str(refused(root))
    assert "not a directory of its own" in str(refused(user / "home"))


@pytest.mark.requirement("EN-02")
@pytest.mark.parametrize("name", [".claude-state", "claude", ".cross-agent", "a/.claude/b"])
def test_what_only_looks_like_one_is_fine(user: Path, name: str) -> None:
    Home(str(user / name)).prepare()


@pytest.mark.requirement("EN-02")
def test_a_link_to_a_directory_of_its_own_is_fine(user: Path) -> None:
    (user / "real").mkdir()
    (user / "state").symlink_to(user / "real")
    Home(str(user / "state")).prepare()
    assert mode(user / "real") == 0o700


@pytest.mark.requirement("EN-01")
def test_a_file_where_it_should_be_is_refused(user: Path) -> None:
    (user / "state").write_text("x")
    assert "is not a directory" in str(refused(user / "state"))
    (user / "whole").mkdir()
    (user / "whole" / "run").write_text("x")
    assert "is not a directory" in str(refused(user / "whole"))


@pytest.mark.requirement("EN-01")
def test_a_room_that_leads_elsewhere_is_refused(user: Path) -> None:
    (user / "state").mkdir()
    (user / "elsewhere").mkdir()
    (user / "state" / "run").symlink_to(user / "elsewhere")
    assert "is not a directory" in str(refused(user / "state"))


@pytest.mark.requirement("EN-03")
def test_a_file_system_that_keeps_no_permissions_is_refused(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (user / "state").mkdir()
    os.chmod(user / "state", 0o777)
    monkeypatch.setattr(os, "chmod", lambda path, mode: None)  # noqa: ARG005
    assert "keeps no permissions" in str(refused(user / "state"))


@pytest.mark.requirement("EN-03")
def test_a_file_system_that_refuses_permissions_is_refused(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", path, mode)

    (user / "state").mkdir()
    os.chmod(user / "state", 0o777)
    monkeypatch.setattr(os, "chmod", refuse)
    assert "cannot be made private: Operation not permitted" in str(refused(user / "state"))


# sockets


@pytest.mark.requirement("EN-04")
@given(st.integers(1, 150))
@settings(deadline=None)
def test_a_socket_has_a_path_that_the_system_takes(length: int) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as base, pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "_private_tmp", lambda: "/tmp/cross-agent-4294967295")
        root = os.path.join(base, "x" * length)
        os.mkdir(root)
        home = Home(root)
        for endpoint in (home.endpoint(2**32 - 1), home.events_endpoint(2**32 - 1)):
            assert endpoint.startswith("ipc:///")
            assert len(os.fsencode(endpoint.removeprefix("ipc://"))) < SUN_PATH + 4
        assert home.sockets() in (home.run, f"/tmp/cross-agent-4294967295/{os.stat(root).st_dev:x}-{os.stat(root).st_ino:x}")


@pytest.mark.requirement("EN-04")
def test_a_long_home_has_private_sockets_of_its_own(user: Path, private_tmp: Path) -> None:
    homes = [Home(str(user / letter / ("é" * 50))) for letter in "ab"]
    for home in homes:
        home.prepare()
        assert home.sockets().startswith(f"{private_tmp}/")
        assert mode(home.sockets()) == mode(private_tmp) == 0o700
        Path(home.sockets(), "b1.sock").touch()
    assert homes[0].sockets() != homes[1].sockets()
    homes[0].sweep_sockets()
    assert [os.listdir(home.sockets()) for home in homes] == [[], ["b1.sock"]]


@pytest.mark.requirement("EN-04")
def test_a_short_home_has_them_in_its_run_directory(user: Path, private_tmp: Path) -> None:
    home = Home(str(user / "state"))
    home.prepare()
    assert home.sockets() == home.run
    assert not private_tmp.exists()


@pytest.mark.requirement("EN-04")
def test_a_place_in_tmp_that_is_a_link_is_refused(user: Path, private_tmp: Path) -> None:
    (user / "trap").mkdir()
    private_tmp.symlink_to(user / "trap")
    assert "is not a directory" in str(refused(user / ("x" * 100)))
    assert os.listdir(user / "trap") == []


@pytest.mark.requirement("EN-04")
def test_a_place_in_tmp_that_is_a_file_is_refused(user: Path, private_tmp: Path) -> None:
    private_tmp.touch()
    assert "is not a directory" in str(refused(user / ("x" * 100)))


@pytest.mark.requirement("EN-04")
def test_a_place_in_tmp_that_is_somebody_elses_is_refused(user: Path, private_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_tmp.mkdir(mode=0o777)
    look = os.lstat

    def looking(path: str) -> os.stat_result:
        found = look(path)
        return os.stat_result((*found[:4], os.getuid() + 1, *found[5:])) if path == str(private_tmp) else found

    monkeypatch.setattr(os, "lstat", looking)
    error = refused(user / ("x" * 100))
    assert f"belongs to user {os.getuid() + 1}" in str(error)
    assert error.next_step == f"Remove {private_tmp}."


@pytest.mark.requirement("EN-04")
def test_a_place_in_tmp_that_is_ours_but_loose_is_tightened(user: Path, private_tmp: Path) -> None:
    private_tmp.mkdir()
    os.chmod(private_tmp, 0o755)
    Home(str(user / ("x" * 100))).prepare()
    assert mode(private_tmp) == 0o700
