"""The harness of the real agent host proves itself: it starts, answers a scripted turn, and leaves nothing behind.

Whatever fails here is no fault of the bridge.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.real.gates import Gate
from tests.real.homes import MARK
from tests.real.host.client import HostWindow
from tests.real.host.installation import HOW, installed
from tests.real.host.model import MODEL, OTHER_MODEL, HostModel
from tests.real.host.process import AgentHost

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(installed() is None, reason=HOW)

SERVER = [sys.executable, str(Path(__file__).with_name("small_mcp.py")), "COPILOT_AGENT_SESSION_ID", MARK]
ECHO = 'tool mcp__cross-agent__echo {"text": "over there"}'


@pytest.fixture
def model() -> Iterator[HostModel]:
    with HostModel() as made:
        yield made


def test_the_host_answers_a_scripted_turn(tmp_path: Path, model: HostModel) -> None:
    with AgentHost(tmp_path, model.url) as host, HostWindow(host.endpoint) as window:
        assert host.endpoint.protocol == window.initialized["protocolVersion"] == "0.9.0"
        assert host.endpoint.pid == host.process.pid
        chat = window.new_chat(host.cwd)
        turn = window.wait_turn(chat, window.say(chat, "hello [[say one]]"))
        assert (turn.said, turn.text, turn.ended) == ("hello [[say one]]", "one", "complete")
        other = window.say(chat, "plain words", model={"id": OTHER_MODEL})
        assert window.wait_turn(chat, other).text == "echo: plain words"
        assert [each.text for each in window.turns(chat)] == ["one", "echo: plain words"]
    first, second = model.requests
    assert (first.texts, first.body["modelId"], second.texts, second.body["modelId"]) == (
        ("hello [[say one]]",),
        MODEL.partition("/")[2],
        ("plain words",),
        OTHER_MODEL.partition("/")[2],
    )


def test_the_host_leaves_nothing_behind(tmp_path: Path, model: HostModel) -> None:
    with AgentHost(tmp_path, model.url, mcp_command=SERVER) as host, HostWindow(host.endpoint) as window:
        chat = window.new_chat(host.cwd)
        window.wait_turn(chat, window.say(chat, "hello"))
        caused = host.processes()
        socket = host.endpoint.socket
        assert len(caused) >= 3
    assert not [process for process in caused if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
    assert not socket.parent.parent.exists()


def test_a_tool_asks_and_runs(tmp_path: Path, model: HostModel) -> None:
    with AgentHost(tmp_path, model.url, mcp_command=SERVER) as host, HostWindow(host.endpoint) as window:
        chat = window.new_chat(host.cwd)
        turn = window.say(chat, f"[[{ECHO} ;; say done it]]")
        request = window.wait_approval(chat)
        assert request["turnId"] == turn
        window.answer(chat, request, approved=True)
        assert window.wait_turn(chat, turn).text == "done it"
    told = json.loads(model.requests[-1].results[0].text)
    assert told["text"] == "over there"
    assert told["env"]["COPILOT_AGENT_SESSION_ID"]
    assert told["env"][MARK] == os.environ[MARK]


def test_a_tool_runs_unasked_where_the_session_allows_all(tmp_path: Path, model: HostModel) -> None:
    with AgentHost(tmp_path, model.url, mcp_command=SERVER) as host, HostWindow(host.endpoint) as window:
        chat = window.new_chat(host.cwd, approvals="autoApprove")
        assert window.wait_turn(chat, window.say(chat, f"[[{ECHO} ;; say done it]]")).text == "done it"


def test_a_turn_is_cancelled(tmp_path: Path, model: HostModel) -> None:
    gate = Gate(tmp_path)
    with AgentHost(tmp_path, model.url) as host, HostWindow(host.endpoint) as window:
        chat = window.new_chat(host.cwd)
        turn = window.say(chat, f"[[slow {gate} never said]]")
        gate.reached()
        window.cancel(chat, turn)
        assert window.wait_turn(chat, turn).ended == "cancelled"
        assert window.wait_turn(chat, window.say(chat, "[[say still here]]")).text == "still here"
