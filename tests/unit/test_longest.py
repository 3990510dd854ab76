"""A message of the greatest size leaves the evidence that a short one leaves (DE-05, DE-22)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.guards import MAX_CHARACTERS
from broker.wire import Inject
from shims.agent import Found
from shims.claude import sessions as claude_sessions
from shims.claude.stream import ClaudeStream
from shims.codex import sessions as codex_sessions
from shims.observe import Observer
from shims.stream import Finished, Taken

TEXTS = pytest.mark.parametrize("character", ["x", "\n", "漢", "😀"], ids=["ascii", "newline", "han", "emoji"])
KEY = "d0d0d0d0-0000-4000-8000-000000000001"


@pytest.mark.requirement("DE-05", "DE-22")
@TEXTS
def test_the_transcripts_of_both_agents_show_it(tmp_path: Path, character: str) -> None:
    text = character * MAX_CHARACTERS
    claude = tmp_path / "projects" / "p" / "s.jsonl"
    codex = tmp_path / "sessions" / "2026" / "11" / "30" / "rollout-2026-11-30T00-00-00-t.jsonl"
    for path in (claude, codex):
        path.parent.mkdir(parents=True)
    answer = {"role": "assistant", "content": [{"type": "text", "text": "pong"}], "stop_reason": "end_turn"}
    records = (
        {"type": "user", "uuid": KEY, "message": {"role": "user", "content": text}},
        {"type": "assistant", "message": answer},
    )
    claude.write_text("".join(json.dumps(record) + "\n" for record in records))
    item = {"type": "UserMessage", "client_id": KEY, "content": [{"type": "text", "text": text}]}
    events = (
        {"type": "task_started", "turn_id": "u"},
        {"type": "item_completed", "turn_id": "u", "item": item},
        {"type": "task_complete", "turn_id": "u", "last_agent_message": "pong"},
    )
    codex.write_text("".join(json.dumps({"type": "event_msg", "payload": event}) + "\n" for event in events))

    assert claude_sessions.record(str(tmp_path), "s", KEY).found is Found.ANSWERED
    assert codex_sessions.record(str(tmp_path), "t", KEY).found is Found.ANSWERED


@pytest.mark.requirement("DE-05", "SH-43")
@TEXTS
def test_its_echo_is_read_from_the_stream(character: str) -> None:
    observer = Observer(note=lambda _: None)
    stream = ClaudeStream(session="s", resumed=True, cwd="/", renders=True, replays=True, opened=1.0)
    observer.attach(stream, lambda: None)
    text = character * MAX_CHARACTERS
    order = Inject("dlv_1", "att_1", KEY, "", "s", text, 1, 1e9)
    assert stream.inject(order) == ""
    echo = {"type": "user", "message": {"role": "user", "content": text}, "session_id": "s", "uuid": KEY, "isReplay": True}
    result = {"type": "result", "subtype": "success", "is_error": False, "result": "pong", "session_id": "s", "uuid": "r"}
    data = "".join(json.dumps(frame, separators=(",", ":")) + "\n" for frame in (echo, result)).encode()
    for at in range(0, len(data), 65536):
        observer.agent_side.arrived(data[at : at + 65536])
        observer.agent_side.passed()

    assert [type(fact) for fact in stream.progress] == [Taken, Finished]
    assert not observer.off_because
