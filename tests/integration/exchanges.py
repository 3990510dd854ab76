"""A message from one panel to another and its answer: how it is sent, held up and waited for, and what must be true of it then.

Owns what tests about different things say of the same exchange.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.lines import PATIENCE, Json
from tests.integration.panels import McpClient, Panel
from tests.integration.world import FINAL, World


def open_both(world: World, pair: tuple[str, str]) -> tuple[Panel, Panel]:
    sender, target = world.open(pair[0]), world.open(pair[1])
    sender.registered()
    target.registered()
    return sender, target


def open_used(world: World, target: str) -> tuple[Panel, Panel]:
    """A sender, and a target that has a history, so that its session can be opened again."""
    sender, panel = world.open("claude" if target == "codex" else "codex"), world.open(target)
    panel.say("hello")
    panel.wait_ends(1)
    sender.registered()
    panel.registered()
    return sender, panel


# what is said


def ping(marker: str, script: str = "") -> str:
    """A message with a script for its reader, beyond what a summary quotes: its writer is not to obey it."""
    return f"ping {marker} {'.' * 100} [[{script or f'reply pong {marker}'}]]"


def gate(world: World, name: str) -> Path:
    """A FIFO at which a scripted step waits."""
    path = Path(world.home.root, name)
    os.mkfifo(path)
    return path


def open_gate(path: Path) -> None:
    with path.open("w"):
        pass


# what became of it


def exchange(world: World, sender: Panel, target: Panel, marker: str) -> None:
    sender.send_to(target, ping(marker))
    assert_exchanged_once(world, sender, target, marker)


def assert_exchanged_once(world: World, sender: Panel, target: Panel, marker: str) -> None:
    """One delivery, one hand-over, one answer, and nothing is left open."""
    text = sender.wait_reply(f"pong {marker}", timeout=30)
    assert f"pong {marker}" in text
    assert "possibly interim" not in text
    world.until(lambda: all(d["state"] in FINAL for d in world.deliveries()), "everything finished")
    world.until(lambda: not any(a["open"] for a in world.attempts()), "every attempt closed")
    ours = [d for d in world.requests() if marker in d["summary"]]
    assert [d["state"] for d in ours] == ["delivered"]
    assert target.handed_over(marker) == 1
    assert len(sender.replies(f"pong {marker}")) == 1


def all_over(world: World) -> Json:
    """The one request, when everything has ended."""
    (request,) = world.finished(timeout=30)
    world.until(lambda: all(d["state"] in FINAL for d in world.deliveries()), "everything finished")
    world.until(lambda: not any(a["open"] for a in world.attempts()), "every attempt closed")
    return request


def assert_truthful(world: World, sender: Panel, target: Panel, marker: str) -> Json:
    """Whatever became of the message: it ran at most once, the sender was told once, and what it was told is true."""
    request = all_over(world)
    runs, replies, notices = target.handed_over(marker), len(sender.replies(f"pong {marker}")), sender.notices()
    assert replies + len(notices) == 1
    assert runs <= 1
    if request["state"] == "delivered":
        assert (runs, replies) == (1, 1)
    elif "safe to send it again" in notices[0]:
        assert runs == 0
        assert not request["handed_over"]
    else:
        # An agent that is killed as it begins has told so, and may not have written the message down (2.1.197 as well).
        told = runs == 1 or request["error_code"] == "interrupted"
        assert request["state"] == "uncertain" or (request["handed_over"] and told)
    return request


def settled(client: McpClient, delivery: str, state: str, when: Callable[[Json], bool] = lambda _: True) -> Json:
    """What `bridge_status` shows of the delivery once it is in ``state``."""
    deadline = time.monotonic() + PATIENCE
    while True:
        shown = client.call("bridge_status", delivery_id=delivery)
        if shown["delivery"]["state"] == state and when(shown):
            return shown
        assert time.monotonic() < deadline, shown["delivery"]
