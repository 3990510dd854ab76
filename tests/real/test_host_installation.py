"""Setting up the agent host: what is whole, what is not, and what is said when it cannot be done. Downloads nothing."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.real.binaries import CACHE_VARIABLE, BinaryMissingError, locked
from tests.real.host import __main__ as command
from tests.real.host import installation
from tests.real.host.installation import COMMAND, INSIDE, MAIN, NATIVE, HostMissingError, install, installed, place
from tests.real.host.process import AgentHost

if TYPE_CHECKING:
    from pathlib import Path

RUNTIME = "node_modules/@github/copilot-sdk-linux-x64/prebuilds/linux-x64/copilot-runtime"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(*names: str) -> None:
    for name in names:
        file = place() / INSIDE / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_a_part_of_a_host_is_none(tmp_path: Path) -> None:
    assert installed() is None
    put(MAIN, RUNTIME)
    assert installed() is None
    with pytest.raises(HostMissingError, match=re.escape(COMMAND)):
        AgentHost(tmp_path, "http://127.0.0.1:1")
    put(NATIVE)
    found = installed()
    assert found is not None
    assert found.root == place() / INSIDE
    assert install() == found


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "c++" else f"/bin/{name}")
    assert command.main() == 1
    assert "cannot be built without c++" in capsys.readouterr().err


def test_a_set_up_that_fails_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(wheel: Path, directory: Path, environment: dict[str, str]) -> None:
        del wheel, environment
        (directory / INSIDE / MAIN).parent.mkdir(parents=True)
        (directory / INSIDE / MAIN).touch()
        raise BinaryMissingError("the network is gone")

    left = cache / f".{place().name}.of-one-that-was-killed"
    left.mkdir(parents=True)
    monkeypatch.setattr(installation, "_fetch", fetch)
    with pytest.raises(BinaryMissingError, match="the network is gone"):
        install()
    assert [file.name for file in cache.iterdir()] == [f"{place().name}.lock"]


def test_of_two_at_once_one_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def waited(path: Path) -> object:
        put(MAIN, RUNTIME, NATIVE)  # the other one has, while this one waited
        return locked(path)

    monkeypatch.setattr(installation, "locked", waited)
    monkeypatch.setattr(installation, "_make", lambda *_: pytest.fail("done twice"))
    assert install() == installed()
