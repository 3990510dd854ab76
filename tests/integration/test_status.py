"""What `bridge_status` shows while a message is on its way, and afterwards (MC-04)."""

from __future__ import annotations

import os
import time

import pytest

from tests.integration.exchanges import gate, open_gate, settled
from tests.integration.world import World


@pytest.mark.requirement("MC-04", "MC-03", "DE-02", "DE-03")
@pytest.mark.parametrize("kind", ["claude", "codex", "grok"])
def test_a_delivery_is_shown_with_its_peer_as_it_is(world: World, kind: str) -> None:
    target = world.open(kind)
    target.registered()
    client = world.mcp()
    client.shake_hands()
    held = gate(world, "g")

    receipt = client.call(f"send_to_{target.agent}", message=f"ping [[slowreply {held} pong]]", session_id=target.session)

    assert receipt["ok"], receipt
    assert {warning["code"] for warning in receipt["warnings"]} >= {"unknown_caller"}
    assert receipt["reply_lands_in_session"] is None
    # That the message was taken is told before the turn that it begins.
    awaited = settled(client, receipt["delivery_id"], "awaiting-peer", lambda shown: shown["peer_panel"]["turn_running"])
    listed = client.call("list_agent_sessions", scope="any", agent=target.agent)["sessions"]
    assert [(s["id"], s["busy"], s["awaiting_approval"]) for s in listed] == [(target.session, True, None)]
    assert awaited["peer_panel"] == {"turn_running": True, "awaiting_approval": None, "queue_paused": False}
    assert awaited["peer_transcript"]["is_working"]
    overview = client.call("bridge_status", scope="any")
    assert [d["delivery_id"] for d in overview["deliveries"]["pending"]] == [receipt["delivery_id"]]
    assert overview["caller"] == {"agent": None, "session": None, "identified_by": "unknown", "window_pid": os.getpid()}
    assert overview["server_process"]["mcp_process"] == client.process.pid
    assert {"pid", "version", "generation", "uptime_seconds"} <= overview["server_process"].keys()

    open_gate(held)

    shown = settled(client, receipt["delivery_id"], "delivered")
    assert shown["delivery"]["reply_preview"] == "pong"
    assert shown["delivery"]["is_return_status_only"], "the caller has no session that an answer could go to"
    assert not shown["peer_transcript"]["is_working"]
    assert shown["peer_transcript"]["answer"].startswith("pong"), "the full answer is read from the peer's transcript"
    assert [attempt["evidence"] for attempt in shown["attempts"]] == ["answered"]
    assert client.call("bridge_status", scope="any")["deliveries"]["pending"] == []


@pytest.mark.alone
@pytest.mark.requirement("MC-04")
def test_an_approval_is_shown_within_a_second(world: World) -> None:
    target = world.grok()
    target.registered()
    client = world.mcp()
    client.shake_hands()
    client.call("bridge_status", scope="any")
    target.say('[[tool run_terminal_command {"command": "rm -rf nothing", "description": "d"} ;; say done]]')
    target.asked()
    asked = time.monotonic()
    shown = None
    while shown is None:
        panels = client.call("bridge_status", scope="any")["ide_panels"]
        (shown,) = [session["awaiting_approval"] for panel in panels for session in panel["sessions"]]
        assert time.monotonic() - asked < 1.0
    assert shown["tool"] and shown["seconds"] <= 1
