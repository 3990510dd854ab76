"""Codex's queue: which process leads to it, and each conversation with an app-server about it (0.154.0, 0.171.0)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.processes import ProcessId
from shims.codex import queue
from shims.codex.queue import DOOR, Adding, Asking, TakingBack
from shims.door import Letter, Opening, Outcome, Said, Shut, Talk, Way
from tests.unit.spoken import Spoken

THREAD, KEY = "01a22cf3-742a-7fdb-bc3e-425791269f1b", "req_1700000000000_abcdef"
HOLDER = ProcessId(7, 7)
OPENING = Opening(HOLDER, Way.PROGRAM, argv=("/opt/codex", "app-server"))
AGENT = "codex_cli/0.171.0 (Linux; x86_64)"
NOISE: tuple[dict[str, Any], ...] = (
    {"method": "thread/status/changed", "params": {"threadId": THREAD, "status": {"type": "active"}}},
    {"id": 7, "method": "item/commandExecution/requestApproval", "params": {"threadId": THREAD}},
    {"id": "xagent-1", "method": "item/tool/call", "params": {}},
    {"id": "xagent-99", "result": {}},
    {"id": 1, "result": {"userAgent": "x/0.100.0"}},
    {"id": None, "error": {"code": -1, "message": "somebody else's"}},
    {"id": "another", "error": {"message": "no rollout found"}},
    {},
)
"""What is said on the same connection that is no answer to us."""


def adding(text: str = "please") -> Adding:
    return Adding(OPENING, Letter(THREAD, KEY, text))


class QueueTalk(Spoken):
    def fails(self, message: str) -> Said:
        return self.hears({"id": self.sent[-1]["id"], "error": {"code": -32600, "message": message}})

    def introduced(self, agent: str = AGENT) -> Said:
        return self.answers({"userAgent": agent, "codexHome": "/h"})


TALKS: dict[str, Callable[[], Talk]] = {
    "adding": adding,
    "taking back": lambda: TakingBack(THREAD, KEY),
    "asking": lambda: Asking(THREAD),
}
each_talk = pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)


# which process


def looking(monkeypatch: pytest.MonkeyPatch, program: str | None, *arguments: str) -> None:
    monkeypatch.setattr(queue, "executable", lambda _: program)
    monkeypatch.setattr(queue, "argv", lambda _: list(arguments))


def daemon_socket(store: Path) -> Path:
    path = store / "app-server-control" / "app-server-control.sock"
    path.parent.mkdir()
    path.touch()
    return path


@pytest.mark.requirement("LD-03")
@pytest.mark.parametrize("arguments", [("codex",), ("codex", "app-server"), ("codex", "resume", "unix:x")])
def test_a_terminal_of_its_own_is_reached_through_an_app_server_of_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    daemon_socket(tmp_path)
    looking(monkeypatch, "/opt/codex-0.154.0", *arguments)
    found = queue.look(str(tmp_path), THREAD, [HOLDER])
    assert found == Opening(HOLDER, Way.PROGRAM, argv=("/opt/codex-0.154.0", "app-server"))


@pytest.mark.requirement("LD-03")
def test_the_shared_daemon_is_spoken_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking(monkeypatch, "/opt/codex", "codex", "app-server", "--listen", "unix://")
    assert queue.look(str(tmp_path), THREAD, [HOLDER]) == OPENING, (
        "its socket is elsewhere: the queue on disk leads there as well"
    )
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    socket = daemon_socket(tmp_path)
    found = queue.look(str(tmp_path / "link"), THREAD, [HOLDER, ProcessId(8, 8)])
    assert found == Opening(HOLDER, Way.WEBSOCKET, socket=str(socket), listener=HOLDER), "nobody else may be behind it"


@pytest.mark.requirement("LD-03", "LD-01")
def test_a_holder_whose_program_cannot_be_told_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking(monkeypatch, None)
    found = queue.look(str(tmp_path), THREAD, [HOLDER])
    assert isinstance(found, Shut)
    assert "process 7" in found.reason
    assert found.remedy


# every conversation


@pytest.mark.requirement("LD-03")
@each_talk
def test_it_introduces_itself_first_and_goes_on_when_it_was_heard(talk: Callable[[], Talk]) -> None:
    spoken = QueueTalk(talk())
    assert spoken.methods == ["initialize"]
    assert spoken.sent[0]["params"]["capabilities"] == {"experimentalApi": True}
    spoken.introduced()
    assert spoken.methods[1] == "initialized"
    assert "id" not in spoken.sent[1], "a notification"
    assert len(spoken.methods) == 3
    assert spoken.said.outcome is Outcome.OPEN


@pytest.mark.requirement("LD-03")
def test_the_first_release_with_a_queue_is_not_too_old() -> None:
    assert QueueTalk(adding()).introduced("codex_cli/0.148.0 (x)").carries


@pytest.mark.requirement("LD-03")
@each_talk
@pytest.mark.parametrize("agent", ["codex_cli/0.147.9 (x)", "codex_cli/0.9.0", "", "codex_cli", "nonsense"])
def test_an_older_one_has_no_queue_and_is_asked_for_nothing(talk: Callable[[], Talk], agent: str) -> None:
    spoken = QueueTalk(talk())
    said = spoken.introduced(agent)
    assert (said.outcome, said.code, said.carries) == (Outcome.REFUSED, "too_old", False)
    assert spoken.methods == ["initialize"]
    assert "0.148" in DOOR.explains["too_old"]


@pytest.mark.requirement("LD-03")
@each_talk
@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("thread not found: x", "unknown_to_agent"),
        ("no rollout found for thread id x", "unknown_to_agent"),
        ("direct app-server input is not allowed for sub-agent threads", "no_direct_input"),
        ("something else", "agent_refused"),
        ("", "agent_refused"),
    ],
)
def test_an_error_ends_it(talk: Callable[[], Talk], message: str, code: str) -> None:
    for introduced in (False, True):
        spoken = QueueTalk(talk())
        if introduced:
            spoken.introduced()
        assert (spoken.fails(message).outcome, spoken.said.code) == (Outcome.REFUSED, code)
    assert code == "agent_refused" or DOOR.explains[code]


@pytest.mark.requirement("LD-03")
@each_talk
def test_an_error_that_is_none_ends_it_as_well(talk: Callable[[], Talk]) -> None:
    spoken = QueueTalk(talk())
    errors: tuple[object, ...] = (None, [], "no", {"message": 7})
    for error in errors:
        said = spoken.hears({"id": spoken.sent[0]["id"], "error": error})
        assert (said.outcome, said.code) == (Outcome.REFUSED, "agent_refused")
        spoken = QueueTalk(talk())


@pytest.mark.requirement("LD-03", "LD-06")
@each_talk
@given(data=st.data())
def test_what_others_say_in_between_changes_nothing(talk: Callable[[], Talk], data: st.DataObject) -> None:
    """Nor what is no message at all."""
    noise = st.sampled_from(NOISE) | st.binary().filter(lambda line: b"xagent" not in line)
    spoken = QueueTalk(talk())
    steps: tuple[Callable[[], Said], ...] = (spoken.introduced, lambda: spoken.answers({}))
    for step in steps:
        before = len(spoken.sent)
        for message in data.draw(st.lists(noise, max_size=4)):
            assert spoken.hears(message) == Said()
        assert len(spoken.sent) == before
        step()


@pytest.mark.requirement("LD-03", "DE-20")
@each_talk
def test_an_answer_counts_once_and_only_when_it_was_asked_for(talk: Callable[[], Talk]) -> None:
    """Or the words would go in twice."""
    spoken = QueueTalk(talk())
    assert spoken.hears({"id": "xagent-2", "result": {}}) == Said(), "nothing was asked yet"
    spoken.introduced()
    sent = len(spoken.sent)
    assert spoken.hears({"id": "xagent-1", "result": {"userAgent": AGENT}}) == Said()
    assert spoken.hears({"id": "xagent-1", "error": {"message": "late"}}) == Said()
    assert len(spoken.sent) == sent


# adding


@pytest.mark.requirement("LD-03")
@given(st.text())
def test_the_words_go_in_under_the_key(text: str) -> None:
    spoken = QueueTalk(adding(text))
    said = spoken.introduced()
    assert said.carries
    assert spoken.sent[-1]["method"] == "thread/queue/add"
    assert spoken.sent[-1]["params"] == {
        "threadId": THREAD,
        "clientUserMessageId": KEY,
        "input": [{"type": "text", "text": text.encode(errors="replace").decode()}],
    }
    assert spoken.answers({"queuedSubmission": {"id": "q1"}}) == Said(outcome=Outcome.ACCEPTED)


# taking back


def queued(*keys: object) -> dict[str, Any]:
    return {"data": [{"id": f"q{number}", "clientUserMessageId": key} for number, key in enumerate(keys)]}


@pytest.mark.requirement("LD-03", "DE-26")
@pytest.mark.parametrize(("deleted", "outcome"), [(True, Outcome.ACCEPTED), (False, Outcome.REFUSED), (None, Outcome.REFUSED)])
def test_what_waits_is_taken_back_by_its_own_id(deleted: object, outcome: Outcome) -> None:
    spoken = QueueTalk(TakingBack(THREAD, KEY))
    spoken.introduced()
    assert spoken.methods[-1] == "thread/queue/list"
    said = spoken.answers(queued("another", KEY, None))
    assert not said.carries
    assert spoken.sent[-1]["params"] == {"threadId": THREAD, "queuedSubmissionId": "q1"}
    assert spoken.answers({"deleted": deleted}).outcome is outcome


@pytest.mark.requirement("LD-03", "DE-26")
@pytest.mark.parametrize("listed", [queued(), queued("another"), {}, {"data": "x"}, {"data": [None, 7, [KEY]]}])
def test_what_does_not_wait_is_not_given_back(listed: dict[str, Any]) -> None:
    spoken = QueueTalk(TakingBack(THREAD, KEY))
    spoken.introduced()
    said = spoken.answers(listed)
    assert (said.outcome, said.code) == (Outcome.REFUSED, "not_waiting")
    assert spoken.methods[-1] == "thread/queue/list", "nothing else is deleted"


# asking


@pytest.mark.requirement("LD-03", "DE-03")
@pytest.mark.parametrize(
    ("thread", "turns", "found"),
    [
        ({"status": {"type": "idle"}}, [{"status": "completed"}], {"busy": False, "paused": False}),
        ({"status": {"type": "active", "activeFlags": []}}, [{"status": "inProgress"}], {"busy": True, "paused": False}),
        (
            {"status": {"type": "active", "activeFlags": ["waitingOnApproval", "waitingOnUserInput"]}},
            [{"status": "inProgress"}],
            {"busy": True, "waits_for": "waitingOnApproval, waitingOnUserInput", "paused": False},
        ),
        ({"status": {"type": "idle"}}, [{"status": "interrupted"}], {"busy": False, "paused": True}),
        ({"status": {"type": "notLoaded"}}, [{"status": "interrupted"}], {"paused": True}),
        ({"status": {"type": "notLoaded"}}, [], {"paused": False}),
        ({}, [None], {"paused": False}),
        ({"status": "idle"}, {"x": 1}, {"paused": False}),
    ],
)
def test_what_stands_in_its_way(thread: dict[str, Any], turns: Any, found: dict[str, object]) -> None:
    spoken = QueueTalk(Asking(THREAD))
    spoken.introduced()
    assert spoken.sent[-1]["method"] == "thread/read"
    spoken.answers({"thread": thread})
    assert spoken.sent[-1]["method"] == "thread/turns/list"
    assert (spoken.sent[-1]["params"]["limit"], spoken.sent[-1]["params"]["sortDirection"]) == (1, "desc")
    said = spoken.answers({"data": turns})
    assert (said.outcome, said.found) == (Outcome.ACCEPTED, found)
