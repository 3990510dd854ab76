"""The parts of the harness that need no agent: what a script makes of a conversation, what a panel makes of messages."""

from __future__ import annotations

from typing import Any

from tests.real.models.plan import Event, Order, newest, newest_script, response, unfold
from tests.real.panels import GrokTurn
from tests.real.panels.grok_turns import turns_of


def test_comments_travel_with_the_next_step() -> None:
    order = "[[comment a ;; comment b ;; tool t ;; comment c]]"
    assert [step.verb for step in response(Order(order, 0))] == ["comment", "comment", "tool"]
    assert [step.text for step in response(Order(order, 1))] == ["c"]
    assert [step.text for step in response(Order("[[say x]]", 1))] == ["done"]


def test_newest_message_governs() -> None:
    old, new, result = Event("text", "[[say x]]"), Event("text", "plain"), Event("result")
    assert newest([old, result, new]) == Order("plain", 0)
    assert newest_script([old, result, new]) == Order("[[say x]]", 1)
    assert newest_script([old, result, Event("end"), new, result]) == Order("plain", 1)
    assert newest_script([old, new], {"[[say x]]"}) == Order("plain", 0)


def test_folded_words_are_unwrapped() -> None:
    folded = "The user sent a new message while you were working:\nhi\nthere\n\nIMPORTANT: After completing your current task, …"
    assert unfold(folded) == "hi\nthere"
    assert unfold("hi") == "hi"


def test_turns_of_grok_are_told_from_its_messages() -> None:
    def said(text: str, **meta: Any) -> dict[str, Any]:
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        return {"method": "session/update", "params": {"sessionId": "s", "update": update, "_meta": {"promptId": "p", **meta}}}

    def told(method: str, session: str = "s", **params: Any) -> dict[str, Any]:
        return {"method": f"_x.ai/{method}", "params": {"sessionId": session, **params}}

    ended = {"sessionUpdate": "turn_completed", "prompt_id": "p", "stop_reason": "end_turn"}
    tool = said("")
    tool["params"]["update"] = {"sessionUpdate": "tool_call"}
    messages = [
        said("of an earlier process", eventId="s-1", isReplay=True),
        told("session/update", update=ended),  # so does a replay tell an end
        told("queue/changed", entries=[], runningPromptId="p", runningText="hello"),
        said("> put in front"),
        said("let me see", eventId="s-2"),
        tool,
        told("session/interjection", text="quickly"),
        said("o", eventId="s-3"),
        told("session_notification", "another", update=ended),
        said("ne", eventId="s-4"),
        told("session_notification", update=ended),
    ]
    assert turns_of(messages[:-1], "s") == []
    assert turns_of(messages, "s") == [GrokTurn("p", "s", "end_turn", ("hello", "quickly"), "one", "> put in front", None)]
