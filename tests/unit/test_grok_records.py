"""What Grok's files say of a prompt: lines as 1.0.41 wrote them, also after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shims.agent import Found, Record
from shims.grok import sessions

SESSION, KEY, OTHER, TOKEN = "01a2-s1", "dlv_1", "6224c6a5", "req_1796057219366_33ee41"

Frame = dict[str, Any]


def said(text: str, prompt: str = KEY) -> Frame:
    return _line({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}, prompt)


def asked(text: str = "a message") -> Frame:
    return _line({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}})


def used(prompt: str = KEY) -> Frame:
    return _line({"sessionUpdate": "tool_call", "toolCallId": "c"}, prompt)


def ended(reason: str = "end_turn", prompt: str = KEY) -> Frame:
    return _line({"sessionUpdate": "turn_completed", "prompt_id": prompt, "stop_reason": reason})


def _line(update: Frame, prompt: str = "") -> Frame:
    meta = {"_meta": {"promptId": prompt}} if prompt else {}
    return {"timestamp": 1, "method": "session/update", "params": {"sessionId": SESSION, "update": update, **meta}}


class Store:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path / "sessions" / "%2Fw" / SESSION
        self.folder.mkdir(parents=True)

    def write(self, *lines: Frame, last: str = KEY, **summary: Any) -> Store:
        (self.folder / "updates.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        named = {"request_id": last} if last else {}
        (self.folder / "summary.json").write_text(json.dumps({"info": {"id": SESSION}, **named, **summary}))
        return self

    def record(self) -> Record:
        return sessions.record(str(self.path), SESSION, KEY)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize(
    ("lines", "found", "words"),
    [
        ([asked(), said("pong"), ended()], Found.ANSWERED, "pong"),
        ([asked(), said("let me"), used(), said("pong"), said(" two"), ended()], Found.ANSWERED, "pong two"),
        ([asked(), said("all that came"), used(), ended()], Found.ANSWERED, "all that came"),
        ([asked(), said("half")], Found.OPEN, ""),
        ([asked(), said("half"), ended("interrupted")], Found.OPEN, ""),
        ([asked(), said("half"), ended("interrupted"), said(" more"), ended()], Found.ANSWERED, "half more"),
        ([asked(), said("half"), ended("cancelled")], Found.INTERRUPTED, ""),
        ([asked(), said("half"), ended("error")], Found.INTERRUPTED, ""),
        ([asked(), ended("interrupted")], Found.UNKNOWN, ""),
        ([asked(), ended("end_turn")], Found.UNKNOWN, ""),
        ([asked(f'a text that holds "{KEY}"')], Found.UNKNOWN, ""),
    ],
)
def test_what_became_of_a_prompt(store: Store, lines: list[Frame], found: Found, words: str) -> None:
    """A chunk under the prompt's id is evidence, a lone end is none: it may only have waited."""
    record = store.write(*lines).record()
    assert (record.found, record.text) == (found, words)


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize(
    ("lines", "last", "found"),
    [
        ([], "", Found.ABSENT),
        ([asked(), said("own", OTHER), ended(prompt=OTHER)], OTHER, Found.ABSENT),
        ([asked(), said("own", OTHER), ended("cancelled", OTHER)], OTHER, Found.UNKNOWN),
        ([asked(), said("own", OTHER)], OTHER, Found.UNKNOWN),
        ([asked()], OTHER, Found.UNKNOWN),
        ([asked(), said("own", OTHER), ended(prompt=OTHER)], KEY, Found.UNKNOWN),
    ],
    ids=["never prompted", "idle after another", "another was cut", "another ran", "another began", "accepted"],
)
def test_a_prompt_without_a_trace_was_never_accepted_only_if_that_is_certain(
    store: Store, lines: list[Frame], last: str, found: Found
) -> None:
    assert store.write(*lines, last=last).record().found is found


@pytest.mark.requirement("DE-22")
@pytest.mark.parametrize("broken", ["no session", "no summary", "bad summary", "bad lines"])
def test_what_cannot_be_read_decides_nothing(store: Store, broken: str) -> None:
    if broken == "no session":
        store.folder.rmdir()
    elif broken == "bad summary":
        (store.folder / "summary.json").write_text("{")
    elif broken == "bad lines":
        store.write(asked(), last=OTHER)
        (store.folder / "updates.jsonl").write_bytes(b'\xff{"dlv_1"\n[]\n')
    assert store.record().found is Found.UNKNOWN


@pytest.mark.requirement("SE-08", "SH-34")
def test_the_turn_that_names_the_token_at_its_end(store: Store) -> None:
    store.write(said("req_1796057219366_33ee41 is asked\nnot this", OTHER), ended(prompt=OTHER), said(f"pong\n{TOKEN}"), ended())
    assert sessions.answer_naming(str(store.path), SESSION, TOKEN) == Record(Found.ANSWERED, f"pong\n{TOKEN}", KEY)
    assert sessions.answer_naming(str(store.path), SESSION, "req_1796057219366_33ee42").found is Found.ABSENT
    store.write(said(f"pong\n{TOKEN}"))
    assert sessions.answer_naming(str(store.path), SESSION, TOKEN).found is Found.ABSENT, "its turn has not ended"


def at(seconds: float, line: Frame) -> Frame:
    """``line`` as it was written then: in whole seconds, and among what the agent says of itself in milliseconds."""
    meta = {**line["params"].get("_meta", {}), "agentTimestampMs": int(seconds * 1000)}
    return {**line, "timestamp": int(seconds), "params": {**line["params"], "_meta": meta}}


@pytest.mark.requirement("SE-22")
@pytest.mark.parametrize(
    ("lines", "moved"),
    [
        ([], 0.0),
        ([at(100.25, asked()), at(100.5, said("x", OTHER)), at(100.75, ended(prompt=OTHER))], 100.75),
        ([at(100.5, ended(prompt=OTHER)), at(200.0, said("x")), at(200.5, ended())], 100.5),
        ([at(100.5, said("x", OTHER)), at(300.0, ended("interrupted", OTHER))], 100.5),
        ([ended(prompt=OTHER)], 1.0),
        ([{**ended(prompt=OTHER), "timestamp": 10**400}], 0.0),
    ],
    ids=[
        "nothing",
        "a turn of the person's",
        "one of ours after it",
        "opened again after a kill",
        "no time of the agent's",
        "a time that is none",
    ],
)
def test_when_somebody_else_last_moved_it(store: Store, lines: list[Frame], moved: float) -> None:
    """Two sessions used within one second are told apart; to open a session is not to use it."""
    store.write(*lines)
    assert sessions.moved(str(store.path), SESSION, [KEY]) == moved
