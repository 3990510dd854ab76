"""What Claude Code's lines say of a turn that it was started for: lines as 2.1.332 and 2.1.197 were recorded to write them,
without what nothing is read from.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shims.claude.resume import HEADLESS, LONGEST_LINE
from shims.headless import LONGEST_FAILURE, Order, Said

pytestmark = pytest.mark.requirement("EN-14")

S1, S2 = "3677629f-9544-4001-83f6-2eb25aada157", "24fcacca-5b9a-40c2-a3c3-660bbfceecfc"
KEY = "70e8ecf9-7d59-43a1-b3b4-5e64e5538935"
MODERN, OLD = "2.1.332", "2.1.197"
LOGGED_OUT = "Not logged in · Please run /login"
UNKNOWN = f"No conversation found with session ID: {S1}"
MODE = "error: option '--permission-mode <mode>' argument 'x' is invalid. Allowed choices are acceptEdits, auto."

Frame = dict[str, Any]
versions = pytest.mark.parametrize("version", (MODERN, OLD))


def lifecycle(state: str) -> Frame:
    return {"type": "command_lifecycle", "command_uuid": KEY, "state": state, "session_id": S1}


def opening(version: str, session: str = S1) -> list[Frame]:
    init = {"type": "system", "subtype": "init", "cwd": "/w", "session_id": session, "permissionMode": "default"}
    return [*([lifecycle("queued"), lifecycle("started")] if version == MODERN else []), init]


def assistant(text: str, **more: Any) -> Frame:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}], "stop_reason": None}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, "session_id": S1, **more}


def result(version: str, text: str | None = "one", **more: Any) -> Frame:
    words = {} if text is None else {"result": text}
    told = {"subtype": "success", "is_error": False, "num_turns": 1, "terminal_reason": "completed", "permission_denials": []}
    if version == MODERN:
        return {"duration_api_ms": 21, "session_id": S1, **told, **words, "type": "result", "queued_turn_count": 0, **more}
    return {"type": "result", "duration_ms": 21, **told, **words, "session_id": S1, **more}


def failure(version: str, text: str, kind: str, **more: Any) -> list[Frame]:
    reason = "api_error" if version == MODERN else "completed"
    return [assistant(text, error=kind), result(version, text, is_error=True, terminal_reason=reason, **more)]


def aborted(version: str) -> Frame:
    return result(
        version,
        None,
        subtype="error_during_execution",
        is_error=True,
        num_turns=2,
        terminal_reason="aborted_streaming",
        errors=["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"],
    )


def refusal(words: str) -> Frame:
    return result(OLD, None, subtype="error_during_execution", is_error=True, num_turns=0, terminal_reason=None, errors=[words])


def lines(*frames: Frame | bytes) -> list[bytes]:
    return [frame if isinstance(frame, bytes) else json.dumps(frame, separators=(",", ":")).encode() for frame in frames]


def hear(*frames: Frame | bytes, session: str = S1) -> Said:
    """What is said of a turn that still runs."""
    output = HEADLESS.output(session)
    for line in lines(*frames):
        output.feed(line)
    return output.said()


def closed(*frames: Frame | bytes, status: int = 0, errors: str = "", session: str = S1) -> Said:
    output = HEADLESS.output(session)
    for line in lines(*frames):
        output.feed(line)
    return output.closed(status, errors)


@versions
def test_an_answer(version: str) -> None:
    assert hear(*opening(version)) == Said(S1, begun=True)
    said = Said(S1, begun=True, ended=True, text="one")
    assert closed(*opening(version), assistant("one"), result(version)) == said
    # the exit status says nothing beside the end record
    assert closed(*opening(version), result(version), status=1, errors="boom") == said
    assert closed(*opening(version), result(version), session="") == said


@versions
def test_a_failed_request_to_the_model(version: str) -> None:
    said = closed(*opening(version), *failure(version, "API Error: 400 not today", "unknown"), status=1)
    assert said == Said(S1, begun=True, ended=True, code="turn_failed", reason="API Error: 400 not today")
    said = closed(*opening(version), *failure(version, LOGGED_OUT, "authentication_failed"), status=1)
    assert (said.code, said.untouched) == ("not_logged_in", False)
    assert said.reason.startswith(LOGGED_OUT) and "`claude`" in said.reason


@versions
def test_a_limit_that_is_called_no_error(version: str) -> None:
    said = closed(*opening(version), result(version, None, subtype="error_max_turns"))
    assert (said.code, said.reason, said.text) == ("turn_failed", "error_max_turns", "")


@versions
def test_an_interrupt(version: str) -> None:
    said = closed(*opening(version), aborted(version))
    assert said == Said(S1, begun=True, ended=True, code="turn_cancelled", reason="the turn was interrupted")
    # a message of another session that cut in: no error, and half an answer
    assert closed(*opening(version), result(version, "aa", terminal_reason="aborted_streaming")).code == "turn_cancelled"


@pytest.mark.requirement("DE-22")
def test_a_repeated_message_is_no_answer() -> None:
    for frames in ([], [lifecycle("completed")]):
        said = closed(*frames)
        assert (said.code, said.text, said.begun, said.ended, said.untouched) == ("nothing_ran", "", False, False, False)


@pytest.mark.requirement("DE-22")
@versions
@pytest.mark.parametrize(("status", "how"), [(143, "by signal 15"), (-9, "by signal 9"), (7, "with exit status 7"), (0, "0")])
def test_an_end_without_a_result(version: str, status: int, how: str) -> None:
    said = closed(*opening(version), assistant("half"), status=status)
    assert (said.code, said.text, said.begun, said.ended, said.untouched) == ("turn_failed", "", True, False, False)
    assert how in said.reason
    retry = {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": 401, "error": "authentication_failed"}
    assert "401" in closed(*opening(version), retry, status=status).reason


@pytest.mark.parametrize(
    ("errors", "status", "code", "untouched"),
    [
        (UNKNOWN + "\n", 1, "unknown_session", True),
        ('Error: --resume requires … Provided value "x" … does not match any session title.', 1, "unknown_session", True),
        (f"Error: Session {S1} is currently running as a background agent (bg). Use `claude agents`", 1, "session_held", True),
        ("Error: That session is running in the background (0badcafe). Run `claude attach 0badcafe`", 1, "session_held", True),
        (f"Error: Session ID {S1} is already in use.\n", 1, "turn_failed", False),
        ("Error: Invalid session ID. Must be a valid UUID.", 1, "turn_failed", True),
        (MODE, 1, "turn_failed", True),
        ("error: unknown option '--verbose'", 1, "turn_failed", True),
        ("--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons", 1, "turn_failed", True),
        ("a warning\nTypeError: undefined is not a function", 1, "turn_failed", False),
    ],
)
def test_what_it_refuses_before_it_begins(errors: str, status: int, code: str, untouched: bool) -> None:
    said = closed(status=status, errors=errors)
    assert (said.code, said.untouched, said.ended, said.begun) == (code, untouched, False, False)
    assert said.reason.endswith(errors.strip().splitlines()[-1])
    # once it has begun, the same words are no refusal
    assert not closed(*opening(OLD), status=status, errors=errors).untouched


def test_a_refusal_is_told_in_a_result_as_well() -> None:
    said = closed(refusal(UNKNOWN), status=1, errors=UNKNOWN)
    assert (said.code, said.untouched, said.reason) == ("unknown_session", True, UNKNOWN)


@pytest.mark.requirement("EN-24")
def test_a_line_that_it_quotes_is_not_passed_on() -> None:
    said = closed(status=1, errors="Error parsing streaming input line: SECRET: SyntaxError: JSON Parse error")
    assert said.code == "turn_failed" and "SECRET" not in said.reason


@pytest.mark.requirement("EN-15")
@versions
def test_denied_tools_are_named_once_and_the_answer_stays(version: str) -> None:
    denials: list[Frame] = [{"tool_name": name, "tool_use_id": "t", "tool_input": {}} for name in ("Bash", "mcp__x__y", "Bash")]
    notes = [{"type": "system", "subtype": "permission_denied", "tool_name": denial["tool_name"]} for denial in denials]
    said = closed(*opening(version), *(notes if version == MODERN else []), result(version, "after", permission_denials=denials))
    assert (said.text, said.code, said.denied) == ("after", "", ("Bash", "mcp__x__y"))


@versions
def test_another_conversation_gives_no_answer(version: str) -> None:
    said = closed(*opening(version, S2), result(version, session_id=S2))
    assert (said.session, said.code, said.text, said.ended) == (S2, "wrong_session", "", False)


@versions
def test_turns_of_its_own_come_after_the_answer(version: str) -> None:
    note = {"origin": {"kind": "task-notification"}}
    peer = {"origin": {"kind": "peer"}}
    begun = [*opening(version), result(version, "it runs in the background"), *opening(version)]
    said = closed(*begun, result(version, "it is over", **note), result(version, "hi", **peer))
    assert (said.text, said.later) == ("it runs in the background", ("it is over",))
    said = closed(*opening(version), result(version, "for another", **peer), result(version, "ours"))
    assert (said.text, said.later) == ("ours", ())


def test_what_a_command_says_is_no_answer() -> None:
    """2.1.197 takes what begins with a slash for one; no text of ours does."""
    said = closed(*opening(OLD), result(OLD, "Unknown command: /x", num_turns=0, terminal_reason=None))
    assert (said.code, said.text) == ("turn_failed", "")


def test_what_a_sub_agent_says_is_not_the_turns() -> None:
    sub = assistant("no", error="authentication_failed", parent_tool_use_id="toolu_1")
    assert closed(*opening(OLD), *failure(OLD, "API Error", "unknown"), sub).code == "turn_failed"


@pytest.mark.parametrize("version", (MODERN, OLD))
def test_long_lines(version: str) -> None:
    """A result of any length is read; what else is long is passed over."""
    text = "x" * (LONGEST_LINE + 1)
    assert closed(*opening(version), assistant(text), result(version, text)).text == text
    assert hear({"type": "system", "subtype": "init", "session_id": S1, "tools": [text]}) == Said()


WHOLE = {
    version: lines(*opening(version), assistant("one"), result(version, permission_denials=[{"tool_name": "Bash"}]))
    for version in (MODERN, OLD)
}
NAMES = st.sampled_from(["type", "subtype", "error", "session_id", "permission_denials", "origin", "tool_name", "state", "x"])
VALUES: st.SearchStrategy[Any] = st.sampled_from(
    ["system", "assistant", "init", "permission_denied", "command_lifecycle", None, 3, [], {}, [1], ["x"]]
)
GARBAGE = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([b"null", b"[]", b"[" * 5000, b'{"type":"result"}', b'{"type":"result","subtype":"success","is_error":1}']),
    st.dictionaries(NAMES, VALUES).map(lambda value: json.dumps(value).encode()),
)
"""No end record of a turn that was completed."""


@given(st.sampled_from((MODERN, OLD)), st.data(), st.integers(-64, 255), st.text(max_size=400))
def test_no_cut_and_no_garbage_makes_an_answer(version: str, data: st.DataObject, status: int, errors: str) -> None:
    """Neither raises, and without the end record there is no answer."""
    whole = WHOLE[version]
    kept = whole[: data.draw(st.integers(0, len(whole)))]
    if kept:
        kept[-1] = kept[-1][: data.draw(st.integers(0, len(kept[-1])))]
    at = data.draw(st.integers(0, len(kept)))
    noise = data.draw(st.lists(GARBAGE, max_size=4))
    said = closed(*kept[:at], *noise, *kept[at:], status=status, errors=errors, session="")
    ended = whole[-1] in kept
    assert said.text == ("one" if ended and not said.code else "")
    assert ended or said.code
    assert len(said.reason) <= LONGEST_FAILURE and "\n" not in said.reason


@given(st.text(), st.sampled_from(("", S1)), st.sampled_from(("", "opus")), st.sampled_from(("", *HEADLESS.modes)))
def test_the_text_goes_by_standard_input_alone(text: str, session: str, model: str, mode: str) -> None:
    order = Order(session, "" if session else S2, KEY, "/run/prompt", "/w", model, mode)
    arguments = HEADLESS.arguments(order)
    assert (f"--resume={S1}" if session else f"--session-id={S2}") in arguments
    assert "/run/prompt" not in arguments
    line = HEADLESS.input(text, KEY)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    sent = json.loads(line)
    assert (sent["message"]["content"], sent["uuid"]) == (text, KEY)
    assert not HEADLESS.by_file


def test_half_a_character_can_be_sent() -> None:
    assert json.loads(HEADLESS.input("\ud800", KEY))["message"]["content"] == "\ud800"
