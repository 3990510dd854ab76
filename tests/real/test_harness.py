"""The harness proves itself: real agents, real clients, scripted models, and a wrapper that does nothing.

Whatever fails here is no fault of a shim.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from claude_agent_sdk import StreamEvent

from tests.real.binaries import CLAUDE_VERSIONS, CODEX_VERSIONS, binary
from tests.real.gates import Gate
from tests.real.homes import MARK, ClaudeHome, CodexHome
from tests.real.models import AnthropicModel, OpenAIModel
from tests.real.panels import ClaudePanel, CodexPanel, StreamEndedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from claude_agent_sdk import Message

SERVER = [sys.executable, str(Path(__file__).with_name("small_mcp.py")), "HOME", MARK]
ECHO = 'tool mcp__cross-agent__echo {"text": "over there"}'


def newest_first(versions: Sequence[str]) -> pytest.MarkDecorator:
    """The newest release always; that the harness is right with older ones as well shows in every other test with them."""
    older = [pytest.param(version, marks=pytest.mark.full) for version in versions[1:]]
    return pytest.mark.parametrize("version", [versions[0], *older])


claude_versions = newest_first(CLAUDE_VERSIONS)
codex_versions = newest_first(CODEX_VERSIONS)


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "harness")
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "of somebody else")


@pytest.fixture
def anthropic() -> Iterator[AnthropicModel]:
    with AnthropicModel() as model:
        yield model


@pytest.fixture
def openai() -> Iterator[OpenAIModel]:
    with OpenAIModel() as model:
        yield model


def wrapper(directory: Path, line: str) -> Path:
    path = directory / "wrapper"
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def claude_panel(home: ClaudeHome, version: str, **options: Any) -> ClaudePanel:
    return ClaudePanel(wrapper(home.path, 'exec "$@"'), binary(f"claude-{version}"), home, **options)


def codex_panel(home: CodexHome, version: str, **options: Any) -> CodexPanel:
    return CodexPanel(wrapper(home.path, 'exec "$CROSS_AGENT_REAL_CODEX" "$@"'), binary(f"codex-{version}"), home, **options)


def is_delta(message: Message) -> bool:
    return isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta"


# Claude Code


@claude_versions
def test_claude_answers(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    home = ClaudeHome(tmp_path / "h", anthropic.url)
    with claude_panel(home, version) as panel:
        assert panel.shim_pid == panel.agent_pid
        early = panel.session_id
        panel.say("hello [[say one]]")
        panel.wait_result()
        panel.say("plain words")
        panel.wait_result(2)
        assert panel.results() == panel.texts() == ["one", "echo: plain words"]
        assert panel.user_texts() == ["hello [[say one]]", "plain words"]
        assert panel.session_id == early
    assert home.registry() == []
    request = anthropic.wait_for_request(lambda request: "plain words" in request.texts)
    assert request.texts == ("plain words",)
    assert "Bash" in request.tools


@claude_versions
def test_claude_streams_up_to_a_gate(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    gate = Gate(tmp_path)
    with claude_panel(ClaudeHome(tmp_path / "h", anthropic.url), version) as panel:
        panel.say(f"[[slow {gate} abcdef]]")
        first = panel.wait(is_delta)
        assert isinstance(first, StreamEvent)
        assert first.event["delta"]["text"] == "abc"
        assert panel.results() == []
        gate.release()
        assert panel.wait_result().result == "abcdef"


@claude_versions
def test_claude_asks_before_a_command(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    home = ClaudeHome(tmp_path / "h", anthropic.url)
    with claude_panel(home, version) as panel:
        panel.say('[[tool Bash {"command": "touch allowed"} ;; say did it]]')
        request = panel.wait_permission()
        assert (request.tool, request.input["command"]) == ("Bash", "touch allowed")
        assert not (home.cwd / "allowed").exists()
        panel.answer_permission(True)
        assert panel.wait_result().result == "did it"
        assert (home.cwd / "allowed").exists()
        panel.say('[[tool Bash {"command": "touch denied"} ;; say did not]]')
        panel.answer_permission(False)
        assert panel.wait_result(2).result == "did not"
        assert not (home.cwd / "denied").exists()


@claude_versions
def test_claude_runs_an_allowed_command_unasked(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    home = ClaudeHome(tmp_path / "h", anthropic.url, shell="allow")
    with claude_panel(home, version) as panel:
        panel.say('[[tool Bash {"command": "touch allowed"} ;; say did it]]')
        assert panel.wait_result().result == "did it"
        assert (home.cwd / "allowed").exists()
        assert panel.permissions() == []


@claude_versions
def test_claude_calls_its_mcp_server(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    home = ClaudeHome(tmp_path / "h", anthropic.url, SERVER)
    with claude_panel(home, version) as panel:
        panel.say(f"[[comment going ;; {ECHO} ;; say came back]]")
        assert panel.wait_result().result == "came back"
        assert panel.permissions() == []
        assert panel.texts() == ["going", "came back"]
    said = json.loads(anthropic.wait_for_request(lambda request: bool(request.results)).results[0].text)
    assert said["text"] == "over there"
    assert said["env"] == {"HOME": str(home.path), MARK: "harness"}
    assert "claudecode/toolUseId" in said["meta"]


@claude_versions
def test_claude_asks_before_an_mcp_call(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    home = ClaudeHome(tmp_path / "h", anthropic.url, SERVER, approve_tools=False)
    with claude_panel(home, version) as panel:
        panel.say(f"[[{ECHO} ;; say came back]]")
        assert panel.wait_permission().tool == "mcp__cross-agent__echo"
        panel.answer_permission(True)
        assert panel.wait_result().result == "came back"
    assert "over there" in anthropic.requests[-1].results[0].text


@claude_versions
def test_claude_folds_a_message_into_a_running_turn(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    home = ClaudeHome(tmp_path / "h", anthropic.url)
    with claude_panel(home, version) as panel:
        panel.say('[[tool Bash {"command": "true"} ;; say the first]]')
        panel.wait_permission()
        panel.say("wait [[say the second]]")
        panel.answer_permission(True)
        assert panel.wait_result().result == "the second"
    assert anthropic.requests[-1].texts == ("wait [[say the second]]",)


@claude_versions
def test_claude_is_interrupted_and_goes_on(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    with claude_panel(ClaudeHome(tmp_path / "h", anthropic.url), version) as panel:
        panel.say(f"[[slow {Gate(tmp_path)} never finished]]")
        panel.wait(is_delta)
        panel.interrupt()
        assert panel.wait_result().is_error
        panel.say("[[fail not today]]")
        assert "not today" in (panel.wait_result(2).result or "")
        panel.say("still there")
        assert panel.wait_result(3).result == "echo: still there"


@claude_versions
def test_claude_resumes_in_a_second_process(tmp_path: Path, anthropic: AnthropicModel, version: str) -> None:
    home = ClaudeHome(tmp_path / "h", anthropic.url)
    with claude_panel(home, version) as panel:
        panel.say("remember [[say noted]]")
        panel.wait_result()
        session = panel.session_id
    with claude_panel(home, version, resume=session) as panel:
        panel.say("and now")
        assert panel.wait_result().result == "echo: and now"
        assert panel.session_id == session
    assert "remember" in json.dumps(anthropic.requests[-1].body["messages"])


# Codex


@codex_versions
def test_codex_answers(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    home = CodexHome(tmp_path / "h", openai.url)
    with codex_panel(home, version) as panel:
        assert f"/{version} " in panel.user_agent
        thread = panel.start_thread()
        assert home.has_writer(thread)
        panel.say(thread, "hello [[say one]]", client_id="mine")
        turn = panel.wait_turn(thread)
        assert (turn.status, turn.text, turn.user_texts) == ("completed", "one", ("hello [[say one]]",))
        assert turn.client_ids == ("mine",)
        panel.say(thread, "plain words")
        panel.wait_turn(thread, lambda turn: turn.text == "echo: plain words")
        assert len(panel.turns(thread)) == 2
    assert openai.requests[-1].texts == ("plain words",)
    assert "exec_command" in openai.requests[-1].tools


@codex_versions
def test_codex_streams_up_to_a_gate(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    gate = Gate(tmp_path)
    with codex_panel(CodexHome(tmp_path / "h", openai.url), version) as panel:
        thread = panel.start_thread()
        panel.say(thread, f"[[slow {gate} abcdef]]")
        assert panel.wait_notification("item/agentMessage/delta", thread)["delta"] == "abc"
        assert panel.turns(thread) == []
        gate.release()
        assert panel.wait_turn(thread).text == "abcdef"


@codex_versions
def test_codex_asks_before_a_command(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    home = CodexHome(tmp_path / "h", openai.url)
    call = {"sandbox_permissions": "require_escalated", "justification": "the test wants it"}
    with codex_panel(home, version) as panel:
        thread = panel.start_thread()
        panel.say(thread, f"[[tool exec_command {json.dumps({'cmd': 'touch allowed', **call})} ;; say did it]]")
        request = panel.wait_approval()
        assert (request.method, request.thread_id) == ("item/commandExecution/requestApproval", thread)
        assert not (home.cwd / "allowed").exists()
        panel.answer_approval("accept")
        assert panel.wait_turn(thread).text == "did it"
        assert (home.cwd / "allowed").exists()
        panel.say(thread, f"[[tool exec_command {json.dumps({'cmd': 'touch denied', **call})} ;; say did not]]")
        panel.answer_approval("decline")
        panel.wait_turn(thread, lambda turn: turn.text == "did not")
        assert not (home.cwd / "denied").exists()


@codex_versions
def test_codex_runs_an_allowed_command_unasked(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    home = CodexHome(tmp_path / "h", openai.url, shell="allow")
    with codex_panel(home, version) as panel:
        thread = panel.start_thread()
        panel.say(thread, '[[tool exec_command {"cmd": "touch allowed"} ;; say did it]]')
        assert panel.wait_turn(thread).text == "did it"
        assert (home.cwd / "allowed").exists()
        assert panel.approvals() == []


@codex_versions
def test_codex_calls_its_mcp_server(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    home = CodexHome(tmp_path / "h", openai.url, SERVER)
    with codex_panel(home, version) as panel:
        thread = panel.start_thread()
        panel.say(thread, f"[[comment going ;; {ECHO} ;; say came back]]")
        assert panel.wait_turn(thread).text == "came back"
        assert panel.approvals() == []
    result = openai.wait_for_request(lambda request: bool(request.results)).results[0].text
    for piece in ("over there", str(home.path), "harness", "x-codex-turn-metadata", thread):
        assert piece in result


@codex_versions
def test_codex_asks_before_an_mcp_call(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    home = CodexHome(tmp_path / "h", openai.url, SERVER, approve_tools=False)
    with codex_panel(home, version) as panel:
        thread = panel.start_thread()
        panel.say(thread, f"[[{ECHO} ;; say came back]]")
        assert panel.wait_approval().method == "mcpServer/elicitation/request"
        panel.answer_approval("accept")
        assert panel.wait_turn(thread).text == "came back"
    assert "over there" in openai.requests[-1].results[0].text


@codex_versions
def test_codex_is_interrupted_and_goes_on(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    with codex_panel(CodexHome(tmp_path / "h", openai.url), version) as panel:
        thread = panel.start_thread()
        panel.say(thread, f"[[slow {Gate(tmp_path)} never finished]]")
        panel.wait_notification("item/agentMessage/delta", thread)
        panel.interrupt(thread)
        assert panel.wait_turn(thread).status == "interrupted"
        panel.say(thread, "[[fail not today]]")
        failed = panel.wait_turn(thread, lambda turn: turn.status == "failed")
        assert "not today" in json.dumps(failed.error)
        panel.say(thread, "still there")
        panel.wait_turn(thread, lambda turn: turn.text == "echo: still there")


@codex_versions
def test_codex_turn_of_comments_alone(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    with codex_panel(CodexHome(tmp_path / "h", openai.url), version) as panel:
        thread = panel.start_thread()
        panel.say(thread, "[[comment just thinking]]")
        assert panel.wait_turn(thread).text == "just thinking"


@codex_versions
def test_codex_resumes_in_a_second_process(tmp_path: Path, openai: OpenAIModel, version: str) -> None:
    home = CodexHome(tmp_path / "h", openai.url)
    with codex_panel(home, version) as panel:
        thread = panel.start_thread()
        panel.say(thread, "remember [[say noted]]")
        panel.wait_turn(thread)
    assert not home.has_writer(thread)
    with codex_panel(home, version) as panel:
        assert panel.resume_thread(thread) == thread
        panel.say(thread, "and now")
        assert panel.wait_turn(thread).text == "echo: and now"
    assert "remember" in json.dumps(openai.requests[-1].body["input"])


# Both


def test_both_agents_share_a_home(tmp_path: Path, anthropic: AnthropicModel, openai: OpenAIModel) -> None:
    claude_home = ClaudeHome(tmp_path / "h", anthropic.url, SERVER)
    codex_home = CodexHome(tmp_path / "h", openai.url, SERVER)
    assert claude_home.cwd == codex_home.cwd
    script = f"[[{ECHO} ;; say came back]]"
    with claude_panel(claude_home, CLAUDE_VERSIONS[0]) as claude, codex_panel(codex_home, CODEX_VERSIONS[0]) as codex:
        thread = codex.start_thread()
        claude.say(script)
        codex.say(thread, script)
        assert claude.wait_result().result == codex.wait_turn(thread).text == "came back"


def test_panel_gives_its_agent_nothing_of_the_developer(
    tmp_path: Path, anthropic: AnthropicModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/nowhere")
    home = ClaudeHome(tmp_path / "h", anthropic.url)
    listing = tmp_path / "environment"
    noting = wrapper(home.path, f'env > "{listing}"\nexec "$@"')
    with ClaudePanel(noting, binary(f"claude-{CLAUDE_VERSIONS[0]}"), home) as panel:
        assert panel.initialized["pid"]
    lines = listing.read_text(encoding="utf-8").splitlines()
    assert f"{MARK}=harness" in lines
    assert "CLAUDE_CODE_ENTRYPOINT=sdk-py" in lines
    assert not [line for line in lines if line.startswith(("CLAUDE_CONFIG_DIR=", "CLAUDE_CODE_SESSION_ID="))]


def test_agent_that_dies_ends_every_wait(tmp_path: Path, openai: OpenAIModel) -> None:
    with codex_panel(CodexHome(tmp_path / "h", openai.url), CODEX_VERSIONS[0]) as panel:
        thread = panel.start_thread()
        os.kill(panel.shim_pid, 9)
        with pytest.raises(StreamEndedError):
            panel.wait_turn(thread)


def test_model_that_closes_leaves_no_thread_at_a_gate(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with OpenAIModel() as model:
        panel = codex_panel(CodexHome(tmp_path / "h", model.url), CODEX_VERSIONS[0])
        thread = panel.start_thread()
        panel.say(thread, f"[[slow {Gate(tmp_path)} never finished]]")
        model.wait_for_request()
    assert panel.wait_turn(thread).status == "failed"
    panel.close()
    assert set(threading.enumerate()) == before
