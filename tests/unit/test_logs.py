"""Debug lines are written for those who want them, and for nobody else (EN-22)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.logs import begin_logging, debugged
from broker.paths import Home

OURS = logging.getLogger("broker.test")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Logging belongs to the whole process."""
    root = logging.getLogger()
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in ("", "broker", "mcp_server", "shims")}
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def written(home: Path) -> list[str]:
    return [line.rsplit(" ", 1)[-1] for line in (home / "logs" / "broker.log").read_text().splitlines()]


async def call(name: str, *, wants: bool) -> None:
    """What serves a call runs in a context of its own, and so does what it has started."""
    debugged.set(wants)

    async def later() -> None:
        OURS.debug("%s-later", name)

    OURS.debug("%s", name)
    await asyncio.create_task(later())


@pytest.mark.requirement("EN-22")
@pytest.mark.parametrize("value", [None, "", "0", "1"])
def test_debug_lines_are_for_the_calls_of_who_wants_them(home: Path, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """In the broker's own environment any value turns them on for all."""
    if value is None:
        monkeypatch.delenv("CROSS_AGENT_DEBUG", raising=False)
    else:
        monkeypatch.setenv("CROSS_AGENT_DEBUG", value)
    Home(str(home)).prepare()
    begin_logging(Home(str(home)))

    async def story() -> None:
        await asyncio.gather(call("wanted", wants=True), call("unwanted", wants=False))
        OURS.debug("nobodys")
        OURS.info("told")
        logging.getLogger("a.library").info("chatter")

    asyncio.run(story())
    found = set(written(home))
    everything = {"wanted", "wanted-later", "told", "unwanted", "unwanted-later", "nobodys"}
    assert found == (everything if value is not None else {"wanted", "wanted-later", "told"})
