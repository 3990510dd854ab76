"""The door route: what leads to a session, what a conversation through a door comes to, and whose news counts.

The agent is made up, and so are its conversations; what real ones say is with each agent's door.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from broker.deliveries import Attempt, Delivery, Event, Evidence
from broker.doors.child import Children
from broker.doors.exchange import DoorError, Hooks
from broker.failpoints import POINTS
from broker.processes import ProcessId, identify
from broker.routes import Held, Open, Reach, Unreachable
from broker.routes import door as door_module
from broker.routes.door import DoorRoute
from broker.turns.started import ROUTE as HEADLESS
from broker.wire import StageName, StageReport
from shims.agent import Agent, Found, Latest, Record
from shims.door import Door, Letter, News, Notice, Opening, Outcome, Said, Shut, Way
from tests.unit.engine import Engine, engine
from tests.unit.made_up import CLAUDE

HOLDER, STRANGER = ProcessId(7, 7), ProcessId(8, 8)
SHUT = Shut("it has no inbox", "Update it.")
OPENING = Opening(HOLDER, Way.SOCKET, socket="/s", listener=HOLDER, busy=True, waits_for="approval", since=5.0)
PROGRAM = Opening(HOLDER, Way.PROGRAM, argv=("/opt/agent", "serve"))


@dataclass
class Talking:
    """One conversation: what it was about."""

    about: str
    letter: Letter | None = None

    def begin(self) -> Said:
        return Said()

    def heard(self, message: bytes) -> Said:
        del message
        return Said()


class Reporting:
    """The carrier, as far as the route knows it."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, StageName, str]] = []
        self.notes: list[tuple[str, str]] = []

    def staged(self, report: StageReport, seen: asyncio.Future[None]) -> None:
        del seen
        self.stages.append((report.attempt, report.stage, report.code))

    async def held_by_peer(self, attempt: str, note: str) -> None:
        self.notes.append((attempt, note))


class Settling:
    def __init__(self) -> None:
        self.told: list[str] = []

    def handed_in(self, attempt: Attempt) -> None:
        self.told.append(f"handed in {attempt.id}")

    def let_go(self, attempt: Attempt) -> None:
        self.told.append(f"let go {attempt.id}")


@dataclass
class Records:
    found: list[Found] = field(default_factory=lambda: [Found.ABSENT])
    """What each look finds, the last one for ever."""
    works: bool = False

    async def record(self, *question: str) -> Record:
        del question
        return Record(self.found.pop(0) if len(self.found) > 1 else self.found[0])

    async def latest(self, *question: object) -> Latest:
        del question
        return Latest(open=self.works)


