"""What a send must satisfy: for each no, its code, its sentence and what to do instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker import guards
from broker.callers import Caller
from broker.errors import Refusal
from broker.guards import MAX_CHARACTERS
from broker.resolve import Selected
from broker.routes import Reach, Unreachable, Wait
from broker.settings import CallerSettings
from broker.wire import SessionState
from shims.agent import agents
from tests.unit.made_up import CLAUDE, CODEX, World, caller_in

NAMED_ONLY = CallerSettings(require_explicit_target=True)
CODEX_CALLER, CLAUDE_CALLER = Caller("codex", "t1", "made up"), Caller("claude", "s1", "made up")


def target(session: str = "s1", agent: str = "claude", **state: object) -> Selected:
    made = SessionState(session)._replace(**state)  # type: ignore[arg-type]
    return Selected(agents()[agent], World().opens(made, agent=agent), made, None, "caller")


REFUSED: dict[str, tuple[Callable[[], object], str, str, str]] = {
    "nothing": (lambda: guards.check_text(""), "empty_message", "the message is empty", "Write what"),
    "white space": (lambda: guards.check_text(" \n\t\u3000"), "empty_message", "the message is empty", "Write what"),
    "too long": (
        lambda: guards.check_text("x" * 1_000_001),
        "message_too_long", "1,000,001 characters, the limit is 1,000,000", "Write the material to a file",
    ),
    "too long when it is quoted": (
        lambda: guards.check_fits(CODEX, 1_044_481),
        "message_too_long", "1,044,481 characters, and Codex takes 1,044,480", "Write the material to a file",
    ),
    "no target where one is demanded": (
        lambda: guards.check_explicit_target(NAMED_ONLY, session="", new=False),
        "explicit_target_required", "CROSS_AGENT_REQUIRE_EXPLICIT_TARGET", "Pass session_id, or new_session=true",
    ),
    "a blank one": (
        lambda: guards.check_explicit_target(NAMED_ONLY, session=" \t", new=False),
        "explicit_target_required", "names its target", "Pass session_id",
    ),
    "everything switched off": (
        lambda: guards.check_any_route(CallerSettings(use_panels=False, use_doors=False, headless=False)),
        "no_route", "CROSS_AGENT_UI_HOOK=off", "Remove one of the three",
    ),
    "Claude to Claude, unnamed": (
        lambda: guards.check_same_agent(CLAUDE, CLAUDE_CALLER, session="", allowed=False),
        "same_agent", "from a Claude Code session to another Claude Code session",
        "allow_same_agent=true. Other agents are reached by",
    ),
    "Claude to Claude, blank": (
        lambda: guards.check_same_agent(CLAUDE, CLAUDE_CALLER, session="  ", allowed=False),
        "same_agent", "not named", "send_to_codex",
    ),
    "Codex to Codex, unnamed": (
        lambda: guards.check_same_agent(CODEX, CODEX_CALLER, session="", allowed=False),
        "same_agent", "Codex session", "Pass session_id. Other agents are reached by send_to_claude",
    ),
    "Codex to Codex, allowed is not enough": (
        lambda: guards.check_same_agent(CODEX, CODEX_CALLER, session="", allowed=True),
        "same_agent", "Codex session", "Pass session_id.",
    ),
    "oneself": (
        lambda: guards.check_not_self(CLAUDE_CALLER, target("s1")),
        "own_session", "session s1 is the one that is calling", "Name another session",
    ),
    "who takes nothing": (
        lambda: guards.check_accepts(target("s1", accepts=False, why_not="its client pairs answers by order")),
        "not_accepting", "its client pairs answers by order", "which of them accept",
    ),
}  # fmt: skip


@pytest.mark.requirement("DE-05", "DE-51", "MC-05", "SE-29")
@pytest.mark.parametrize(("attempted", "code", "says", "next_step"), REFUSED.values(), ids=REFUSED)
def test_a_no_has_a_code_a_sentence_and_a_next_step(
    attempted: Callable[[], object], code: str, says: str, next_step: str
) -> None:
    with pytest.raises(Refusal) as caught:
        attempted()
    error = caught.value
    assert error.code == code
    assert says in str(error)
    assert next_step in error.next_step
    assert error.retry_safe
    assert error.as_result() == {
        "ok": False, "code": code, "error": str(error), "next_step": error.next_step, "retry_safe": True,
    }  # fmt: skip


ALLOWED: dict[str, Callable[[], object]] = {
    "one character": lambda: guards.check_text("x"),
    "the longest": lambda: guards.check_text("é" * MAX_CHARACTERS),
    "as long as Codex takes": lambda: guards.check_fits(CODEX, 1_044_480),
    "without a known limit": lambda: guards.check_fits(CLAUDE, 9_000_000),
    "named": lambda: guards.check_explicit_target(NAMED_ONLY, session="x", new=False),
    "new": lambda: guards.check_explicit_target(NAMED_ONLY, session="", new=True),
    "nothing demanded": lambda: guards.check_explicit_target(CallerSettings(), session="", new=False),
    "panels used": lambda: guards.check_any_route(CallerSettings(headless=False)),
    "the command line used": lambda: guards.check_any_route(CallerSettings(use_panels=False, use_doors=False)),
    "live doors used": lambda: guards.check_any_route(CallerSettings(use_panels=False, headless=False)),
    "to another agent": lambda: guards.check_same_agent(CODEX, CLAUDE_CALLER, session="", allowed=False),
    "from nobody known": lambda: guards.check_same_agent(CODEX, Caller(), session="", allowed=False),
    "Claude to Claude, named": lambda: guards.check_same_agent(CLAUDE, CLAUDE_CALLER, session="s2", allowed=False),
    "Claude to Claude, allowed": lambda: guards.check_same_agent(CLAUDE, CLAUDE_CALLER, session="", allowed=True),
    "Codex to Codex, named": lambda: guards.check_same_agent(CODEX, CODEX_CALLER, session="t2", allowed=False),
    "somebody else": lambda: guards.check_not_self(CLAUDE_CALLER, target("s2")),
    "the same id at another agent": lambda: guards.check_not_self(CODEX_CALLER, target("t1")),
    "nobody to somebody": lambda: guards.check_not_self(Caller(), target("s1")),
    "a conversation to come": lambda: guards.check_not_self(CLAUDE_CALLER, target("")),
    "who takes messages": lambda: guards.check_accepts(target()),
    "who is busy": lambda: guards.check_accepts(target(accepts_busy=False, turn_since=5.0)),
    "a panel without a conversation": lambda: guards.check_accepts(Selected(CLAUDE, target().panel, None, None, "new")),
}


@pytest.mark.requirement("DE-05", "DE-51", "SE-29")
@pytest.mark.parametrize("attempted", ALLOWED.values(), ids=ALLOWED)
def test_whatever_else_is_meant_may_be_sent(attempted: Callable[[], object]) -> None:
    attempted()


@pytest.mark.requirement("DE-51")
def test_a_session_never_sends_to_itself_by_whatever_way_it_was_found() -> None:
    world = World()
    panel = world.opens(SessionState("s1"), SessionState("s2"))
    for by in ("caller", "panel-focus", "new"):
        with pytest.raises(Refusal, match="the one that is calling"):
            guards.check_not_self(caller_in(panel, "s1"), Selected(CLAUDE, panel, panel.sessions[0], None, by))
        guards.check_not_self(caller_in(panel, "s1"), Selected(CLAUDE, panel, panel.sessions[1], None, by))


@pytest.mark.requirement("DE-50", "MC-05")
def test_a_spent_budget_says_whose_it_is_and_where_the_result_goes() -> None:
    error = guards.hop_limit("conv_1", 4)
    assert (error.code, str(error)) == ("hop_limit", "conversation conv_1 has spent its 4 hops")
    assert "own final message" in error.next_step
    assert error.retry_safe


@pytest.mark.requirement("DE-50", "MC-05")
def test_an_unknown_conversation_is_no_new_one() -> None:
    error = guards.unknown_conversation("conv_" + "x" * 500)
    assert error.code == "unknown_conversation"
    assert len(str(error)) < 100
    assert "conversation_id of a receipt" in error.next_step


@pytest.mark.requirement("DE-47", "DE-53")
@pytest.mark.parametrize(
    ("reach", "code"),
    [
        (Reach("headless", "", "", "/h"), ""),
        (Wait("the broker is stopped", 0), ""),
        (Wait("process 7 holds it", 3.0, "session_held"), "session_held"),
        (Unreachable("no_program", "no claude on its PATH"), "no_program"),
        (Unreachable("environment_lost", "gone"), "environment_lost"),
    ],
)
def test_what_hinders_a_turn_by_now_is_said_at_once(reach: Reach | Wait | Unreachable, code: str) -> None:
    selected = Selected(CLAUDE, None, None, None, "new")
    if not code:
        guards.check_startable(selected, reach)
        return
    with pytest.raises(Refusal) as caught:
        guards.check_startable(selected, reach)
    assert (caught.value.code, caught.value.retry_safe) == (code, True)
    assert isinstance(reach, (Wait, Unreachable)) and reach.reason in str(caught.value)
