"""Parts of the broker for tests of the engine without a process: a real store, and a route that does as it is told.

Owns nothing that outlives a test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.book import Book
from broker.carrier import Carrier
from broker.clock import awake_clock, wall_clock
from broker.deliveries import Attempt, Delivery, Kind, State, new_delivery_id
from broker.pins import Pins
from broker.reader import Reader
from broker.routes import Held, Open, Reach, Unreachable, Wait
from broker.store import Store


class Silent:
    """An event stream that nobody reads."""

    def publish(self, kind: str, **facts: object) -> None:
        del kind, facts


class ToldRoute:
    """A route whose answers a test sets."""

    name = "told"

    def __init__(self) -> None:
        self.reached: Reach | Wait | Unreachable = Reach("panel", "1@1", "", "/nowhere")
        self.found: Open | Held | None = None
        self.goes_out = [True]
        """What `hand_over` answers, one after the other; the last one for ever."""
        self.handed_over: list[Attempt] = []
        self.forgotten: list[Attempt] = []
        self.looks: list[Attempt | None] = []
        self.running = False
        self.news = asyncio.Event()

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Wait | Unreachable:
        del delivery, waited
        return self.reached

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        del delivery, reach, text
        self.handed_over.append(attempt)
        self.news.set()
        return self.goes_out.pop(0) if len(self.goes_out) > 1 else self.goes_out[0]

    def ask(self, attempt: Attempt) -> None:
        del attempt

    def withdraw(self, attempt: Attempt) -> None:
        del attempt

    async def way_back(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str:
        del agent, store, session, panels, doors
        return ""

    async def find(self, agent: str, store: str, session: str) -> Open | Held | None:
        del agent, store, session
        return self.found

    async def is_idle(self, agent: str, store: str, session: str) -> bool:
        del agent, store, session
        return False

    def looked(self, attempt: Attempt | None) -> None:
        self.looks.append(attempt)

    def runs(self, attempt: Attempt) -> bool:
        del attempt
        return self.running

    def forget(self, attempt: Attempt) -> None:
        self.forgotten.append(attempt)


class Engine:
    """Store, book, carrier and route."""

    def __init__(self, path: Path) -> None:
        self.failures: list[BaseException] = []
        self.store = Store(str(path / "broker.sqlite"), self.failures.append)
        self.generation = self.store.begin_generation()
        self.book = Book(self.store, Silent())  # type: ignore[arg-type]
        self.route = ToldRoute()
        self.reader = Reader()
        self.pins = Pins(self.store)
        self.carrier = Carrier(self.book, self.pins, self.route, self.reader, self.generation)

    async def queued(self, **fields: Any) -> Delivery:
        """A request that has been recorded."""
        return await self.book.add_request(delivery(**fields), "text", lambda _: {})


@asynccontextmanager
async def engine(path: Path) -> AsyncIterator[Engine]:
    made = Engine(path)
    try:
        yield made
    finally:
        made.carrier.close()
        made.store.close()


def delivery(**fields: Any) -> Delivery:
    """A request to a Claude session, queued."""
    now = wall_clock()
    made = Delivery(
        id=new_delivery_id(),
        kind=Kind.REQUEST,
        state=State.QUEUED,
        agent="claude",
        session="s1",
        conversation="conv_1",
        hop=1,
        max_hops=1000,
        created=now,
        deadline=awake_clock() + 60,
        token="req_1700000000000_abcdef",
        key="k1",
    )
    return replace(made, **fields)
