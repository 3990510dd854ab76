"""Brokers that a client has started: their end is told truly, and they leave no zombie behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import command
from tests.integration.conftest import OpenPanel
from tests.integration.installation import ROOT, Installation, install
from tests.integration.processes import gone_within
from tests.integration.world import World


@pytest.fixture
def world(home: Path) -> Iterator[World]:
    built = World(home)
    try:
        yield built
    finally:
        built.close()


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """With everything that a broker needs: the usual one has the shims alone."""
    made = install(tmp_path_factory.mktemp("installation") / "root")
    (made.root / "mcp_server").symlink_to(ROOT / "mcp_server")
    return made


def zombies(parent: int) -> list[int]:
    """The children of ``parent`` that have ended and that it has not noticed."""
    found = []
    for entry in os.scandir("/proc"):
        try:
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split() if entry.name.isdecimal() else []
        except OSError:
            continue  # gone
        if fields and fields[0] == "Z" and int(fields[1]) == parent:
            found.append(int(entry.name))
    return found


def is_child(world: World, parent: int) -> bool:
    return Path(f"/proc/{world.broker().pid}/stat").read_text().rpartition(")")[2].split()[1] == str(parent)


HOW = pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])


@pytest.mark.requirement("SH-06", "SH-23")
@HOW
def test_a_broker_that_ends_is_no_zombie_of_the_shim_that_started_it(
    world: World, open_panel: OpenPanel, how: signal.Signals
) -> None:
    editor = open_panel("echo", CROSS_AGENT_AUTOSTART="1")
    assert is_child(world, editor.pid)
    world.kill_broker(how)
    world.until(lambda: zombies(editor.pid) == [], "the broker buried")
    editor.close_input()
    assert editor.wait() == 0, "the agent's end is its own"


@pytest.mark.requirement("MC-31")
@HOW
def test_a_broker_that_ends_is_no_zombie_of_the_mcp_process_that_started_it(world: World, how: signal.Signals) -> None:
    client = world.mcp()
    client.shake_hands()
    for _ in range(2):
        assert client.call("bridge_status")["ok"]
        assert is_child(world, client.pid)
        world.kill_broker(how)
        world.until(lambda: zombies(client.pid) == [], "the broker buried")


@pytest.mark.requirement("MC-24", "MC-32", "MC-05")
def test_a_start_by_hand_that_fails_says_so_at_once_and_where_to_look(world: World) -> None:
    os.mkdir(world.home.database)
    began = time.monotonic()
    told = command(world, "broker", "start")
    assert time.monotonic() - began < 15, "it ended at once, and that is noticed"
    assert (told.returncode, told.stdout) == (1, "")
    assert "the broker that was started has ended with exit status 1 [broker_unreachable]" in told.stderr
    assert f"Read {world.home.logs}/broker.log." in told.stderr
    os.rmdir(world.home.database)
    told = command(world, "broker", "start")
    record = world.broker()
    assert (told.returncode, told.stdout) == (0, f"broker started: pid {record.pid}, generation 1\n")
    world.kill_broker()
    assert gone_within(record.pid, 1)
