"""The harness proves itself for Grok Build: the real agent, the ACP client, a scripted model, and a wrapper that does nothing.

Whatever fails here is no fault of a shim.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.real.binaries import GROK_VERSIONS, binary
from tests.real.exchange import Occupation, assert_turns
from tests.real.gates import Gate
from tests.real.homes import MARK, ClaudeHome, GrokHome
from tests.real.models import XaiModel
from tests.real.panels import GrokPanel, StreamEndedError
from tests.real.panels.grok import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.exchange import World

SERVER = [sys.executable, str(Path(__file__).with_name("small_mcp.py")), "HOME", "GROK_SESSION_ID", MARK]
ECHO = 'tool mcp__cross-agent__echo {"text": "over there"}'
TURNED_DOWN = "PermissionRejected"

pytestmark = pytest.mark.parametrize("version", GROK_VERSIONS)


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "harness")
    monkeypatch.setenv("GROK_SESSION_ID", "of somebody else")


@pytest.fixture
def xai() -> Iterator[XaiModel]:
    with XaiModel() as model:
        yield model


def grok_panel(home: GrokHome, version: str, patience: float = 0.1, **options: Any) -> GrokPanel:
    wrapper = home.path / "wrapper"
    wrapper.write_text('#!/bin/sh\nexec "$CROSS_AGENT_REAL_GROK" "$@"\n', encoding="utf-8")
    wrapper.chmod(0o755)
    return GrokPanel(wrapper, binary(f"grok-{version}"), home, patience=patience, **options)


def running(line: str) -> str:
    """The step of a script that runs ``line`` in a shell."""
    return f"tool run_terminal_command {json.dumps({'command': line, 'description': 'the test wants it'})}"


def test_grok_answers(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url)
    with grok_panel(home, version) as panel:
        assert panel.initialized["_meta"]["agentVersion"] == version
        session = panel.start_session()
        panel.say(session, "hello [[say one]]")
        turn = panel.wait_turn(session)
        assert (turn.stop_reason, turn.asked, turn.text) == ("end_turn", ("hello [[say one]]",), "one")
        panel.say(session, "plain words")
        panel.wait_turn(session, lambda turn: turn.text == "echo: plain words")
        assert len(panel.turns(session)) == 2
        assert (home.session_directory(session) / "updates.jsonl").exists()
    request = xai.wait_for_request(lambda request: "plain words" in request.texts)
    assert request.texts == ("plain words",)
    assert "run_terminal_command" in request.tools


@pytest.mark.full
def test_side_calls_consume_no_script(tmp_path: Path, xai: XaiModel, version: str) -> None:
    with grok_panel(GrokHome(tmp_path / "h", xai.url), version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[{running('true')} ;; say at last]]")
        panel.answer_permission()
        assert panel.wait_turn(session).text == "at last"
        title = panel.wait_update("session_info_update", session)
        assert title["title"] == "Scripted"
        xai.wait_for_request(lambda request: request.side and "session_title" in request.tools)
        xai.wait_for_request(lambda request: request.side and "run_terminal_command" in request.tools)


@pytest.mark.full
def test_long_prompts_are_seen_whole(tmp_path: Path, xai: XaiModel, version: str) -> None:
    text = "many lines [[say read]]\n" + "\n".join(f'{number} <b>&amp; "ä" \\' for number in range(3_000))
    with grok_panel(GrokHome(tmp_path / "h", xai.url), version) as panel:
        session = panel.start_session()
        panel.say(session, text)
        turn = panel.wait_turn(session)
        assert (turn.asked == (text,), turn.text) == (True, "read")
    assert xai.wait_for_request().texts == (text,)


def test_grok_streams_up_to_a_gate(tmp_path: Path, xai: XaiModel, version: str) -> None:
    gate = Gate(tmp_path)
    with grok_panel(GrokHome(tmp_path / "h", xai.url), version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[slow {gate} abcdef]]")
        assert panel.wait_update("agent_message_chunk", session)["content"]["text"] == "abc"
        assert panel.turns(session) == []
        gate.release()
        assert panel.wait_turn(session).text == "abcdef"


def test_grok_asks_before_a_command(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url)
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[{running('touch allowed')} ;; say did it]]")
        request = panel.wait_permission()
        assert (request.session_id, request.tool) == (session, "run_terminal_command")
        assert not (home.cwd / "allowed").exists()
        panel.answer_permission("allow_once")
        assert panel.wait_turn(session).text == "did it"
        assert (home.cwd / "allowed").exists()


@pytest.mark.full
def test_turn_ends_when_the_person_says_no(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url)
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[{running('touch denied')} ;; say never said]]")
        panel.answer_permission("reject_once")
        turn = panel.wait_turn(session)
        assert (turn.stop_reason, turn.text) == ("cancelled", "")
        complete = panel.wait_notification("_x.ai/session/prompt_complete", session)
        assert complete["cancellationCategory"] == TURNED_DOWN
        panel.say(session, "and now")
        panel.wait_turn(session, lambda turn: turn.text == "echo: and now")
        assert not (home.cwd / "denied").exists()


@pytest.mark.full
def test_grok_runs_an_allowed_command_unasked(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url, shell="allow")
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[{running('rm -rf nothing && touch allowed')} ;; say did it]]")
        assert panel.wait_turn(session).text == "did it"
        assert (home.cwd / "allowed").exists()
        assert panel.permissions() == []


def test_grok_calls_its_mcp_server(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url, SERVER)
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[comment going ;; {ECHO} ;; say came back]]")
        assert panel.wait_turn(session).text == "came back"
        assert panel.permissions() == []
    said = json.loads(xai.wait_for_request(lambda request: bool(request.results)).results[0].text)
    assert said["text"] == "over there"
    assert said["env"] == {"HOME": str(home.path), "GROK_SESSION_ID": session, MARK: "harness"}


def test_grok_asks_before_an_mcp_call(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url, SERVER, approve_tools=False)
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[{ECHO} ;; say came back]]")
        assert panel.wait_permission().tool == "cross-agent__echo"
        panel.answer_permission()
        assert panel.wait_turn(session).text == "came back"
    result = xai.wait_for_request(lambda request: bool(request.results)).results[0]
    assert "over there" in result.text


@pytest.mark.full
def test_no_mcp_server_of_claude_code_in_the_same_home_counts(tmp_path: Path, xai: XaiModel, version: str) -> None:
    ClaudeHome(tmp_path / "h", xai.url, SERVER)
    with grok_panel(GrokHome(tmp_path / "h", xai.url), version) as panel:
        session = panel.start_session()
        assert panel.wait_notification("_x.ai/mcp_initialized", session)["mcpToolCount"] == 0


@pytest.mark.full
def test_grok_queues_what_is_typed_meanwhile(tmp_path: Path, xai: XaiModel, version: str) -> None:
    gate = Gate(tmp_path)
    with grok_panel(GrokHome(tmp_path / "h", xai.url), version) as panel:
        session = panel.start_session()
        panel.say(session, f"first [[slow {gate} one]]")
        gate.reached()
        panel.say(session, "second [[say two]]", promptId="dlv_1")
        panel.wait(lambda message: _waiting(message, session) == ["dlv_1"])
        panel.say(session, "third [[say three]]", promptId="dlv_2")
        panel.wait(lambda message: _waiting(message, session) == ["dlv_1", "dlv_2"])
        panel.notify("x.ai/queue/remove", {"sessionId": session, "id": "dlv_1"})
        panel.wait(lambda message: (message.get("result") or {}).get("_meta", {}).get("completionKind") == "removedFromQueue")
        gate.release()
        panel.wait_turn(session, lambda turn: turn.prompt_id == "dlv_2")
        assert [(turn.asked[0][:5], turn.text) for turn in panel.turns(session)] == [("first", "one"), ("third", "three")]


def test_sessions_of_one_process_work_side_by_side(tmp_path: Path, xai: XaiModel, version: str) -> None:
    gate = Gate(tmp_path)
    with grok_panel(GrokHome(tmp_path / "h", xai.url, SERVER), version) as panel:
        one, other = panel.start_session(), panel.start_session()
        panel.say(one, f"[[slow {gate} from one]]")
        gate.reached()
        panel.say(other, f"[[{ECHO} ;; say from the other]]")
        assert panel.wait_turn(other).text == "from the other"
        assert panel.turns(one) == []
        gate.release()
        assert panel.wait_turn(one).text == "from one"
        panel.close_session(other)
        panel.say(one, "goes on")
        panel.wait_turn(one, lambda turn: turn.text == "echo: goes on")
    said = json.loads(xai.wait_for_request(lambda request: bool(request.results)).results[0].text)
    assert said["env"]["GROK_SESSION_ID"] == other


def test_end_of_a_sub_agent_begins_a_turn_that_nobody_asked_for(tmp_path: Path, xai: XaiModel, version: str) -> None:
    task = {"description": "help", "prompt": "your task [[say by the child]]", "subagent_type": "general-purpose"}
    with grok_panel(GrokHome(tmp_path / "h", xai.url, shell="allow"), version) as panel:
        session = panel.start_session()
        text = f"[[tool spawn_subagent {json.dumps(task)} ;; say delegated]]"
        panel.say(session, text)
        after = panel.wait_turn(session, lambda turn: turn.prompt_id.startswith("subagent-completed-"))
        assert (after.asked[0][:17], after.text) == ("<system-reminder>", "done")
        assert [(turn.asked, turn.text) for turn in panel.turns(session)[:-1]] == [((text,), "delegated")]
    assert xai.wait_for_request(lambda request: request.texts == (task["prompt"],))


def test_grok_is_interrupted_and_goes_on(tmp_path: Path, xai: XaiModel, version: str) -> None:
    with grok_panel(GrokHome(tmp_path / "h", xai.url), version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[slow {Gate(tmp_path)} never finished]]")
        panel.wait_update("agent_message_chunk", session)
        panel.interrupt(session)
        assert panel.wait_turn(session).stop_reason == "cancelled"
        panel.say(session, "[[fail not today]]")
        failed = panel.wait_turn(session, lambda turn: turn.stop_reason == "error")
        assert "not today" in (failed.error or "")
        panel.say(session, "still there")
        panel.wait_turn(session, lambda turn: turn.text == "echo: still there")


@pytest.mark.full
def test_stop_withdraws_an_open_approval(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url)
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[{running('touch denied')} ;; say never said]]")
        panel.wait_permission()
        panel.interrupt(session)
        assert panel.wait_turn(session).stop_reason == "cancelled"
        panel.say(session, "still there")
        panel.wait_turn(session, lambda turn: turn.text == "echo: still there")
        assert not (home.cwd / "denied").exists()


@pytest.mark.parametrize("replayed", [True, pytest.param(False, marks=pytest.mark.full)])
def test_grok_resumes_in_a_second_process(tmp_path: Path, xai: XaiModel, version: str, replayed: bool) -> None:
    home = GrokHome(tmp_path / "h", xai.url)
    with grok_panel(home, version, PATIENCE) as panel:
        session = panel.start_session()
        panel.say(session, "remember [[say noted]]")
        panel.wait_turn(session)
    with grok_panel(home, version) as panel:
        opened = panel.load_session(session) if replayed else panel.resume_session(session)
        assert opened == session
        if replayed:
            assert panel.wait_update("user_message_chunk", session)["content"]["text"] == "remember [[say noted]]"
        assert panel.turns(session) == []  # what is replayed is no turn
        panel.say(session, "and now")
        assert panel.wait_turn(session).text == "echo: and now"
    request = xai.wait_for_request(lambda request: "and now" in request.texts)
    assert "remember" in json.dumps(request.body["messages"])


@pytest.mark.full
def test_prompts_come_back_where_the_client_asks_for_them(tmp_path: Path, xai: XaiModel, version: str) -> None:
    home = GrokHome(tmp_path / "h", xai.url)
    with grok_panel(home, version, echo=True) as panel:
        session = panel.start_session()
        panel.say(session, "hello")
        assert panel.wait_update("user_message_chunk", session)["content"]["text"] == "hello"
        panel.wait_turn(session)
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, "hello")
        panel.wait_turn(session)
        kinds = {(message.get("params") or {}).get("update", {}).get("sessionUpdate") for message in panel.messages.messages()}
        assert "user_message_chunk" not in kinds


@pytest.mark.full
def test_end_of_input_ends_grok(tmp_path: Path, xai: XaiModel, version: str) -> None:
    before = set(threading.enumerate())
    panel = grok_panel(GrokHome(tmp_path / "h", xai.url, SERVER), version, 20.0)
    panel.start_session()
    panel.close()
    assert panel.exit_status == 0  # and no signal was needed
    assert set(threading.enumerate()) == before
    with pytest.raises(StreamEndedError):
        panel.wait_permission()


def test_panel_gives_grok_nothing_of_the_developer(
    tmp_path: Path, xai: XaiModel, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROK_CLI_CHAT_PROXY_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("LOGNAME", "developer")
    home = GrokHome(tmp_path / "h", xai.url, shell="allow")
    with grok_panel(home, version) as panel:
        session = panel.start_session()
        panel.say(session, f"[[{running('env > environment')} ;; say done]]")
        panel.wait_turn(session)
        environment = Path(f"/proc/{panel.shim_pid}/environ").read_bytes().decode().rstrip("\0").split("\0")
    assert dict(line.split("=", 1) for line in environment) == {
        **home.environment(),
        "CROSS_AGENT_REAL_GROK": str(binary(f"grok-{version}")),
        "PWD": str(home.cwd),
    }


def test_grok_speaks_to_nobody_but_the_model(tmp_path: Path, xai: XaiModel, version: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        there = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        with grok_panel(
            GrokHome(tmp_path / "h", xai.url), version, extra_env={"HTTPS_PROXY": there, "HTTP_PROXY": there}
        ) as panel:
            session = panel.start_session()
            panel.say(session, "hello")
            panel.wait_turn(session)
            xai.wait_for_request(lambda request: request.side and "run_terminal_command" in request.tools)
        with pytest.raises(BlockingIOError):  # nobody has come
            proxy.accept()


@pytest.mark.full
def test_grok_is_a_party(world: World, version: str) -> None:
    party = world.open(f"grok-{version}", shell="allow")
    assert (party.agent, party.version, party.tool) == ("grok", version, "send_to_grok")
    assert "deliveries" in party.call("bridge_status", scope="any")
    work = Occupation(party, world.gate(), "tool")
    work.begun()
    work.end()
    assert work.turn in party.turns()
    party.interrupt()  # of nothing
    assert party.call("send_to_codex", message="", session_id="nobody")["error"]


@pytest.mark.full
def test_approvals_of_a_grok_party(world: World, version: str) -> None:
    party = world.open(f"grok-{version}")
    work = Occupation(party, world.gate(), "approval")
    work.begun()
    assert party.wait_approval() == "run_terminal_command"
    work.end()
    assert_turns(party, work.turn)


def _waiting(message: dict[str, Any], session: str) -> list[str]:
    """The ids in the queue, if ``message`` tells them of that session."""
    if message.get("method") != "_x.ai/queue/changed" or message["params"]["sessionId"] != session:
        return []
    return [entry["id"] for entry in message["params"]["entries"]]
