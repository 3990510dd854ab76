"""Grok's shared leader: whether it has a session, and each conversation with it about that (1.0.41)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.processes import ProcessId
from shims.door import Letter, Opening, Outcome, Said, Shut, Talk, Way
from shims.grok import leader
from shims.grok.leader import DOOR, Asking, Prompting, TakingBack
from tests.unit.spoken import Spoken

SESSION, KEY = "01a22cf3-742a-7fdb-bc3e-425791269f1b", "dlv_0123456789ab"
LEADER, TERMINAL = ProcessId(7, 7), ProcessId(8, 8)
OPENING = Opening(LEADER, Way.PROGRAM, argv=("/opt/grok", "agent", "--leader", "stdio"))


def prompting(text: str = "please") -> Prompting:
    return Prompting(OPENING, Letter(SESSION, KEY, text))


def changed(*waiting: object, running: object = None, session: str = SESSION) -> dict[str, Any]:
    entries = [{"id": one, "position": number} for number, one in enumerate(waiting)]
    return {
        "method": "_x.ai/queue/changed",
        "params": {"sessionId": session, "entries": entries, "runningPromptId": running},
    }


def chunk(prompt: object = KEY, *, inner: bool = False, session: str = SESSION) -> dict[str, Any]:
    meta = {"_meta": {"promptId": prompt}}
    update = {"sessionUpdate": "agent_message_chunk", **(meta if inner else {})}
    return {"method": "session/update", "params": {"sessionId": session, "update": update, **({} if inner else meta)}}


NOISE: tuple[dict[str, Any] | bytes, ...] = (
    {"id": 7, "method": "session/request_permission", "params": {"sessionId": SESSION, "options": []}},
    {"id": "xagent-list", "method": "fs/read_text_file", "params": {}},
    {"id": "xagent-99", "result": {}},
    {"id": "list", "result": {"result": {"sessions": []}}},
    {"id": 3, "error": {"code": -1, "message": "somebody else's"}},
    {"id": None, "error": {"message": "unknown session id"}},
    changed(KEY, session="another"),
    chunk(session="another"),
    chunk("another prompt"),
    {"method": "_x.ai/queue/changed", "params": None},
    {"method": "session/update", "params": {"sessionId": SESSION, "update": [], "_meta": {"promptId": [KEY]}}},
    {"method": "_x.ai/queue/changed", "params": {"sessionId": "another", "entries": [{"id": {}}], "runningPromptId": []}},
    {},
    b"",
    b"{",
    b"[1]",
    b"\xff\xfe",
)
"""What a leader says to every client, or about other sessions."""


class LeaderTalk(Spoken):
    envelope: ClassVar = {"jsonrpc": "2.0"}

    def lists(self, *sessions: dict[str, Any]) -> Said:
        return self.answers({"result": {"sessions": list(sessions)}})

    def there(self, **facts: Any) -> Said:
        """Introduced, and told that the session is there."""
        self.answers({"protocolVersion": 1})
        return self.lists({"sessionId": "another", "resident": True}, {"sessionId": SESSION, "resident": True, **facts})


TALKS: dict[str, Callable[[], Talk]] = {
    "prompting": prompting,
    "taking back": lambda: TakingBack(SESSION, KEY),
    "asking": lambda: Asking(SESSION),
}
each_talk = pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)


# whether it has the session


def looking(monkeypatch: pytest.MonkeyPatch, program: str | None, **arguments: list[str]) -> None:
    lines = {7: arguments.get("leader", ["grok", "agent", "leader"]), 8: ["grok"]}
    monkeypatch.setattr(leader, "executable", lambda _: program)
    monkeypatch.setattr(leader, "argv", lambda pid: lines[pid])


@pytest.mark.requirement("LD-04")
@pytest.mark.parametrize(
    ("more", "place"),
    [
        ([], ()),
        (["--no-exit-on-disconnect"], ()),
        (["--leader-socket", "/x/leader.sock"], ("--leader-socket", "/x/leader.sock")),
        (["--leader-socket=/x/leader.sock"], ("--leader-socket=/x/leader.sock",)),
        (["--leader-socket"], ()),
    ],
)
def test_it_is_joined_where_it_listens(monkeypatch: pytest.MonkeyPatch, more: list[str], place: tuple[str, ...]) -> None:
    looking(monkeypatch, "/opt/grok", leader=["grok", "agent", "leader", *more])
    found = leader.look("/h", SESSION, [TERMINAL, LEADER])
    assert found == Opening(LEADER, Way.PROGRAM, argv=("/opt/grok", "agent", "--leader", *place, "stdio"))


@pytest.mark.requirement("LD-04", "LD-01")
def test_without_a_leader_it_is_said_how_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    looking(monkeypatch, "/opt/grok")
    for holders in ([TERMINAL], []):
        found = leader.look("/h", SESSION, holders)
        assert isinstance(found, Shut)
        assert "none has this one" in found.reason
        assert "`use_leader = true` under [cli]" in found.remedy
    looking(monkeypatch, None)
    assert isinstance(leader.look("/h", SESSION, [LEADER]), Shut)


# every conversation


@pytest.mark.requirement("LD-04")
@each_talk
def test_nothing_is_asked_of_a_session_before_it_is_seen_there(talk: Callable[[], Talk]) -> None:
    spoken = LeaderTalk(talk())
    spoken.answers({})
    assert spoken.methods == ["initialize", "_x.ai/sessions/list"]
    assert not spoken.said.carries


@pytest.mark.requirement("LD-04")
@each_talk
@pytest.mark.parametrize(
    "listed",
    [
        [],
        [{"sessionId": SESSION, "resident": False}],
        [{"sessionId": SESSION}],
        [{"sessionId": SESSION, "resident": "yes"}],
        [{"sessionId": "another", "resident": True}],
        [None, 7, []],
    ],
)
def test_a_session_that_it_has_not_is_elsewhere(talk: Callable[[], Talk], listed: list[Any]) -> None:
    spoken = LeaderTalk(talk())
    spoken.answers({})
    said = spoken.lists(*listed)
    assert (said.outcome, said.code) == (Outcome.REFUSED, "elsewhere")
    assert len(spoken.sent) == 2, "no word has left"
    assert "does not have it open" in DOOR.explains["elsewhere"]


@pytest.mark.requirement("LD-04")
@each_talk
@pytest.mark.parametrize("answer", [None, {}, {"result": None}, {"result": {"sessions": {}}}, [], 7])
def test_an_answer_of_another_shape_has_no_session(talk: Callable[[], Talk], answer: object) -> None:
    spoken = LeaderTalk(talk())
    spoken.answers({})
    assert spoken.answers(answer).code == "elsewhere"


@pytest.mark.requirement("LD-04")
@each_talk
@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "unknown session id"}, "elsewhere"),
        ({"message": "Internal error", "data": "unknown session id: x"}, "elsewhere"),
        ({"message": "no"}, "agent_refused"),
        (None, "agent_refused"),
        ([], "agent_refused"),
    ],
)
def test_an_error_ends_it(talk: Callable[[], Talk], error: object, code: str) -> None:
    for steps in (0, 1):
        spoken = LeaderTalk(talk())
        for _ in range(steps):
            spoken.answers({})
        said = spoken.hears({"id": spoken.sent[-1]["id"], "error": error})
        assert (said.outcome, said.code) == (Outcome.REFUSED, code)


@pytest.mark.requirement("LD-04", "LD-06")
@each_talk
@given(data=st.data())
def test_what_is_said_to_others_changes_nothing(talk: Callable[[], Talk], data: st.DataObject) -> None:
    """A request for permission is answered by the person there, and an error that is not ours is no refusal."""
    spoken = LeaderTalk(talk())
    for step in (lambda: spoken.answers({}), lambda: spoken.lists({"sessionId": SESSION, "resident": True}), lambda: None):
        before = len(spoken.sent)
        if spoken.said.outcome is Outcome.OPEN:
            for message in data.draw(st.lists(st.sampled_from(NOISE), max_size=4)):
                assert spoken.hears(message) == Said()
        assert len(spoken.sent) == before
        step()


@pytest.mark.requirement("LD-04", "DE-20")
@each_talk
def test_an_answer_counts_once_and_only_when_it_was_asked_for(talk: Callable[[], Talk]) -> None:
    """Or the words would go in twice."""
    spoken = LeaderTalk(talk())
    sessions = {"result": {"sessions": [{"sessionId": SESSION, "resident": True}]}}
    assert spoken.hears({"id": "xagent-list", "result": sessions}) == Said(), "nothing was asked yet"
    assert spoken.hears({"id": "xagent-prompt", "result": {}}) == Said()
    spoken.there()
    sent = len(spoken.sent)
    for step, result in (("initialize", {}), ("list", sessions)):
        assert spoken.hears({"id": f"xagent-{step}", "result": result}) == Said()
    assert len(spoken.sent) == sent


# prompting


@pytest.mark.requirement("LD-04")
@given(st.text())
def test_the_words_go_in_under_the_key(text: str) -> None:
    spoken = LeaderTalk(prompting(text))
    said = spoken.there()
    assert said.carries
    assert said.outcome is Outcome.OPEN
    assert spoken.methods[-1] == "session/prompt", "without a session/load"
    assert spoken.sent[-1]["params"] == {
        "sessionId": SESSION,
        "prompt": [{"type": "text", "text": text.encode(errors="replace").decode()}],
        "_meta": {"promptId": KEY},
    }


@pytest.mark.requirement("LD-04", "LD-06")
@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        (changed("another", KEY), Outcome.SAID),  # it waits there
        (changed(KEY, running="another"), Outcome.SAID),
        (changed(running=KEY), Outcome.ACCEPTED),
        (changed("another", running=KEY), Outcome.ACCEPTED),
        (chunk(), Outcome.ACCEPTED),
        (chunk(inner=True), Outcome.ACCEPTED),
        ({"id": "xagent-prompt", "result": {"stopReason": "end_turn"}}, Outcome.ACCEPTED),
        (changed("another"), Outcome.OPEN),
        (changed(running="another"), Outcome.OPEN),
        (changed({}, [KEY], running=[KEY]), Outcome.OPEN),
        (changed(KEY, session="another"), Outcome.OPEN),
    ],
)
def test_it_is_in_when_the_leader_shows_it(shown: dict[str, Any], outcome: Outcome) -> None:
    spoken = LeaderTalk(prompting())
    spoken.there()
    assert spoken.hears(shown).outcome is outcome


@pytest.mark.requirement("LD-04", "LD-06")
def test_a_prompt_that_is_refused_was_not_let_in() -> None:
    spoken = LeaderTalk(prompting())
    spoken.there()
    said = spoken.hears({"id": "xagent-prompt", "error": {"message": "unknown session id"}})
    assert (said.outcome, said.code) == (Outcome.REFUSED, "elsewhere")


# taking back


@pytest.mark.requirement("LD-04", "DE-26")
@pytest.mark.parametrize(
    ("shown", "outcome"),
    [
        (changed(), Outcome.ACCEPTED),
        (changed("another", running="third"), Outcome.ACCEPTED),
        (changed(running=KEY), Outcome.REFUSED),
        (changed(session="another"), Outcome.OPEN),
        (chunk(), Outcome.OPEN),
    ],
)
def test_what_waits_is_taken_back_when_the_queue_shows_it(shown: dict[str, Any], outcome: Outcome) -> None:
    spoken = LeaderTalk(TakingBack(SESSION, KEY))
    said = spoken.there()
    assert not said.carries
    assert spoken.sent[-1]["method"] == "_x.ai/queue/remove"
    assert spoken.sent[-1]["params"] == {"sessionId": SESSION, "id": KEY}
    assert "id" not in spoken.sent[-1], "as a request it is unknown there"
    assert spoken.hears(changed("another", KEY)) == Said(), "from before the leader has heard us"
    assert spoken.hears(shown).outcome is outcome


@pytest.mark.requirement("LD-04", "DE-26")
def test_a_queue_from_before_we_asked_proves_nothing() -> None:
    spoken = LeaderTalk(TakingBack(SESSION, KEY))
    assert spoken.hears(changed()) == Said()
    spoken.answers({})
    assert spoken.hears(changed()) == Said()


# asking


@pytest.mark.requirement("LD-04", "DE-03")
@pytest.mark.parametrize(
    ("activity", "found"),
    [
        ("idle", {"busy": False}),
        (None, {"busy": False}),
        ("", {"busy": False}),
        ("working", {"busy": True}),
        ("awaiting_permission", {"busy": True, "waits_for": "awaiting_permission"}),
    ],
)
def test_what_stands_in_its_way(activity: object, found: dict[str, object]) -> None:
    spoken = LeaderTalk(Asking(SESSION))
    said = spoken.there(activity=activity)
    assert (said.outcome, said.found) == (Outcome.ACCEPTED, found)