class House:
    """A route to the sessions of an agent that a test makes up."""

    def __init__(self, made: Engine, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = made
        self.holders: list[ProcessId] = [HOLDER]
        self.looks: dict[str, Opening | Shut] = {"door": OPENING}
        """By the doors' names, the better ones first."""
        self.asks = False
        self.takes_back = True
        self.lets_go = False
        self.held_back = False
        self.answer: Said | DoorError = Said(outcome=Outcome.SAID)
        self.talks: list[Talking] = []
        self.started: list[tuple[Mapping[str, str], str]] = []
        """Environments and directories of programs."""
        self.passed: list[str] = []
        """Fail points."""
        self.records = Records()
        self.reporting, self.settling = Reporting(), Settling()
        monkeypatch.setattr(door_module, "agent", lambda _: self.agent())
        monkeypatch.setattr(door_module, "converse", self._converse)
        monkeypatch.setattr(door_module, "fail_point", self.passed.append)
        self.route = DoorRoute(str(home), made.book, Children(lambda *_: None), self.records)  # type: ignore[arg-type]
        self.route.attach(self.reporting, self.settling)

    def agent(self) -> Agent:
        doors = tuple(self._door(name) for name in self.looks)
        return replace(CLAUDE, product="Made Up", holders=lambda *_: self.holders, doors=doors)

    def _door(self, name: str) -> Door:
        def look(store: str, session: str, holders: Sequence[ProcessId]) -> Opening | Shut:
            assert (store, session) == ("/h", "s1")
            assert list(holders) in (self.holders, [HOLDER])
            return self.looks[name]

        return Door(
            name,
            look,
            give=lambda _, letter: self._talk("give", letter),
            take_back=(lambda session, key: self._talk(f"take back {session} {key}")) if self.takes_back else None,
            ask=(lambda session: self._talk(f"ask {session}")) if self.asks else None,
            explains={"held": "a person is asked", "elsewhere": "it is not there"},
            held_back=lambda *_: self.held_back,
            lets_go=self.lets_go,
        )

    def _talk(self, about: str, letter: Letter | None = None) -> Talking:
        self.talks.append(Talking(about, letter))
        return self.talks[-1]

    async def _converse(
        self, opening: Opening, talk: Talking, environment: Mapping[str, str], cwd: str, hooks: Hooks | None = None
    ) -> Said:
        del talk
        if opening.argv:
            self.started.append((environment, cwd))
        carried = not isinstance(self.answer, DoorError) or self.answer.carried
        if hooks is not None and carried:
            hooks.before()
            hooks.after()
        if isinstance(self.answer, DoorError):
            raise self.answer
        return self.answer

    async def attempt(self, *, key: str = "k1", session: str = "s1", **fields: Any) -> Attempt:
        """A message that is on its way through the door."""
        queued = await self.made.queued(store="/h", key=key, session=session)
        fields = {"instance": str(HOLDER), "child": str(HOLDER), "route": "door", **fields}
        attempt = Attempt(id=f"att_{key}", delivery=queued.id, store="/h", session=session, generation=1, **fields)
        await self.made.book.apply(queued, Event.HAND_OVER, attempt=attempt)
        return attempt

    def delivery(self, attempt: Attempt) -> Delivery:
        found = self.made.book.delivery(attempt.delivery)
        assert found is not None
        return found

    async def hands_over(self, attempt: Attempt) -> bool:
        reach = Reach("door", str(HOLDER), str(HOLDER), "/h")
        gone_out = await self.route.hand_over(self.delivery(attempt), attempt, reach, "please")
        await quiet()
        return gone_out


async def quiet() -> None:
    """Waits until nothing is under way any more."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        done, _ = await asyncio.wait(others, timeout=10)
        assert done


Told = Callable[[House], Awaitable[None]]


@pytest.fixture
def story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[Told], None]:
    """Runs what a test tells in a house of its own."""

    def play(told: Told) -> None:
        async def run() -> None:
            async with engine(tmp_path) as made:
                house = House(made, tmp_path, monkeypatch)
                try:
                    await told(house)
                finally:
                    house.route.close()

        asyncio.run(run())
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == [], "no piece of work failed"

    return play


Story = Callable[[Told], None]


# what leads to a session


@pytest.mark.requirement("LD-01")
def test_nobody_has_it(story: Story) -> None:
    async def told(house: House) -> None:
        house.holders = []
        assert await house.route.find("claude", "/h", "s1") is None
        reach = await house.route.reach(house.delivery(await house.attempt()), 0.0)
        assert isinstance(reach, Unreachable) and reach.code == "not_held"
        house.holders = [HOLDER]
        assert await house.route.find("claude", "/h", "") is None, "a conversation that is yet to be opened"

    story(told)


@pytest.mark.requirement("LD-01")
def test_a_turn_of_ours_is_nobody_who_has_it(story: Story) -> None:
    """Its process holds the session, and ends with it."""

    async def told(house: House) -> None:
        attempt = await house.attempt(instance="", child="", route=HEADLESS)
        assert await house.route.find("claude", "/h", "s1") is None
        await house.made.book.save_attempt(replace(attempt, open=False))
        assert isinstance(await house.route.find("claude", "/h", "s1"), Open)

    story(told)


@pytest.mark.requirement("LD-01")
@pytest.mark.parametrize(
    ("looks", "reason", "remedy"),
    [
        ({}, "Made Up has no door of its own", "Close it there"),
        ({"door": SHUT}, "it has no inbox", "Update it."),
        ({"door": Shut("a", "b"), "other": SHUT}, "it has no inbox", "Update it."),
    ],
)
def test_who_has_it_and_why_no_door_leads_in(story: Story, looks: dict[str, Opening | Shut], reason: str, remedy: str) -> None:
    async def told(house: House) -> None:
        house.looks = looks
        found = await house.route.find("claude", "/h", "s1")
        assert isinstance(found, Held)
        assert (found.process, found.reason) == (HOLDER, reason)
        assert found.remedy.startswith(remedy)
        reach = await house.route.reach(house.delivery(await house.attempt()), 0.0)
        assert reach == Unreachable("session_held", f"process 7 holds it: {reason}")

    story(told)


@pytest.mark.requirement("LD-01")
def test_the_first_door_that_is_open_is_taken(story: Story) -> None:
    async def told(house: House) -> None:
        house.looks = {"shut": SHUT, "door": OPENING, "later": OPENING}
        found = await house.route.find("claude", "/h", "s1")
        assert isinstance(found, Open)
        assert (found.door.name, found.opening) == ("door", OPENING)
        assert (found.busy, found.paused, found.waits_for, found.since) == (True, False, "approval", 5.0)
        assert house.talks == [], "its files tell all"
        reach = await house.route.reach(house.delivery(await house.attempt()), 0.0)
        assert reach == Reach("door", str(HOLDER), str(HOLDER), "/h"), "the process is instance and child"

    story(told)


@pytest.mark.requirement("LD-01", "DE-03")
@pytest.mark.parametrize(
    ("found", "works", "busy", "paused", "waits_for"),
    [
        ({"busy": False}, True, False, False, "approval"),
        ({"busy": True, "paused": True, "waits_for": "input"}, False, True, True, "input"),
        ({"paused": "yes"}, False, True, False, "approval"),  # what it does not tell is as it looks
    ],
)
def test_what_the_agent_tells_counts_more_than_its_files(
    story: Story, found: dict[str, object], works: bool, busy: bool, paused: bool, waits_for: str
) -> None:
    async def told(house: House) -> None:
        house.asks, house.records.works = True, works
        house.answer = Said(outcome=Outcome.ACCEPTED, found=found)
        opened = await house.route.find("claude", "/h", "s1")
        assert isinstance(opened, Open)
        assert (opened.busy, opened.paused, opened.waits_for) == (busy, paused, waits_for)
        assert [talk.about for talk in house.talks] == ["ask s1"]

    story(told)


@pytest.mark.requirement("LD-01", "DE-03")
@pytest.mark.parametrize("works", [True, False])
def test_whether_a_turn_runs_is_read_where_neither_tells(story: Story, *, works: bool) -> None:
    async def told(house: House) -> None:
        house.asks, house.records.works = True, works
        house.looks["door"] = replace(OPENING, busy=None)
        house.answer = Said(outcome=Outcome.ACCEPTED)
        opened = await house.route.find("claude", "/h", "s1")
        assert isinstance(opened, Open) and opened.busy is works

    story(told)


@pytest.mark.requirement("LD-01")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Said(outcome=Outcome.REFUSED, code="elsewhere"), "it is not there"),
        (Said(outcome=Outcome.REFUSED, code="another"), "another"),
        (DoorError("it gave no answer for 10 s", carried=False), "its door is there and it gave no answer for 10 s"),
    ],
)
def test_a_door_that_leads_elsewhere_or_says_nothing_is_shut(story: Story, answer: Said | DoorError, reason: str) -> None:
    async def told(house: House) -> None:
        house.asks, house.answer = True, answer
        found = await house.route.find("claude", "/h", "s1")
        assert isinstance(found, Held)
        assert found.reason == reason
        assert found.remedy

    story(told)


@pytest.mark.requirement("LD-01")
@pytest.mark.parametrize(("opening", "asked"), [(PROGRAM, False), (replace(OPENING, way=Way.WEBSOCKET), True)])
def test_nothing_is_started_only_to_look(story: Story, opening: Opening, *, asked: bool) -> None:
    async def told(house: House) -> None:
        house.asks, house.looks["door"] = True, opening
        house.answer = Said(outcome=Outcome.ACCEPTED, found={"busy": False})
        assert isinstance(await house.route.find("claude", "/h", "s1", start=False), Open)
        assert bool(house.talks) is asked

    story(told)


# the hand-over

WRITTEN, TAKEN, REJECTED = StageName.WRITTEN, StageName.TAKEN, StageName.REJECTED


@pytest.mark.requirement("LD-06", "DE-20")
@pytest.mark.parametrize(
    ("answer", "stages", "carried"),
    [
        (Said(outcome=Outcome.SAID), [(WRITTEN, "")], True),
        (Said(outcome=Outcome.ACCEPTED), [(WRITTEN, ""), (TAKEN, "")], True),
        (Said(outcome=Outcome.REFUSED, code="too_old"), [(REJECTED, "too_old")], True),
        (Said(outcome=Outcome.REFUSED), [(REJECTED, "agent_refused")], True),
        (DoorError("silence", carried=False), [(REJECTED, "door_failed")], False),
        (DoorError("silence", carried=True), [(WRITTEN, "")], True),  # what became of it, the records will tell
    ],
    ids=["said", "accepted", "refused", "refused without a word", "failed before the words left", "failed after that"],
)
def test_what_a_conversation_comes_to(
    story: Story, answer: Said | DoorError, stages: list[tuple[StageName, str]], *, carried: bool
) -> None:
    async def told(house: House) -> None:
        house.answer = answer
        attempt = await house.attempt()
        assert await house.hands_over(attempt)
        assert house.reporting.stages == [(attempt.id, *stage) for stage in stages]
        assert house.settling.told == [f"handed in {attempt.id}"], "its process is watched, whatever this comes to"
        (talk,) = house.talks
        assert talk.letter == Letter("s1", "k1", "please")
        assert house.passed == (["broker.door.before", "broker.door.after"] if carried else [])
        assert set(house.passed) <= set(POINTS)

    story(told)


@pytest.mark.requirement("LD-06", "DE-20")
def test_a_door_that_is_shut_by_then_is_no_hand_over(story: Story) -> None:
    async def told(house: House) -> None:
        house.looks["door"] = SHUT
        assert not await house.hands_over(await house.attempt())
        assert (house.talks, house.reporting.stages) == ([], [])

    story(told)


@pytest.mark.requirement("LD-03", "LD-04", "EN-13")
def test_a_program_of_the_agents_is_started_as_its_holder_was(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it needs of that environment, and nothing of ours."""
    theirs = {"HOME": "/home/them", "PATH": "/bin", "CODEX_HOME": "/h", "A_SECRET": "x"}
    kept: list[str] = []

    def variables(pid: int, wanted: Callable[[str], bool]) -> dict[str, str]:
        assert pid == HOLDER.pid
        kept.extend(name for name in theirs if wanted(name))
        return {name: theirs[name] for name in kept}

    monkeypatch.setattr(door_module, "variables", variables)
    monkeypatch.setattr(door_module, "working_directory", lambda _: "/where/they/work")

    async def told(house: House) -> None:
        house.looks["door"] = PROGRAM
        assert await house.hands_over(await house.attempt())
        ((environment, cwd),) = house.started
        assert cwd == "/where/they/work"
        assert environment.keys() == set(kept) >= {"HOME", "PATH", "CODEX_HOME"}
        assert "A_SECRET" not in environment

    story(told)


@pytest.mark.requirement("LD-03", "LD-04")
def test_a_holder_that_is_gone_leaves_an_empty_environment(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "variables", lambda *_: None)
    monkeypatch.setattr(door_module, "working_directory", lambda _: None)

    async def told(house: House) -> None:
        house.looks["door"] = PROGRAM
        assert await house.hands_over(await house.attempt())
        assert house.started == [({}, "")]

    story(told)


@pytest.mark.requirement("LD-02")
def test_where_the_agent_tells_of_it_we_listen_before_it_has_the_message(story: Story, home: Path) -> None:
    place = home / "n"
    place.mkdir(mode=0o700)

    async def told(house: House) -> None:
        house.looks["door"] = replace(OPENING, notices=str(place))
        assert await house.hands_over(await house.attempt())
        (talk,) = house.talks
        assert talk.letter is not None
        assert os.path.dirname(talk.letter.notices) == str(place)
        assert os.path.exists(talk.letter.notices)

    story(told)
    assert os.listdir(place) == [], "nothing stays behind"


# taking back


@pytest.mark.requirement("DE-26", "LD-06")
@pytest.mark.parametrize(
    ("answer", "withdrawn"),
    [
        (Said(outcome=Outcome.ACCEPTED), True),
        (Said(outcome=Outcome.REFUSED, code="not_waiting"), False),
        (Said(outcome=Outcome.SAID), False),
        (DoorError("silence", carried=False), False),
    ],
)
def test_what_waits_there_comes_back_only_when_the_agent_says_so(
    story: Story, answer: Said | DoorError, *, withdrawn: bool
) -> None:
    async def told(house: House) -> None:
        house.answer = answer
        attempt = await house.attempt()
        house.route.withdraw(attempt)
        await quiet()
        assert [talk.about for talk in house.talks] == ["take back s1 k1"]
        assert house.reporting.stages == ([(attempt.id, REJECTED, "withdrawn")] if withdrawn else [])

    story(told)


@pytest.mark.requirement("DE-26")
@pytest.mark.parametrize("why", ["it gives nothing back", "it is shut", "its process is not known"])
def test_what_cannot_be_asked_back_stays_where_it_is(story: Story, why: str) -> None:
    async def told(house: House) -> None:
        house.answer = Said(outcome=Outcome.ACCEPTED)
        house.takes_back = why != "it gives nothing back"
        if why == "it is shut":
            house.looks["door"] = SHUT
        attempt = await house.attempt(**({"instance": "x", "child": "x"} if "process" in why else {}))
        house.route.withdraw(attempt)
        await quiet()
        assert (house.talks, house.reporting.stages) == ([], [])

    story(told)


# news


@pytest.mark.requirement("LD-02", "LD-06", "LD-09")
@pytest.mark.parametrize("news", [news for news in News if news is not News.HELD])
@pytest.mark.parametrize("teller", [HOLDER, None])
def test_what_its_process_tells_ends_the_attempt(story: Story, news: News, teller: ProcessId | None) -> None:
    """Also where the kernel does not say who tells it."""

    async def told(house: House) -> None:
        attempt = await house.attempt()
        house.route._heard(Notice(("other", "k1"), news), teller)
        await quiet()
        assert house.reporting.stages == [(attempt.id, REJECTED, news.value)]

    story(told)


@pytest.mark.requirement("LD-02", "LD-09")
def test_a_message_that_a_person_is_asked_about_is_noted_and_not_ended(story: Story) -> None:
    async def told(house: House) -> None:
        attempt = await house.attempt()
        house.route._heard(Notice(("k1",), News.HELD), HOLDER)
        await quiet()
        assert house.reporting.notes == [(attempt.id, "a person is asked")]
        assert house.reporting.stages == []

    story(told)


@pytest.mark.requirement("LD-02", "LD-06")
@pytest.mark.parametrize("news", list(News))
def test_nobody_else_can_tell_what_became_of_it(story: Story, news: News, caplog: pytest.LogCaptureFixture) -> None:
    async def told(house: House) -> None:
        await house.attempt()
        house.route._heard(Notice(("k1",), news), STRANGER)
        await quiet()
        assert (house.reporting.stages, house.reporting.notes) == ([], [])
        assert "8@8 tells of an attempt of 7@7" in caplog.text

    story(told)


@pytest.mark.requirement("LD-02", "LD-06", "DE-22")
@pytest.mark.parametrize("found", [Found.OPEN, Found.ANSWERED, Found.INTERRUPTED])
@pytest.mark.parametrize("news", [News.DECLINED, News.EXPIRED, News.DROPPED, News.CROWDED])
def test_what_its_records_have_is_not_given_back(story: Story, news: News, found: Found) -> None:
    """Of two copies the second one may be dropped, as after a broker that died with the first in a socket."""

    async def told(house: House) -> None:
        house.records.found = [found]
        attempt = await house.attempt()
        house.route._heard(Notice(("k1",), news), HOLDER)
        await quiet()
        assert house.reporting.stages == [(attempt.id, TAKEN, "")]

    story(told)


@pytest.mark.requirement("DE-26", "LD-06")
def test_what_has_run_meanwhile_is_not_taken_back(story: Story) -> None:
    """A leader says of a prompt whose turn is over that it does not wait any more (1.0.41)."""

    async def told(house: House) -> None:
        house.records.found = [Found.ANSWERED]
        house.answer = Said(outcome=Outcome.ACCEPTED)
        attempt = await house.attempt()
        house.route.withdraw(attempt)
        await quiet()
        assert house.reporting.stages == [(attempt.id, TAKEN, "")]

    story(told)


@pytest.mark.requirement("LD-02")
def test_one_notice_may_be_about_several_and_nothing_else(story: Story) -> None:
    async def told(house: House) -> None:
        first, _, closed = [await house.attempt(key=key, session=f"s{key}") for key in ("k1", "k2", "k3")]
        third = await house.attempt(key="k4", session="sk4")
        await house.made.book.save_attempt(replace(closed, open=False))
        house.route._heard(Notice(("k1", "k3", "k4", "unknown"), News.CROWDED), HOLDER)
        await quiet()
        assert house.reporting.stages == [(attempt.id, REJECTED, "crowded") for attempt in (first, third)]

    story(told)


# a process that lets go of a session and lives on


@pytest.mark.requirement("LD-04", "DE-22")
@pytest.mark.parametrize(
    ("lets_go", "holders", "let_go"),
    [(True, [], True), (True, [STRANGER], True), (True, [STRANGER, HOLDER], False), (False, [], False)],
)
def test_a_session_that_was_let_go_of_is_settled(story: Story, lets_go: bool, holders: list[ProcessId], *, let_go: bool) -> None:
    async def told(house: House) -> None:
        house.lets_go = lets_go
        attempt = await house.attempt()
        house.holders = holders
        house.route.looked(attempt)
        house.route.looked(replace(attempt, open=False))
        house.route.looked(None)
        await quiet()
        assert house.settling.told == ([f"let go {attempt.id}"] if let_go else [])

    story(told)


# after a broker that is gone

NONE = Evidence.NONE


@pytest.mark.requirement("LD-06", "DE-22")
@pytest.mark.parametrize(
    ("found", "stages"),
    [
        ([Found.OPEN], [WRITTEN]),
        ([Found.ANSWERED], [WRITTEN]),
        ([Found.INTERRUPTED], [WRITTEN]),
        ([Found.WAITING], [TAKEN]),
        ([Found.ABSENT, Found.UNKNOWN, Found.ABSENT, Found.OPEN], [WRITTEN]),
    ],
)
def test_what_went_in_is_found_in_the_records(
    story: Story, monkeypatch: pytest.MonkeyPatch, found: list[Found], stages: list[StageName]
) -> None:
    monkeypatch.setattr(door_module, "_LOOK_AGAIN", 0.001)

    async def told(house: House) -> None:
        house.records.found = found
        attempt = await house.attempt(evidence=NONE)
        house.route.recover()
        await quiet()
        assert house.reporting.stages == [(attempt.id, stage, "") for stage in stages]
        assert house.settling.told == []

    story(told)


IDLE = replace(OPENING, busy=False, waits_for="")


@pytest.mark.requirement("LD-06", "DE-22")
def test_what_an_idle_session_has_not_never_went_in(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "_LOOK_AGAIN", 0.001)

    async def told(house: House) -> None:
        house.looks["door"] = IDLE
        attempt = await house.attempt(evidence=NONE)
        house.route.recover()
        await quiet()
        assert house.settling.told == [f"let go {attempt.id}"]
        assert house.reporting.stages == []

    story(told)


@pytest.mark.requirement("LD-06", "DE-22")
@pytest.mark.parametrize(
    ("look", "found", "held_back"),
    [
        (replace(IDLE, busy=True), Found.ABSENT, False),
        (replace(IDLE, waits_for="approval"), Found.ABSENT, False),
        (SHUT, Found.ABSENT, False),
        (IDLE, Found.UNKNOWN, False),
        (IDLE, Found.ABSENT, True),
    ],
    ids=["busy", "waits for a person", "shut", "its records cannot be read", "a person is asked, maybe about this one"],
)
def test_nothing_is_concluded_of_what_may_wait(
    story: Story, monkeypatch: pytest.MonkeyPatch, look: Opening | Shut, found: Found, *, held_back: bool
) -> None:
    monkeypatch.setattr(door_module, "_LOOK_AGAIN", 0.001)
    monkeypatch.setattr(door_module, "_IDLE_LOOKS", 2)

    async def told(house: House) -> None:
        house.looks["door"], house.records.found, house.held_back = look, [*[found] * 20, Found.OPEN], held_back
        attempt = await house.attempt(evidence=NONE)
        house.route.recover()
        await quiet()
        assert house.records.found == [Found.OPEN], "it was looked for all the while"
        assert house.reporting.stages == [(attempt.id, WRITTEN, "")]
        assert house.settling.told == []

    story(told)


@pytest.mark.requirement("LD-02", "LD-06")
def test_news_of_what_an_earlier_broker_handed_in_come_to_the_same_place(story: Story, home: Path) -> None:
    place = home / "n"
    place.mkdir(mode=0o700)

    async def told(house: House) -> None:
        house.looks["door"] = replace(OPENING, notices=str(place))
        await house.attempt(evidence=Evidence.WRITTEN)
        await house.attempt(key="k2", session="s2", child="9@9", route="panel")  # none of ours
        house.route.recover()
        await quiet()
        assert len(os.listdir(place)) == 1
        assert (house.reporting.stages, house.settling.told) == ([], [])

    story(told)


def test_an_attempt_is_by_door_when_its_process_is_the_agents_own() -> None:
    me = str(identify(os.getpid()))
    made = Attempt("a", "d", me, me, "/h", "s1", 1)
    assert made.by_door
    assert not replace(made, child="9@9").by_door
    assert not replace(made, instance="", child="").by_door
