"""The state directory: private, of its own, short enough for sockets, and the same for every client (EN-01 to EN-04)."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from broker.errors import HomeError
from broker.paths import Home
from tests.integration.exchanges import exchange, open_both
from tests.integration.world import ROOT, World


@pytest.mark.requirement("EN-01")
def test_a_loose_installation_is_tightened(home: Path) -> None:
    for directory in ("run", "logs"):
        (home / directory).mkdir(mode=0o755)
    for path in (home, home / "run", home / "logs"):
        path.chmod(0o755)
    for name in ("broker.sqlite", "config.toml"):
        (home / name).touch()
        (home / name).chmod(0o644)
    old_mask = os.umask(0)
    try:
        world = World(home)
        try:
            sender, target = open_both(world, ("claude", "codex"))
            exchange(world, sender, target, "M1")
            shutil.rmtree(home / "agents" / "bin")
            ours = [p for p in home.rglob("*") if "agents" not in p.relative_to(home).parts and p.name != "fail"]
            loose = [p for p in (home, *ours) if not p.is_symlink() and p.stat().st_mode & 0o077]
            assert [(str(p), oct(p.stat().st_mode)) for p in loose] == []
        finally:
            world.close()
    finally:
        os.umask(old_mask)


@pytest.mark.requirement("EN-02")
def test_homes_that_belong_to_something_else_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    store.mkdir()
    link = tmp_path / "link"
    link.symlink_to(store)
    user = Path(os.path.expanduser("~")).resolve()
    refused = ["/", str(user), str(user / ".claude"), str(user / ".codex" / "deep" / "er"), str(user / ".grok")]
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME"):
        monkeypatch.setenv(variable, str(store))
        refused += [str(store), str(store / "inside"), str(link), str(link / "inside")]
        for place in refused:
            with pytest.raises(HomeError):
                Home(place).prepare()
        monkeypatch.delenv(variable)
        refused = []
    assert list(store.iterdir()) == []
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "around" / "store"))
    (tmp_path / "around" / "store").mkdir(parents=True, mode=0o755)
    Home(str(tmp_path / "around")).prepare()
    assert stat.S_IMODE((tmp_path / "around" / "store").stat().st_mode) == 0o755


@pytest.mark.requirement("EN-03")
def test_a_home_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(HomeError) as refused:
            Home(str(place)).prepare()
        assert refused.value.next_step


@pytest.mark.requirement("EN-04")
def test_a_home_with_a_long_path_works(home: Path) -> None:
    long = home / ("d" * 60) / ("e" * 60)
    world = World(long)
    try:
        client = world.mcp()
        client.shake_hands()
        assert client.call("bridge_status")["ok"]
        endpoint = Path(world.broker().endpoint.removeprefix("ipc://"))
        assert str(endpoint).startswith(f"/tmp/cross-agent-{os.getuid()}")
        assert stat.S_IMODE(endpoint.parent.stat().st_mode) == 0o700
    finally:
        world.close()


@pytest.mark.requirement("EN-04", "EN-02")
@pytest.mark.parametrize("trap", ["link", "foreign", "file"])
def test_a_socket_directory_that_is_a_trap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: str) -> None:
    """The private directory in /tmp may have been made by somebody else, who waits for us there."""
    directory = tmp_path / "sockets"
    if trap == "link":
        (tmp_path / "elsewhere").mkdir()
        directory.symlink_to(tmp_path / "elsewhere")
    elif trap == "file":
        directory.touch()
    else:
        if os.getuid() != 0:
            pytest.skip("only root can give a directory away")
        directory.mkdir()
        os.chown(directory, 65534, 65534)
    monkeypatch.setattr(Home, "sockets", lambda _: str(directory))
    with pytest.raises(HomeError):
        Home(str(tmp_path / "home")).prepare()


@pytest.mark.requirement("EN-04")
def test_a_client_with_an_empty_environment_finds_the_same_broker(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the passwd entry then says where; two clients must never find two brokers."""
    monkeypatch.delenv("CROSS_AGENT_HOME")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from broker.paths import find_home\n"
        "h = find_home(); print(h.root); print(h.endpoint(7))"
    )

    def found(environment: dict[str, str]) -> str:
        command = [sys.executable, "-I", "-S", "-c", program, str(ROOT)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=True).stdout

    bare = found({})
    misleading = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home), "USER": "nobody"}
    assert bare == found(misleading) == found({"CROSS_AGENT_HOME": " "})
    assert found({"CROSS_AGENT_HOME": str(home)}).startswith(f"{home}\n")
