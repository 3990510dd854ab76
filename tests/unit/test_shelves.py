"""What holds for the shelf of every agent: what cannot be looked at is said, what is gone is not, and links are watched."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shims.shelf import Listed, shelf
from tests.integration.indexing import made

pytestmark = pytest.mark.requirement("SE-05")

AGENTS = ("claude", "codex", "grok")


def levels(store: Path, path: Path) -> list[str]:
    """Every directory from the store's down to that of a file."""
    return [str(above) for above in path.parents if above.is_relative_to(store) and above != store]


def failing(real: Callable[..., object], paths: set[str], code: int) -> Callable[..., object]:
    def call(path: str, *rest: object, **named: object) -> object:
        if str(path) in paths:
            raise OSError(code, os.strerror(code), str(path))
        return real(path, *rest, **named)

    return call


def files(agent: str, store: Path) -> tuple[list[Listed], set[str]]:
    unread: set[str] = set()
    return list(shelf(agent).files(str(store), unread.add)), unread


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("code", [errno.EACCES, errno.EMFILE, errno.EIO, errno.ESTALE])
def test_a_directory_that_cannot_be_read_is_said_and_hides_no_other(
    tmp_path: Path, agent: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(agent, tmp_path / "store")
    store.add("/a")
    found, unread = files(agent, store.path)
    assert (len(found), unread) == (1, set())
    scandir = os.scandir
    ways = levels(store.path, Path(found[0].path))
    if agent == "grok":
        del ways[0]  # that of a session is not listed: its one file is looked at
    for level in ways:
        monkeypatch.setattr(os, "scandir", failing(scandir, {level}, code))
        assert files(agent, store.path) == ([], {level})
        monkeypatch.setattr(os, "scandir", failing(scandir, {level}, errno.ENOENT))
        assert files(agent, store.path) == ([], set()), "it went meanwhile"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_file_that_cannot_be_looked_at_is_said(tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = made(agent, tmp_path / "store")
    store.add("/a")
    ((file,), _) = files(agent, store.path)
    assert shelf(agent).listed(str(store.path), file.path) == file
    monkeypatch.setattr(os, "stat", failing(os.stat, {file.path}, errno.EACCES))
    with pytest.raises(OSError, match="denied"):
        shelf(agent).listed(str(store.path), file.path)
    monkeypatch.undo()
    os.unlink(file.path)
    assert shelf(agent).listed(str(store.path), file.path) is None


@pytest.mark.requirement("SE-06")
@pytest.mark.parametrize("agent", AGENTS)
def test_links_to_directories_are_watched_and_no_others(tmp_path: Path, agent: str) -> None:
    store = made(agent, tmp_path / "store")
    store.add("/a")
    ((file,), _) = files(agent, store.path)
    before = set(shelf(agent).folders(str(store.path)))
    top = Path(levels(store.path, Path(file.path))[-1])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "file").touch()
    for name, target in (("to-a-directory", "elsewhere"), ("to-nothing", "nothing"), ("to-a-file", "file")):
        (top / name).symlink_to(tmp_path / target)
    (top / "in-a-circle").symlink_to(top / "in-a-circle")
    added = {os.path.basename(folder.path) for folder in set(shelf(agent).folders(str(store.path))) - before}
    assert added - {"in-a-circle"} == {"to-a-directory", "to-nothing"}
