"""What a sender is told when its request ends: once, to the right session, and with nothing started by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.clock import awake_clock
from broker.deliveries import Attempt, Delivery, Event, Evidence, IllegalStepError, Kind, State
from broker.replies import (
    FLAG_CONFIRMED,
    FLAG_FROM_TRANSCRIPT,
    FLAG_INTERIM,
    FLAG_RECOVERED,
    FLAG_STATUS_ONLY,
    FLAG_UNDELIVERED,
    PREVIEW,
    Replies,
)
from tests.unit.engine import Engine, engine

TOKEN = "req_1700000000000_abcdef"
OTHER_TOKEN = "req_1700000000001_fedcba"


class Desk:
    """Replies over a real book; a request from Codex thread t1 to Claude session s1 that has been taken."""

    def __init__(self, made: Engine) -> None:
        self.made = made
        self.live = True
        self.carried: list[Delivery] = []
        self.replies = Replies(made.book, self._way_back, self.carried.append)
        self.attempt: Attempt
        self.asked: list[tuple[str, bool, bool]] = []
        """What the way back was asked for: the sender's store, and whether panels and doors count."""

    async def _way_back(self, agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str:
        self.asked.append((store, panels, doors))
        return "panel" if self.live and (agent, session) == ("codex", "t1") else ""

    async def request(self, **fields: Any) -> Delivery:
        fields = {"sender_agent": "codex", "sender_session": "t1", "sender_cwd": "/sender", "cwd": "/target", **fields}
        return await self.made.queued(**fields)

    async def taken(self, **fields: Any) -> Delivery:
        queued = await self.request(**fields)
        self.attempt = Attempt("att_1", queued.id, "1@1", "", "/s", "s1", 1)
        delivering = await self.made.book.apply(queued, Event.HAND_OVER, attempt=self.attempt)
        self.attempt = replace(self.attempt, evidence=Evidence.TAKEN)
        return await self.made.book.apply(delivering, Event.TAKEN, attempt=self.attempt, handed_over=True)

    def row(self, identifier: str) -> Delivery:
        found = self.made.store.delivery(identifier)
        assert found is not None
        return found

    def returned(self) -> tuple[Delivery, str]:
        """The one message that went back, and its text."""
        (message,) = self.carried
        assert self.row(message.id) == message
        body = self.made.store.body(message.id)
        assert body is not None
        return message, body

    def children(self, request: Delivery) -> list[Delivery]:
        return [row for row in self.made.store.recent_deliveries(99) if row.parent == request.id]


def story(path: Path, told: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with engine(path) as made:
            await told(Desk(made))

    asyncio.run(run())


async def somewhere(agent: str, store: str, session: str, *, panels: bool, doors: bool) -> str:
    del agent, store, session, panels, doors
    return "panel"


# answers


@pytest.mark.requirement("DE-40", "DE-42", "DE-45", "DE-12")
def test_an_answer_goes_back_to_the_session_that_asked(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken(hop=2, max_hops=4)
        closed = replace(desk.attempt, open=False, evidence=Evidence.ANSWERED)
        ended = await desk.replies.answered(request, f"Done.\n{TOKEN}", attempt=closed)
        message, body = desk.returned()
        assert (ended.state, ended.return_delivery) == (State.DELIVERED, message.id)
        assert set(ended.flags) == {FLAG_CONFIRMED}
        assert ended.reply_preview == "Done."
        assert desk.made.store.attempts_of(request.id) == [closed]
        assert (message.kind, message.state, message.parent) == (Kind.REPLY, State.QUEUED, request.id)
        assert message.target == ("codex", "t1", "")
        assert (message.sender_agent, message.sender_session) == ("claude", "s1")
        assert (message.conversation, message.hop) == (request.conversation, request.hop)
        assert (message.cwd, message.sender_cwd) == ("/sender", "/target")
        assert message.token == "", "nobody answers a reply"
        assert message.key not in ("", request.key)
        assert message.summary == "Done."
        assert "\n\nDone.\n\n" in body
        assert TOKEN not in body
        assert "possibly interim" not in body

    story(tmp_path, told)


@pytest.mark.requirement("DE-40", "DE-50")
def test_the_way_back_spends_no_hop(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken()
        before = desk.made.store.conversation(request.conversation)
        await desk.replies.answered(request, TOKEN, attempt=None)
        assert desk.made.store.conversation(request.conversation) == before == (1, 1000)

    story(tmp_path, told)


@pytest.mark.requirement("DE-12", "DE-11")
@pytest.mark.parametrize(
    "answer", ["I'll look.", f"{TOKEN} is what I work on.\nMore later.", f"Done.\n{OTHER_TOKEN}", f"Done.\n{TOKEN[:-1]}"]
)
def test_an_answer_that_does_not_close_with_the_token_is_relayed_as_possibly_interim(tmp_path: Path, answer: str) -> None:
    async def told(desk: Desk) -> None:
        ended = await desk.replies.answered(await desk.taken(), answer, attempt=None)
        assert set(ended.flags) == {FLAG_INTERIM}
        _, body = desk.returned()
        assert "NO REQUEST ID on the last line: possibly interim\n" in body
        assert answer in body

    story(tmp_path, told)


@pytest.mark.requirement("DE-10")
@pytest.mark.parametrize("answer", ["Just this.", f"Quoting {OTHER_TOKEN}"])
def test_the_answer_to_raw_is_never_marked_interim(tmp_path: Path, answer: str) -> None:
    async def told(desk: Desk) -> None:
        ended = await desk.replies.answered(await desk.taken(raw=True), answer, attempt=None)
        assert ended.flags == ()
        assert "interim" not in desk.returned()[1]

    story(tmp_path, told)


@pytest.mark.requirement("DE-11", "DE-33")
def test_how_the_answer_was_come_by_is_said(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        ended = await desk.replies.answered(
            await desk.taken(), f"Done.\n{TOKEN}", attempt=None, recovered="the session ended", by_transcript=True
        )
        assert set(ended.flags) == {FLAG_CONFIRMED, FLAG_FROM_TRANSCRIPT, FLAG_RECOVERED}
        _, body = desk.returned()
        assert "RECOVERED, NOT RECEIVED" in body
        assert "transport failure: the session ended" in body

    story(tmp_path, told)


@pytest.mark.requirement("DE-23")
def test_the_record_keeps_a_preview_of_an_answer_and_the_message_all_of_it(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        answer = "\x1b[1m" + "é" * 5000
        ended = await desk.replies.answered(await desk.taken(), answer, attempt=None)
        assert ended.reply_preview == ("[1m" + "é" * 5000)[:PREVIEW]
        assert answer in desk.returned()[1]

    story(tmp_path, told)


@pytest.mark.requirement("DE-40")
def test_half_a_character_does_not_cost_the_answer(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        ended = await desk.replies.answered(await desk.taken(), "cut \ud83d", attempt=None)
        assert ended.state is State.DELIVERED
        assert "cut \ufffd" in desk.returned()[1]

    story(tmp_path, told)


@pytest.mark.requirement("DE-05", "DE-11", "DE-41")
@pytest.mark.parametrize(("sender", "cut"), [("codex", True), ("claude", False)])
def test_an_answer_is_no_longer_than_its_reader_takes(tmp_path: Path, sender: str, *, cut: bool) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken(sender_agent=sender)
        desk.replies = Replies(desk.made.book, somewhere, desk.carried.append)
        ended = await desk.replies.answered(request, f"{'words ' * 200_000}\n{TOKEN}", attempt=None)
        assert ended.state is State.DELIVERED
        _, body = desk.returned()
        assert ("CUT: " in body) is cut
        assert len(body) in range((1 << 20) - 2, (1 << 20) + 1) if cut else len(body) > 1_200_000
        assert (f'delivery_id "{request.id}"' in body) is cut

    story(tmp_path, told)


# the way back


@pytest.mark.requirement("LD-05", "LD-07")
@pytest.mark.parametrize(("given", "doors"), [({}, True), ({"CROSS_AGENT_LIVE_DOORS": "off"}, False)])
def test_the_way_back_is_looked_for_where_the_sender_keeps_its_sessions(
    tmp_path: Path, given: dict[str, str], *, doors: bool
) -> None:
    """By the same doors that its request may have used."""

    async def told(desk: Desk) -> None:
        request = await desk.taken(sender_store="/h/codex", store="/h/claude", settings=given)
        await desk.replies.answered(request, TOKEN, attempt=None)
        assert desk.asked == [("/h/codex", True, doors)]
        message, _ = desk.returned()
        assert message.store == "/h/codex"

    story(tmp_path, told)


# no way back


@pytest.mark.requirement("DE-41", "DE-44")
@pytest.mark.parametrize(("sender", "live"), [("t1", False), ("", True), ("t2", True)])
def test_without_a_live_session_the_answer_stays_with_the_record(tmp_path: Path, sender: str, live: bool) -> None:
    async def told(desk: Desk) -> None:
        desk.live = live
        request = await desk.taken(sender_session=sender)
        ended = await desk.replies.answered(request, f"Done.\n{TOKEN}", attempt=None)
        assert (ended.state, ended.return_delivery, ended.reply_preview) == (State.DELIVERED, "", "Done.")
        assert FLAG_STATUS_ONLY in ended.flags
        assert desk.carried == []
        assert desk.children(request) == []

    story(tmp_path, told)


@pytest.mark.requirement("DE-41")
def test_a_reply_that_could_not_be_delivered_leaves_its_request_with_the_record(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken()
        await desk.replies.answered(request, f"Done.\n{TOKEN}", attempt=None)
        message, _ = desk.returned()
        failed = await desk.replies.failed(message, Event.REFUSED, "panel_closed", "it was closed", attempt=None)
        assert failed.state is State.FAILED
        assert FLAG_UNDELIVERED in failed.flags
        after = desk.row(request.id)
        assert after.state is State.DELIVERED
        assert set(after.flags) == {FLAG_CONFIRMED, FLAG_STATUS_ONLY}
        assert desk.children(message) == [], "nobody is told of that"
        assert desk.children(request) == [failed]

    story(tmp_path, told)


# failures

OUTCOMES: dict[str, tuple[Event, State, bool, bool, str]] = {
    "nobody there": (Event.REFUSED, State.FAILED, True, True, "NOT DELIVERED: it is safe to send it again"),
    "too late": (Event.EXPIRED, State.FAILED, True, True, "NOT DELIVERED: it is safe to send it again"),
    "no answer": (Event.ENDED, State.FAILED, False, False, "HANDED OVER, NO ANSWER"),
    "nobody can tell": (Event.UNPROVEN, State.UNCERTAIN, False, False, "UNCERTAIN whether it was handed over: not safe"),
}


@pytest.mark.requirement("DE-11", "DE-31", "DE-41")
@pytest.mark.parametrize(("event", "state", "undelivered", "safe", "says"), OUTCOMES.values(), ids=OUTCOMES)
def test_a_failure_says_whether_it_may_be_sent_again(
    tmp_path: Path, event: Event, state: State, undelivered: bool, safe: bool, says: str
) -> None:
    async def told(desk: Desk) -> None:
        request = await (desk.request() if event is Event.REFUSED else desk.taken())
        ended = await desk.replies.failed(request, event, "a_code", "for a reason", attempt=None)
        assert (ended.state, ended.error_code, ended.error) == (state, "a_code", "for a reason")
        assert (FLAG_UNDELIVERED in ended.flags) is undelivered
        assert ended.safe_to_resend is safe
        message, body = desk.returned()
        assert (message.kind, message.target, message.token) == (Kind.NOTICE, ("codex", "t1", ""), "")
        assert ended.return_delivery == message.id
        assert says in body
        assert "\n\nfor a reason\n\n" in body

    story(tmp_path, told)


@pytest.mark.requirement("DE-46")
@pytest.mark.parametrize("live", [True, False])
def test_a_failure_is_told_once_and_by_the_ways_of_an_answer(tmp_path: Path, live: bool) -> None:
    async def told(desk: Desk) -> None:
        desk.live = live
        request = await desk.taken()
        ended = await desk.replies.failed(request, Event.ENDED, "no_answer", "for a reason", attempt=None)
        assert ended.error == "for a reason"
        assert (FLAG_STATUS_ONLY in ended.flags) is not live
        assert [message.kind for message in desk.carried] == [Kind.NOTICE] * live
        with pytest.raises(IllegalStepError):
            await desk.replies.failed(ended, Event.ENDED, "no_answer", "for a reason", attempt=None)
        for message in list(desk.carried):
            await desk.replies.failed(message, Event.EXPIRED, "peer_busy", "it was busy", attempt=None)
        assert len(desk.carried) == live, "nobody is told of a notice that failed"
        assert FLAG_STATUS_ONLY in desk.row(request.id).flags

    story(tmp_path, told)


@pytest.mark.requirement("DE-43", "DE-34", "DE-12")
@pytest.mark.parametrize("recovered", ["", "the session ended"])
@pytest.mark.parametrize("known", [True, False])
def test_an_answer_that_closes_with_another_id_is_never_this_ones(tmp_path: Path, recovered: str, known: bool) -> None:
    """An id that nobody gave this session may be a slip; after a broken transport nobody has seen whose turn it was."""

    async def told(desk: Desk) -> None:
        other = await desk.request(token=OTHER_TOKEN, key="k2", session="s1" if known else "s2")
        ended = await desk.replies.answered(await desk.taken(), f"Done.\n{OTHER_TOKEN}", attempt=None, recovered=recovered)
        relayed = not known and not recovered
        assert ended.state is (State.DELIVERED if relayed else State.FAILED)
        message, body = desk.returned()
        assert message.kind is (Kind.REPLY if relayed else Kind.NOTICE)
        assert ("Done." in body) is relayed
        assert (other.id in ended.error) is known

    story(tmp_path, told)


# once


@pytest.mark.requirement("DE-20", "DE-40")
@pytest.mark.parametrize("second", ["answered", "failed"])
def test_a_request_ends_once(tmp_path: Path, second: str) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken()
        ended = await desk.replies.answered(request, f"Done.\n{TOKEN}", attempt=None)
        for stale in (ended, request):  # as it is now, and as somebody saw it before
            with pytest.raises((IllegalStepError, LookupError)):
                if second == "answered":
                    await desk.replies.answered(stale, f"Again.\n{TOKEN}", attempt=None)
                else:
                    await desk.replies.failed(stale, Event.ENDED, "no_answer", "why", attempt=None)
        assert desk.row(request.id) == ended
        assert len(desk.children(request)) == len(desk.carried) == 1

    story(tmp_path, told)


@pytest.mark.requirement("DE-20", "DE-40")
def test_there_is_no_end_without_its_reply_and_no_reply_without_the_end(tmp_path: Path) -> None:
    """Both are one transaction: where the reply can't be recorded, the request has not ended (crash table, row 10)."""

    async def told(desk: Desk) -> None:
        request = await desk.taken()
        rival = replace(request, id="dlv_rival", kind=Kind.REPLY, parent=request.id, request_key="")
        await desk.made.store.write(lambda transaction: transaction.add_delivery(rival, "x"))
        with pytest.raises(Exception, match="UNIQUE"):
            await desk.replies.answered(request, f"Done.\n{TOKEN}", attempt=None)
        assert desk.row(request.id).state is State.AWAITING
        assert desk.made.book.delivery(request.id) == request
        assert desk.carried == []

    story(tmp_path, told)


# slow turns


@pytest.mark.requirement("DE-30", "DE-45")
def test_a_slow_turn_is_told_once_and_goes_on(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken()
        await desk.replies.still_working(request, "the peer is at work on it")
        message, body = desk.returned()
        assert (message.kind, message.target, message.token) == (Kind.PROGRESS, ("codex", "t1", ""), "")
        assert "PROGRESS (INFO)" in body
        again = desk.row(request.id)
        assert (again.state, again.progress_delivery) == (State.AWAITING, message.id)
        await desk.replies.still_working(again, "still")
        assert len(desk.carried) == 1
        ended = await desk.replies.answered(again, f"Done.\n{TOKEN}", attempt=None)
        assert ended.progress_delivery == message.id
        assert ended.progress_note == again.progress_note != ""
        assert {child.kind for child in desk.children(request)} == {Kind.PROGRESS, Kind.REPLY}
        assert desk.replies.is_pointless(message) and not desk.replies.is_pointless(desk.carried[-1])

    story(tmp_path, told)


@pytest.mark.requirement("DE-30")
def test_of_a_slow_turn_a_busy_sender_finds_a_note_on_the_record(tmp_path: Path) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken()
        await desk.replies.still_working(request, "the peer is at work on it", to_sender=False)
        noted = desk.row(request.id)
        assert noted.progress_note == "after 0 min there is no answer yet: the peer is at work on it"
        assert (noted.progress_delivery, desk.carried) == ("", [])
        await desk.replies.still_working(noted, "still")
        assert desk.carried == [], "its time has passed"

    story(tmp_path, told)


@pytest.mark.requirement("DE-31", "DE-54")
@pytest.mark.parametrize(("patience", "seconds"), [("", 3600), ("1", 600), ("7200", 7200)])
def test_a_busy_sender_is_waited_for_as_long_as_a_busy_peer(tmp_path: Path, patience: str, seconds: float) -> None:
    async def told(desk: Desk) -> None:
        request = await desk.taken(settings={"CROSS_AGENT_PANEL_PATIENCE": patience})
        await desk.replies.answered(request, TOKEN, attempt=None)
        left = desk.returned()[0].deadline - awake_clock()
        assert seconds - 10 < left <= seconds

    story(tmp_path, told)
