"""The broker's side of started turns: starts their runners, hears what they tell, and adopts those of an earlier broker.

Owns one task for each runner, from its start (or from ours) until what came of the turn is in the database and its files are
gone. Runners are not our children in any way that matters: they end when their turn does, whoever lives (DE-24).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from broker.book import Book
from broker.closing import closes_with
from broker.deliveries import Attempt, Delivery, Event, Evidence, IllegalStepError, State
from broker.failpoints import fail_point
from broker.holders import gone
from broker.processes import ProcessId, identify
from broker.reader import Reader
from broker.replies import FLAG_KILLED, Replies
from broker.tasks import Tasks
from broker.turns import verdict
from broker.turns.bell import Bell
from broker.turns.files import TOLD, Ended, Run, TurnFiles
from broker.turns.orphans import end_group
from broker.turns.verdict import Fate, Verdict
from shims.agent import Found, Record, agent
from shims.headless import NOTHING_RAN, Headless, Said

log = logging.getLogger("broker.turns")

ROUTE = "headless"

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")

_AGAIN = 10.0
"""Seconds until one looks again whether the agent lets a turn begin that it has refused, since somebody holds the session."""

_DIED_EARLY = "what should run its turn died before it had begun, each time"

_TRIES = 4
"""Attempts of one delivery that came to nothing for one reason, after which it is given up."""


class Hands(Protocol):
    """What started turns ask of the carrier."""

    def lock(self, target: tuple[str, str, str]) -> asyncio.Lock: ...

    async def taken(self, delivery: Delivery, attempt: Attempt, session: str, turn: str) -> Delivery: ...

    def ended(self, delivery: Delivery) -> None: ...

    def again_in(self, seconds: float, delivery: Delivery) -> None: ...

    @property
    def replies(self) -> Replies: ...


class StartedTurns:
    """Every turn that runs, or ran, for an attempt that is open.

    Args:
        root: where each turn has a directory of its attempt's name; home: the state directory, for the runner.
    """

    def __init__(self, root: str, home: str, book: Book, reader: Reader) -> None:
        self._root = root
        self._home = home
        self._book = book
        self._reader = reader
        self._runners: dict[str, ProcessId] = {}
        self._under_way: set[str] = set()
        """Attempts that are being started, that run, or whose end is being written down."""
        self._told: dict[str, str] = {}
        """Why a turn was ended from here."""
        self._tries: Counter[tuple[Fate, str]] = Counter()
        """How often a delivery's turn could not be begun, by why."""
        self._ending = ""
        self._news = asyncio.Event()
        """Set when a turn is over, and then replaced."""
        self._tasks = Tasks(log)
        self._hands: Hands | None = None

    def attach(self, hands: Hands) -> None:
        """Tells whom to tell; once, before anything is started."""
        self._hands = hands

    def prompt(self, attempt: str) -> str:
        """Where the text of an attempt will be."""
        return self._files(attempt).prompt

    def runs(self, attempt: str) -> bool:
        return attempt in self._runners

    @property
    def ending(self) -> str:
        """Why none is started any more; empty: they are."""
        return self._ending

    async def end_all(self, reason: str, patience: float) -> bool:
        """Ends every turn with its group, and starts none any more.

        Waits until what came of each is in the database; False when that takes longer than ``patience`` seconds.
        """
        self._ending = reason
        for attempt in list(self._runners):
            self.stop(attempt, reason)
        deadline = asyncio.get_running_loop().time() + patience
        while self._under_way:
            left = deadline - asyncio.get_running_loop().time()
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, left))
            except asyncio.TimeoutError:
                return False
        return True

    async def start(self, attempt: Attempt, run: Run, prompt: bytes, environment: Mapping[str, str]) -> None:
        """Starts the runner of ``attempt``, which is in the database. What comes of it, its delivery shows."""
        files = self._files(attempt.id)
        self._under_way.add(attempt.id)
        try:
            runner = await asyncio.shield(asyncio.to_thread(self._spawn, files, run, prompt, environment))
        except (OSError, ValueError) as error:  # there is no runner, and none will come
            self._over(attempt.id)
            log.error("%s: no runner: %s", attempt.id, type(error).__name__)
            why = error.strerror if isinstance(error, OSError) else "its environment holds what none can hold"
            refused = Verdict(Fate.REFUSED, code="cannot_start", reason=f"no process could be started for it: {why}")
            self._spawn_task(self._conclude(attempt.id, refused, files))
            return
        self._spawn_task(self._attend(attempt.id, files, runner))

    def recover(self) -> None:
        """At start: adopts the runners that live, judges those that do not, and clears up behind the others."""
        attempts = {attempt.id: attempt for attempt in self._book.open_attempts() if attempt.route == ROUTE}
        for attempt in attempts.values():
            self._under_way.add(attempt.id)
            self._spawn_task(self._adopt(attempt))
        for name in _entries(self._root):
            if name.startswith("att_") and name not in attempts:
                _clear(self._files(name))

    def stop(self, attempt: str, reason: str) -> bool:
        """Ends a turn with its whole group; False: none runs."""
        runner = self._runners.get(attempt)
        if runner is None or not runner.alive():
            return False
        log.info("%s is ended: %s", attempt, reason)
        self._told[attempt] = reason
        os.kill(runner.pid, signal.SIGTERM)
        return True

    def close(self) -> None:
        """Nobody listens any more; what runs goes on."""
        self._tasks.cancel()

    # starting

    def _files(self, attempt: str) -> TurnFiles:
        return TurnFiles(os.path.join(self._root, attempt))

    def _spawn(self, files: TurnFiles, run: Run, prompt: bytes, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        fail_point("broker.turn.before")
        files.create(run, prompt)
        own = {name: value for name, value in os.environ.items() if name == "CROSS_AGENT_FAIL_POINTS"}
        runner = subprocess.Popen(
            (sys.executable, "-I", _PROGRAM, files.path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**environment, **own, "CROSS_AGENT_HOME": self._home},
            cwd="/",
            start_new_session=True,
        )
        fail_point("broker.turn.after")
        return runner

    async def _adopt(self, attempt: Attempt) -> None:
        files = self._files(attempt.id)
        if await asyncio.to_thread(_is_never_started, files):
            log.info("%s was never started", attempt.id)
            await self._conclude(attempt.id, Verdict(Fate.NEVER), files)
            self._over(attempt.id)
            return
        runner = await asyncio.to_thread(files.runner)
        log.info("%s: adopted, its runner is %s", attempt.id, runner)
        await self._attend(attempt.id, files, runner)

    # while it runs

    async def _attend(self, attempt: str, files: TurnFiles, runner: subprocess.Popen[bytes] | ProcessId | None) -> None:
        """Until what came of it is in the database."""
        process = identify(runner.pid) if isinstance(runner, subprocess.Popen) else runner
        if process is not None:
            self._runners[attempt] = process
        self._under_way.add(attempt)
        if self._ending:
            self.stop(attempt, self._ending)
        try:
            begun = await self._until_gone(attempt, files, process)
            if isinstance(runner, subprocess.Popen):
                await asyncio.to_thread(runner.wait)
            ended = await asyncio.to_thread(files.ended)
            if ended is not None and ended.stopped == TOLD:
                ended = ended._replace(stopped=self._told.get(attempt, ended.stopped))
            if ended is not None and (ended.stopped or ended.said.code != NOTHING_RAN):  # who was stopped is not tried again
                await self._conclude(attempt, verdict.of_ended(ended), files)
            else:
                judged = await self._judged(attempt, files, begun, ended)
                if judged.fate is Fate.NEVER and attempt in self._told:
                    judged = Verdict(
                        Fate.REFUSED, code="stopped", reason=f"its turn was ended before it began: {self._told[attempt]}"
                    )
                await self._conclude(attempt, judged, files)
        finally:
            self._over(attempt)

    def _over(self, attempt: str) -> None:
        self._runners.pop(attempt, None)
        self._told.pop(attempt, None)
        self._under_way.discard(attempt)
        self._news.set()
        self._news = asyncio.Event()

    async def _until_gone(self, attempt: str, files: TurnFiles, runner: ProcessId | None) -> bool:
        """Waits for the runner's end, and tells on the way that its agent has begun; whether it had."""
        begun = False
        bell = Bell(files.bell)
        over = asyncio.ensure_future(gone(runner, None)) if runner is not None else None
        try:
            while True:
                done = over is None or over.done()
                if not begun and (session := await asyncio.to_thread(files.begun)) is not None:
                    begun = True
                    await self._begun(attempt, session)
                if done or over is None:
                    return begun
                rung = asyncio.ensure_future(bell.rung())
                await asyncio.wait((over, rung), return_when=asyncio.FIRST_COMPLETED)
                rung.cancel()
        finally:
            bell.close()
            if over is not None:
                over.cancel()

    async def _begun(self, attempt: str, session: str) -> None:
        hands, (found, delivery) = self._listening(), self._open(attempt)
        if found is None or delivery is None:
            return
        async with hands.lock(delivery.target):
            found, delivery = self._open(attempt)
            if found is not None and delivery is not None and delivery.state is State.DELIVERING:
                await hands.taken(delivery, found, session or found.session, "")

    # the end

    async def _judged(self, attempt: str, files: TurnFiles, begun: bool, ended: Ended | None) -> Verdict:
        """By what is left: the runner is gone and has not said what came of it, or the agent has not said so to it."""
        found, delivery = self._open(attempt)
        if found is None or delivery is None:
            return Verdict(Fate.UNKNOWN)
        headless = agent(delivery.agent).headless
        assert headless is not None
        if ended is None:
            child = await asyncio.to_thread(files.claimed)
            log.warning("%s: its runner died; its agent was %s", attempt, child)
            if child is None and await asyncio.to_thread(_is_never_started, files):
                return Verdict(Fate.NEVER)
            child = child or await asyncio.to_thread(files.claimed)
            if child is None:
                return Verdict(Fate.UNKNOWN)
            await end_group(child, headless.interrupt)
        said = ended.said if ended is not None else await self._reader.output(delivery.agent, files.out, found.session)
        said = said._replace(begun=said.begun or begun)
        record, decisive = await self._recorded(found, delivery, headless, files, said)
        return verdict.by_records(said, record, decisive=decisive)

    async def _recorded(
        self, attempt: Attempt, delivery: Delivery, headless: Headless, files: TurnFiles, said: Said
    ) -> tuple[Record, bool]:
        """What the agent's records say of the message, and whether its absence from them proves anything."""
        session = said.session or attempt.session
        if not session:
            return Record(Found.UNKNOWN), False
        key, decisive = (delivery.key if headless.keyed else said.turn), headless.keyed
        if headless.newest is not None:
            before = await asyncio.to_thread(files.newest_before)
            now = await self._reader.newest(delivery.agent, attempt.store, session)
            if before is not None and now is not None:
                if now == before:
                    return Record(Found.ABSENT), True
                key = now
        record = await self._reader.record(delivery.agent, attempt.store, session, key) if key else Record(Found.UNKNOWN)
        if record.found is not Found.ANSWERED and delivery.token:
            named = await self._reader.answer_naming(delivery.agent, attempt.store, session, delivery.token)
            record = named if named.found is Found.ANSWERED else record
        return record, decisive

    async def _conclude(self, attempt: str, judged: Verdict, files: TurnFiles) -> None:
        found, delivery = self._open(attempt)
        if found is not None and delivery is not None:
            async with self._listening().lock(delivery.target):
                found, delivery = self._open(attempt)
                if found is not None and delivery is not None:
                    log.info("%s: %s: %s %s", attempt, delivery.id, judged.fate.value, judged.code)
                    try:
                        await self._settle(found, delivery, judged)
                    except IllegalStepError as error:
                        log.info("%s: settled meanwhile: %s", delivery.id, error)
        await asyncio.to_thread(_clear, files)

    async def _settle(self, attempt: Attempt, delivery: Delivery, judged: Verdict) -> None:
        hands = self._listening()
        if judged.fate in _TRIED_AGAIN:
            self._tries[judged.fate, delivery.id] += 1
            if self._tries[judged.fate, delivery.id] >= _TRIES:
                never = Verdict(Fate.REFUSED, code="cannot_start", reason=_DIED_EARLY)
                judged = never if judged.fate is Fate.NEVER else judged._replace(fate=Fate.REFUSED)
        if judged.fate is Fate.NEVER or (judged.fate is Fate.HELD and delivery.state is State.DELIVERING):
            event = Event.NEVER if judged.fate is Fate.NEVER else Event.BUSY
            await self._book.apply(delivery, event, attempt=replace(attempt, open=False))
            hands.again_in(0.0 if judged.fate is Fate.NEVER else _AGAIN, delivery)
            return
        for fate in _TRIED_AGAIN:
            self._tries.pop((fate, delivery.id), None)
        if judged.fate in (Fate.ANSWERED, Fate.NO_ANSWER) and delivery.state is State.DELIVERING:
            delivery = await hands.taken(delivery, attempt, judged.session or attempt.session, "")
            attempt = self._book.attempt(attempt.id) or attempt
        if judged.fate is Fate.ANSWERED:
            closed = self._book.advanced(attempt, Evidence.ANSWERED, open=False, turn=judged.turn)
            answer = next((text for text in (judged.text, *judged.later) if closes_with(text, delivery.token)), judged.text)
            await hands.replies.answered(delivery, answer, attempt=closed, recovered=judged.recovered, denied=judged.denied)
        else:
            closed = replace(attempt, open=False)
            await hands.replies.failed(
                delivery, _EVENTS[judged.fate], judged.code, _reason(delivery, judged), attempt=closed, flags=_flags(judged)
            )
        hands.ended(delivery)

    def _open(self, attempt: str) -> tuple[Attempt | None, Delivery | None]:
        found = self._book.attempt(attempt)
        return found, self._book.delivery(found.delivery) if found is not None else None

    def _listening(self) -> Hands:
        assert self._hands is not None
        return self._hands

    def _spawn_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.spawn(work)


_TRIED_AGAIN = (Fate.NEVER, Fate.HELD)

_EVENTS = {Fate.NO_ANSWER: Event.ENDED, Fate.REFUSED: Event.REFUSED, Fate.HELD: Event.REFUSED, Fate.UNKNOWN: Event.UNPROVEN}


def _flags(judged: Verdict) -> set[str]:
    return {FLAG_KILLED} if judged.code == verdict.KILLED else set()


def _reason(delivery: Delivery, judged: Verdict) -> str:
    """Why, and what of the sender's environment may have been missing for it (EN-12)."""
    if not delivery.withheld or judged.code not in ("turn_failed", "not_logged_in", "cannot_start"):
        return judged.reason
    names = ", ".join(delivery.withheld)
    how = "CROSS_AGENT_CHILD_ENV names what may be"
    return f"{judged.reason}; {names} is set where the message came from and was not passed on ({how})"


def _entries(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _is_never_started(files: TurnFiles) -> bool:
    """Whether it is decided, by now, that the agent is never started."""
    return files.forbid() or files.is_forbidden()


def _clear(files: TurnFiles) -> None:
    try:
        files.remove()
    except OSError as error:  # what is left is looked at again by the next broker
        log.warning("%s is left behind: %s", files.path, error.strerror)
