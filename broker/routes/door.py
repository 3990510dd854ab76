"""The door route: a session that runs where no shim of ours stands before it, reached through the agent's own door (LD-01).

Owns which door of an agent's is open for a session, and the hand-over through it. That the words went in is one stage, that the
agent has them the next; the turn that they became is found in the agent's records by `watch`, and what became of them when the
process is gone by `settlement`. A message that waits for a person there is told of by the agent, where it tells.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Protocol

from broker.baseline import is_baseline
from broker.book import Book
from broker.clock import wall_clock
from broker.deliveries import Attempt, Delivery, Evidence, Kind
from broker.doors.child import Children
from broker.doors.ear import Ear
from broker.doors.exchange import DoorError, Hooks, converse
from broker.failpoints import fail_point
from broker.processes import ProcessId, is_stopped, parse_process_id, variables, working_directory
from broker.reader import Reader
from broker.routes import Held, Open, Reach, Unreachable
from broker.tasks import Tasks
from broker.wire import StageName, StageReport
from shims.agent import Agent, Found, agent
from shims.door import Door, Letter, News, Notice, Opening, Outcome, Said, Shut, Talk, Way

log = logging.getLogger("broker.routes.door")

_LOOK_AGAIN = 5.0
_IDLE_LOOKS = 3
"""Looks in a row at an idle session without a message, after which that never went in: what goes in there runs at once."""

_LEAVE = "Close it there, or open it in an editor panel."


class Reporting(Protocol):
    """What the route asks of the carrier."""

    def staged(self, report: StageReport, seen: asyncio.Future[None]) -> None: ...

    async def held_by_peer(self, attempt: str, note: str) -> None: ...


class Settling(Protocol):
    """What it asks of `broker.settlement`."""

    def handed_in(self, attempt: Attempt) -> None:
        """Its process must be watched from now on."""
        ...

    def let_go(self, attempt: Attempt) -> None:
        """Its process lives, and has let go of the session."""
        ...


class DoorRoute:
    """All doors of all agents."""

    name = "door"

    def __init__(self, home: str, book: Book, children: Children, reader: Reader) -> None:
        self._book = book
        self._children = children
        self._reader = reader
        self._reporting: Reporting
        self._settling: Settling
        self._ear = Ear(home, self._heard)
        self._tasks = Tasks(log)

    def attach(self, reporting: Reporting, settling: Settling) -> None:
        self._reporting = reporting
        self._settling = settling

    def recover(self) -> None:
        """News of what an earlier broker handed in come to the same places."""
        for attempt in self._book.open_attempts():
            if attempt.by_door:
                self._tasks.spawn(self._listen(attempt))
                if attempt.evidence is Evidence.NONE:
                    self._tasks.spawn(self._find_out(attempt))

    async def _find_out(self, attempt: Attempt) -> None:
        """Whether an earlier broker's words went in: by the records, and by a session that has been idle since without them."""
        idle = 0
        while (kept := self._book.attempt(attempt.id)) is not None and kept.open and kept.evidence is Evidence.NONE:
            delivery = self._book.delivery(attempt.delivery)
            if delivery is None:
                return
            record = await self._reader.record(delivery.agent, attempt.store, delivery.session, delivery.key)
            if record.found not in (Found.ABSENT, Found.UNKNOWN):
                self._report(attempt, StageName.TAKEN if record.found is Found.WAITING else StageName.WRITTEN)
                return  # the rest is read from the records
            found = await self.find(delivery.agent, attempt.store, delivery.session)
            quiet = isinstance(found, Open) and not found.busy and not found.waits_for and not found.paused
            if isinstance(found, Open) and await asyncio.to_thread(is_stopped, found.opening.holder.pid):
                quiet = False  # it says nothing, and may have it in its socket
            idle = idle + 1 if quiet and record.found is Found.ABSENT else 0
            held_back = _door(agent(delivery.agent), attempt.route).held_back
            if idle >= _IDLE_LOOKS and await asyncio.to_thread(held_back, attempt.store, delivery.session, attempt.created):
                idle = 0  # it may be this one that a person is asked about
            if idle >= _IDLE_LOOKS:
                self._settling.let_go(attempt)
                return
            await asyncio.sleep(_LOOK_AGAIN)

    async def _listen(self, attempt: Attempt) -> None:
        delivery = self._book.delivery(attempt.delivery)
        if delivery is None:
            return
        door = _door(agent(delivery.agent), attempt.route)
        opening = await _still_open(door, attempt)
        if opening is not None and opening.notices:
            await self._ear.at(opening.notices, door)

    def close(self) -> None:
        self._ear.close()
        self._tasks.cancel()

    # whether

    async def find(self, name: str, store: str, session: str, *, start: bool = True) -> Open | Held | None:
        """What leads to the session; None: nobody holds it.

        Args:
            start: where only a program of the agent's tells how the session stands, one is started: up to half a second.
        """
        described = agent(name)
        holders = await asyncio.to_thread(described.holders, store, session) if session else []
        if not holders or (name, session) in self._book.started_turns():  # a turn of ours ends with its process
            return None
        shut: Shut | None = None
        for door in described.doors:
            opening = await asyncio.to_thread(door.look, store, session, holders)
            if isinstance(opening, Shut):
                shut = opening
                continue
            if door.ask is None or (opening.way is Way.PROGRAM and not start):
                return _as_it_looks(door, opening)
            found = await self._asked(door, opening, name, store, session)
            if isinstance(found, Open):
                return found
            shut = found
        if shut is None:
            shut = Shut(f"{described.product} has no door of its own", _LEAVE)
        return Held(holders[0], shut.reason, shut.remedy)

    async def _asked(self, door: Door, opening: Opening, name: str, store: str, session: str) -> Open | Shut:
        assert door.ask is not None
        try:
            said = await self._converse(opening, door.ask(session))
        except DoorError as error:
            return Shut(f"its door is there and {error.reason}", "Call again later, or open the session in an editor panel.")
        if said.outcome is Outcome.REFUSED:
            return Shut(door.explains.get(said.code, said.code), _LEAVE)
        busy, waits_for = said.found.get("busy", opening.busy), said.found.get("waits_for", opening.waits_for)
        if busy is None:
            busy = (await self._reader.latest(name, store, session, wall_clock())).open
        return Open(door, opening, bool(busy), said.found.get("paused") is True, str(waits_for), opening.since)

    async def reach(self, delivery: Delivery, waited: float) -> Reach | Unreachable:
        del waited
        found = await self.find(delivery.agent, delivery.store, delivery.session, start=False)
        if found is None:
            return Unreachable("not_held", "nobody has the session open any more")
        if isinstance(found, Held):
            return Unreachable("session_held", f"process {found.process.pid} holds it: {found.reason}")
        holder = str(found.opening.holder)
        return Reach(found.door.name, holder, holder, delivery.store)

    # the hand-over

    async def hand_over(self, delivery: Delivery, attempt: Attempt, reach: Reach, text: str) -> bool:
        door = _door(agent(delivery.agent), reach.route)
        opening = await _still_open(door, attempt)
        if opening is None:
            return False
        self._tasks.spawn(self._give(door, opening, delivery, attempt, text))
        return True

    async def _give(self, door: Door, opening: Opening, delivery: Delivery, attempt: Attempt, text: str) -> None:
        self._settling.handed_in(attempt)  # whatever this comes to, or fails by
        notices = await self._ear.at(opening.notices, door) if opening.notices else ""
        letter = Letter(delivery.session, delivery.key, text, notices)
        hooks = Hooks(lambda: fail_point("broker.door.before"), lambda: fail_point("broker.door.after"))
        try:
            said = await self._by_child(door, opening, letter, hooks) if delivery.kind is not Kind.REQUEST else None
            said = said or await self._converse(opening, door.give(opening, letter), hooks)
        except DoorError as error:
            log.info("%s: %s: %s", attempt.id, door.name, error.reason)
            if not error.carried:
                self._report(attempt, StageName.REJECTED, code="door_failed")
                return
            self._report(attempt, StageName.WRITTEN)  # what became of it, the records will tell
        else:
            if said.outcome is Outcome.REFUSED:
                self._report(attempt, StageName.REJECTED, code=said.code or "agent_refused")
                return
            self._report(attempt, StageName.WRITTEN)
            if said.outcome is Outcome.ACCEPTED:
                self._report(attempt, StageName.TAKEN)

    async def _by_child(self, door: Door, opening: Opening, letter: Letter, hooks: Hooks) -> Said | None:
        """The answer in the hands of the session's own MCP process, which it lets in unasked; None: there is none (LD-08)."""
        if not door.child_secret or opening.way is not Way.SOCKET:
            return None
        for peer in await self._children.of(opening.holder):
            told = await asyncio.to_thread(variables, peer.process.pid, (door.child_secret,))
            if not told or not told.get(door.child_secret):
                continue
            proven = replace(opening, secret=told[door.child_secret])
            said = door.give(proven, letter).begin()
            hooks.before()
            carried = await self._children.post(peer, opening.socket, b"".join(line + b"\n" for line in said.messages))
            hooks.after()
            if carried is None:
                raise DoorError("the session's own MCP process gave no answer", carried=True)
            if carried:
                return said
        return None

    def withdraw(self, attempt: Attempt) -> None:
        delivery = self._book.delivery(attempt.delivery)
        if delivery is not None:
            self._tasks.spawn(self._take_back(delivery, attempt))

    async def _take_back(self, delivery: Delivery, attempt: Attempt) -> None:
        door = _door(agent(delivery.agent), attempt.route)
        opening = await _still_open(door, attempt) if door.take_back is not None else None
        if door.take_back is None or opening is None:
            return
        try:
            said = await self._converse(opening, door.take_back(delivery.session, delivery.key))
        except DoorError as error:
            log.info("%s: %s gives nothing back: %s", attempt.id, door.name, error.reason)
            return
        if said.outcome is Outcome.ACCEPTED:
            await self._given_back(attempt, delivery, "withdrawn")

    def runs(self, attempt: Attempt) -> bool:
        """Nobody tells of it as it happens."""
        del attempt
        return False

    def looked(self, attempt: Attempt | None) -> None:
        if attempt is not None and attempt.open:
            self._tasks.spawn(self._settle_if_let_go(attempt))

    async def _settle_if_let_go(self, attempt: Attempt) -> None:
        """A process that serves many sessions may let go of one and live on, with nobody else to tell of that."""
        delivery = self._book.delivery(attempt.delivery)
        if delivery is None or not _door(agent(delivery.agent), attempt.route).lets_go:
            return
        holders = await asyncio.to_thread(agent(delivery.agent).holders, attempt.store, delivery.session)
        if attempt.instance not in map(str, holders):
            self._settling.let_go(attempt)

    def forget(self, attempt: Attempt) -> None:
        """Nobody else waits for its end."""

    async def _converse(self, opening: Opening, talk: Talk, hooks: Hooks | None = None) -> Said:
        """A program of the agent's is started as the process that has the session was, in what it needs of that."""
        if not opening.argv:
            return await converse(opening, talk, {}, "", hooks)
        environment = await asyncio.to_thread(variables, opening.holder.pid, is_baseline)
        cwd = await asyncio.to_thread(working_directory, opening.holder.pid)
        return await converse(opening, talk, environment or {}, cwd or "", hooks)

    # news

    def _heard(self, notice: Notice, teller: ProcessId | None) -> None:
        for attempt in self._book.open_attempts():
            delivery = self._book.delivery(attempt.delivery)
            if delivery is None or delivery.key not in notice.keys:
                continue
            if teller is not None and str(teller) != attempt.instance:
                log.warning("%s tells of an attempt of %s", teller, attempt.instance)
                continue
            door = _door(agent(delivery.agent), attempt.route)
            if notice.news is News.HELD:
                self._tasks.spawn(self._reporting.held_by_peer(attempt.id, door.explains[News.HELD.value]))
            else:
                self._tasks.spawn(self._given_back(attempt, delivery, notice.news.value))

    async def _given_back(self, attempt: Attempt, delivery: Delivery, code: str) -> None:
        """What the agent says that it has not, or has no more; its records count more: it may mean a second copy, or be late."""
        record = await self._reader.record(delivery.agent, attempt.store, delivery.session, delivery.key)
        if record.found in (Found.OPEN, Found.ANSWERED, Found.INTERRUPTED):
            self._report(attempt, StageName.TAKEN)
        else:
            self._report(attempt, StageName.REJECTED, code=code)

    def _report(self, attempt: Attempt, stage: StageName, code: str = "") -> None:
        seen = asyncio.get_running_loop().create_future()
        self._reporting.staged(StageReport(0, attempt.id, stage, code=code), seen)


def _door(described: Agent, name: str) -> Door:
    return next(door for door in described.doors if door.name == name)


async def _still_open(door: Door, attempt: Attempt) -> Opening | None:
    """The door at the process that has the attempt, while that has its session."""
    holder = parse_process_id(attempt.instance)
    if holder is None:
        return None
    opening = await asyncio.to_thread(door.look, attempt.store, attempt.session, [holder])
    return opening if isinstance(opening, Opening) else None


def _as_it_looks(door: Door, opening: Opening) -> Open:
    return Open(door, opening, bool(opening.busy), False, opening.waits_for, opening.since)
