"""Claude Code's inbox: whether it is open for a session, what is written there, and what it tells (2.1.332)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.processes import ProcessId, identify
from shims.claude.inbox import DOOR, Posting, held_back, look, notice
from shims.door import Letter, News, Notice, Opening, Outcome, Shut, Way

SESSION, OTHER = "6f1b9d1e-0000-4000-8000-000000000002", "6f1b9d1e-0000-4000-8000-000000000003"
SOCKET = "/run/u/cc-socks/7.sock"
NOBODY = ProcessId(1, 1)
"""No process has this start time."""


def me() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


def registered(store: Path, *, start: str | None = None, pid: int | None = None, **more: Any) -> Path:
    """What a living process of 2.1.332 says of itself: this one."""
    (store / "sessions").mkdir(exist_ok=True)
    entry = {
        "pid": pid or os.getpid(),
        "sessionId": SESSION,
        "procStart": str(me().start) if start is None else start,
        "version": "2.1.332",
        "messagingSocketPath": SOCKET,
        "status": "idle",
        "statusUpdatedAt": 1_700_000_000_500,
        **more,
    }
    path = store / "sessions" / f"{pid or os.getpid()}.json"
    path.write_text(json.dumps({name: value for name, value in entry.items() if value is not None}))
    return path


def opened(store: Path) -> Opening:
    found = look(str(store), SESSION, [me()])
    assert isinstance(found, Opening)
    return found


# whether it is open


@pytest.mark.requirement("LD-02")
def test_an_inbox_is_behind_the_socket_that_its_process_names(tmp_path: Path) -> None:
    registered(tmp_path)
    found = opened(tmp_path)
    assert (found.way, found.socket, found.notices) == (Way.SOCKET, SOCKET, "/run/u/cc-socks")
    assert found.holder == found.listener == me(), "nobody else may be behind it"
    assert (found.busy, found.waits_for, found.since) == (False, "", 1_700_000_000.5)


@pytest.mark.requirement("LD-02", "LD-01")
@pytest.mark.parametrize("version", ["2.1.197", None])
@pytest.mark.parametrize("socket", [None, "", 7, ["/x"]])
def test_a_release_without_an_inbox_is_named_with_the_remedy(tmp_path: Path, version: str | None, socket: object) -> None:
    registered(tmp_path, version=version, messagingSocketPath=socket)
    found = look(str(tmp_path), SESSION, [me()])
    assert isinstance(found, Shut)
    assert f"Claude Code {version or 'an unknown version'} has no inbox (from 2.1.224 on" in found.reason
    assert found.remedy == "Update it, open the session in an editor panel, or close it."


@pytest.mark.requirement("LD-02")
@pytest.mark.parametrize(
    "shape",
    [
        {"start": "5"},  # its file was left behind, and the pid is another process's now
        {"sessionId": OTHER},  # `/clear`, `/resume`
        {"sessionId": None},
        {"sessionId": 7},
    ],
    ids=["stale", "moved", "no session", "a session that is none"],
)
def test_an_entry_that_is_not_of_this_session_opens_nothing(tmp_path: Path, shape: dict[str, Any]) -> None:
    registered(tmp_path, **shape)
    found = look(str(tmp_path), SESSION, [me()])
    assert isinstance(found, Shut)
    assert "moved to another conversation" in found.reason
    assert "list_agent_sessions" in found.remedy


@pytest.mark.requirement("LD-02")
def test_the_entry_of_another_pid_opens_nothing(tmp_path: Path) -> None:
    """Its word is worth nothing for a process that it is not of, whatever it says inside."""
    elsewhere = ProcessId(os.getppid(), me().start + 1)
    registered(tmp_path, pid=elsewhere.pid, start=str(elsewhere.start))
    assert isinstance(look(str(tmp_path), SESSION, [me()]), Shut)
    assert isinstance(look(str(tmp_path), SESSION, [elsewhere]), Shut)
    registered(tmp_path)
    assert isinstance(look(str(tmp_path), SESSION, [NOBODY]), Shut)
    assert isinstance(look(str(tmp_path), SESSION, []), Shut)
    assert isinstance(look(str(tmp_path), SESSION, [NOBODY, me()]), Opening), "of several holders, the one that has it"


@pytest.mark.requirement("LD-02")
@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"7"])
def test_what_is_no_entry_opens_nothing(tmp_path: Path, text: bytes) -> None:
    registered(tmp_path).write_bytes(text)
    assert isinstance(look(str(tmp_path), SESSION, [me()]), Shut)


@pytest.mark.requirement("LD-02")
@pytest.mark.parametrize(
    ("status", "waiting", "busy", "waits_for"),
    [
        ("idle", None, False, ""),
        ("idle", "left over", False, ""),
        ("busy", None, True, ""),
        ("waiting", "permission prompt", True, "permission prompt"),
        ("waiting", None, True, ""),
        (None, None, None, ""),
        (7, "x", None, ""),
    ],
)
def test_what_it_does_now(tmp_path: Path, status: object, waiting: object, busy: bool | None, waits_for: str) -> None:
    registered(tmp_path, status=status, waitingFor=waiting, statusUpdatedAt="soon")
    found = opened(tmp_path)
    assert (found.busy, found.waits_for, found.since) == (busy, waits_for, 0.0)


@pytest.mark.requirement("LD-02")
def test_the_proof_is_that_of_this_process(tmp_path: Path) -> None:
    registered(tmp_path)
    assert opened(tmp_path).secret == ""
    keys = tmp_path / "sessions"
    (keys / f"{os.getpid()}.aa.key").write_text(json.dumps({"procStart": "5", "peerToken": "of one that is gone"}))
    (keys / f"{os.getpid()}.bb.key").write_bytes(b"\xff{")
    (keys / f"{os.getpid()}.cc.key").write_text(json.dumps({"procStart": str(me().start), "peerToken": 7}))
    (keys / f"{os.getpid()}9.dd.key").write_text(json.dumps({"procStart": str(me().start), "peerToken": "another pid's"}))
    (keys / f"{os.getpid()}.ee.key").mkdir()
    assert opened(tmp_path).secret == ""
    (keys / f"{os.getpid()}.ff.key").write_text(json.dumps({"procStart": str(me().start), "peerToken": "proof"}))
    assert opened(tmp_path).secret == "proof"
    assert "proof" not in repr(opened(tmp_path)), "it is logged nowhere"


# what is written


def written(text: str, secret: str = "", notices: str = "") -> list[dict[str, Any]]:
    opening = Opening(NOBODY, Way.SOCKET, socket=SOCKET, secret=secret)
    posting = Posting(opening, Letter(SESSION, "key-1", text, notices))
    said = posting.begin()
    assert said.carries, "the last line has the words"
    assert said.outcome is Outcome.SAID, "nothing is answered there"
    assert posting.heard(b"noise").outcome is Outcome.SAID
    assert all(b"\n" not in message for message in said.messages)
    return [json.loads(message) for message in said.messages]


@pytest.mark.requirement("LD-02")
@given(st.text())
def test_a_message_is_one_line_with_the_key_by_which_it_is_found(text: str) -> None:
    (message,) = written(text)
    content = message.pop("message")
    assert content == {"role": "user", "content": text.encode(errors="replace").decode()}
    assert message == {"type": "user", "msg_id": "key-1", "priority": "later"}, "its own turn, after the one that runs"


@pytest.mark.requirement("LD-02")
def test_who_speaks_is_said_before_and_where_to_tell_with_it() -> None:
    auth, message = written("text", "proof", "/run/u/cc-socks/cross-agent-1.sock")
    assert auth == {"type": "auth", "token": "proof"}
    assert message["from"] == "uds:/run/u/cc-socks/cross-agent-1.sock"


# what it tells


def news(status: object, key: object = "k", **more: object) -> bytes:
    return json.dumps({"action": "peer_message_status", "orig_msg_id": key, "status": status, **more}).encode()


@pytest.mark.requirement("LD-02", "LD-06", "LD-09")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (news("held"), News.HELD),
        (news("denied"), News.DECLINED),
        (news("expired"), News.EXPIRED),
        (news("expired", status_detail="refused"), News.REFUSED),
        (news("denied", status_detail="refused"), News.REFUSED),
        (news("dropped", drop_reason="rate-limited"), News.CROWDED),
        (news("dropped", drop_reason="queue-full"), News.CROWDED),
        (news("dropped", drop_reason="duplicate"), News.DROPPED),
        (news("dropped", drop_reason=["queue-full"]), News.DROPPED),
        (news("dropped"), News.DROPPED),
    ],
)
def test_what_became_of_a_message(line: bytes, told: News) -> None:
    assert notice(line) == Notice(("k",), told)


@pytest.mark.requirement("LD-02")
def test_one_notice_is_about_all_that_it_names_once() -> None:
    line = news("dropped", dropped_msg_ids=["a", "k", "b", "a", 7, None], drop_reason="rate-limited")
    assert notice(line) == Notice(("k", "a", "b"), News.CROWDED)
    assert notice(news("dropped", key=None, dropped_msg_ids="abc")) == Notice((), News.DROPPED)


@pytest.mark.requirement("LD-02", "LD-06")
@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"7", b"null", b"\xff", b"[" * 100_000, b'{"action":"peer_message_status"}',
        news("delivered"), news(None), news(["held"]), news({"held": 1}), news("HELD"),
        json.dumps({"action": "other", "orig_msg_id": "k", "status": "held"}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_news_is_passed_over(line: bytes) -> None:
    assert notice(line) is None


WORDS = st.sampled_from(("action", "peer_message_status", "orig_msg_id", "status", "held", "dropped", "dropped_msg_ids"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | WORDS | st.text(), lambda v: st.lists(v) | st.dictionaries(WORDS | st.text(), v)
)


@pytest.mark.requirement("LD-02")
@given(st.binary() | st.dictionaries(WORDS, VALUES).map(lambda entry: json.dumps(entry).encode()))
def test_whatever_somebody_writes_is_news_or_nothing(line: bytes) -> None:
    found = notice(line)
    assert found is None or all(isinstance(key, str) for key in found.keys)


@pytest.mark.requirement("LD-09")
def test_who_holds_messages_back_is_told_what_could_be_set_and_what_that_opens() -> None:
    for code in ("held", "refused"):
        assert "`crossSessionInbound` in that session's .claude/settings.json" in DOOR.explains[code]
    assert "set to `accept` would let messages of every local process in without asking" in DOOR.explains["held"]
    assert DOOR.explains.keys() == {one.value for one in News} - {"crowded"}, "what may be let in later is tried again"


@pytest.mark.requirement("LD-02", "LD-06")
def test_whether_a_person_was_asked_since(tmp_path: Path) -> None:
    assert not held_back(str(tmp_path), SESSION, 0.0), "without a transcript nobody was"
    transcript = tmp_path / "projects" / "-w" / f"{SESSION}.jsonl"
    transcript.parent.mkdir(parents=True)
    note = {"type": "system", "content": "Held peer message — from uds:/x", "timestamp": "2026-01-01T00:00:10Z"}
    others = [
        {"type": "user", "message": {"content": "Held peer message"}, "timestamp": "2026-01-01T00:00:50Z"},
        {"type": "user", "content": 'a "Held peer message" is what?', "timestamp": "2026-01-01T00:00:50Z"},
        {"type": "system", "content": 'of a "Held peer message"', "timestamp": "2026-01-01T00:00:50Z"},
        {"type": "system", "content": {"Held peer message": 1}, "timestamp": "2026-01-01T00:00:50Z"},
    ]
    then = 1_767_225_610.0
    transcript.write_text("".join(json.dumps(entry) + "\n" for entry in others))
    assert not held_back(str(tmp_path), SESSION, then), "somebody's words are no note"
    transcript.write_text("".join(json.dumps(entry) + "\n" for entry in (*others, note)))
    assert held_back(str(tmp_path), SESSION, then)
    assert held_back(str(tmp_path), SESSION, then - 5)
    assert not held_back(str(tmp_path), SESSION, then + 1), "that was about an earlier one"
