"""A turn that was refused a tool still answers, and its answer names the tool (EN-15)."""

from __future__ import annotations

import json

import pytest

from tests.integration.command_lines import Turns

pytestmark = pytest.mark.requirement("EN-15")

_CALLS = {
    "claude": ("Bash", {"command": "true"}, "Bash"),
    "codex": ("exec_command", {"cmd": "true", "sandbox_permissions": "require_escalated"}, ""),
    "grok": ("run_terminal_command", {"command": "rm x", "description": "d"}, "run_terminal_command"),
}


@pytest.fixture
def world(turns: Turns) -> Turns:
    return turns


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_answer_and_the_status_name_what_was_denied(world: Turns, agent: str) -> None:
    tool, arguments, _ = _CALLS[agent]
    sender = world.open("grok", session=True)
    sender.registered()
    script = f"tool {tool} {json.dumps(arguments)} ;; reply pong M1"
    call = {"message": world.message("M1", script), "new_session": True, "cwd": str(world.work)}
    sender.say(f"[[tool mcp__cross-agent__send_to_{agent} {json.dumps(call)} ;; say sent]]")
    receipt = sender.wait_receipt()
    reply = sender.wait_reply("pong M1")
    status = world.client.call("bridge_status", delivery_id=receipt["delivery_id"])["delivery"]
    assert status["state"] == "delivered"
    assert status["denied"], status
    assert all(name in reply for name in status["denied"]), reply


def test_a_turn_that_ended_for_want_of_an_approval_says_so(world: Turns) -> None:
    tool, arguments, _ = _CALLS["grok"]
    receipt = world.send(
        world.client, "grok", world.message("M1", f"tool {tool} {json.dumps(arguments)} ;; reply pong"), new_session=True
    )
    failed = world.ended(receipt)
    assert (failed["state"], failed["error_code"], failed["handed_over"]) == ("failed", "approval_needed", True), failed
    assert tool in failed["error"] and "CROSS_AGENT_GROK_PERMISSION_MODE" in failed["error"]
