"""The Claude stub behaves as Claude Code was measured to: every test here tells what a client of it sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.requirement("MC-25")

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "shims" / "claude" / "stub" / "__main__.py"
ARGV = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
PANEL = ["--permission-prompt-tool", "stdio", "--include-partial-messages", "--replay-user-messages"]
MODERN, OLD = "2.1.332", "2.1.197"
PATIENCE = 20.0

MCP_SERVER = """
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "initialize":
        info = {"name": "s", "version": "1"}
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {}, "serverInfo": info}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    else:
        seen = {"meta": m["params"]["_meta"], "args": m["params"]["arguments"]}
        seen |= {"env": os.environ["CLAUDE_CODE_SESSION_ID"], "ppid": os.getppid()}
        r = {"content": [{"type": "text", "text": json.dumps(seen)}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""


class Home:
    """A throw-away home and working directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / ".claude"
        self.work = path / "proj"
        self.work.mkdir(parents=True)
        self._agents: list[Agent] = []

    def start(self, *extra: str, version: str = MODERN, cwd: Path | None = None, panel: bool = True) -> Agent:
        agent = Agent(self, [*ARGV, *(PANEL if panel else []), *extra], version, cwd or self.work)
        self._agents.append(agent)
        return agent

    def transcript(self, session_id: str) -> list[dict[str, Any]]:
        (path,) = self.config.glob(f"projects/*/{session_id}.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def close(self) -> None:
        for agent in self._agents:
            agent.kill()


class Agent:
    """A stub process and everything that it said."""

    def __init__(self, home: Home, argv: list[str], version: str, cwd: Path) -> None:
        self.home = home
        env = {"HOME": str(home.path), "PATH": os.environ["PATH"], "STUB_CLAUDE_VERSION": version}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(STUB), *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
        )
        self.frames: list[dict[str, Any]] = []
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.frames.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # tell

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, *lines: dict[str, Any]) -> None:
        self.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    def say(self, text: str, **fields: Any) -> str:
        identity: str = fields.pop("uuid", None) or str(uuid.uuid4())
        self.send(user_line(text, uuid=identity, **fields))
        return identity

    def control(self, subtype: str, **fields: Any) -> dict[str, Any]:
        request_id = str(uuid.uuid4())
        self.send({"type": "control_request", "request_id": request_id, "request": {"subtype": subtype, **fields}})
        frame = self.wait(lambda frame: frame["type"] == "control_response" and frame["response"]["request_id"] == request_id)
        response: dict[str, Any] = frame["response"]
        return response

    def answer(self, question: dict[str, Any], **response: Any) -> None:
        inner = {"subtype": "success", "request_id": question["request_id"], "response": response}
        self.send({"type": "control_response", "response": inner})

    def end(self) -> int:
        """Closes stdin and waits for the exit."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.exit_code()

    def exit_code(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    # hear

    def wait(self, wanted: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        """The first frame from ``after`` on that is wanted."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            at = after
            while True:
                while at < len(self.frames):
                    if wanted(self.frames[at]):
                        return self.frames[at]
                    at += 1
                assert not self._ended, f"the stub ended without it; it said {self.frames}"
                assert self._changed.wait(deadline - time.monotonic()), f"it never came; the stub said {self.frames}"

    def results(self, count: int) -> list[dict[str, Any]]:
        """The first ``count`` results, when they are there."""
        found: list[dict[str, Any]] = []
        at = 0
        for _ in range(count):
            frame = self.wait(lambda frame: frame["type"] == "result", at)
            at = self.frames.index(frame) + 1
            found.append(frame)
        return found

    def question(self) -> dict[str, Any]:
        return self.wait(lambda frame: frame["type"] == "control_request")

    def streaming(self, text: str) -> None:
        """Until the model is in the middle of an answer that begins with ``text``."""
        self.wait(lambda frame: frame["type"] == "stream_event" and frame["event"].get("delta", {}).get("text") == text)

    def lifecycle(self, identity: str) -> list[str]:
        return [frame["state"] for frame in self.frames if frame.get("command_uuid") == identity]

    def replayed(self) -> list[Any]:
        return [frame["message"]["content"] for frame in self.frames if frame.get("isReplay")]

    def record(self) -> dict[str, Any]:
        path = self.home.config / "sessions" / f"{self.process.pid}.json"
        value: dict[str, Any] = json.loads(path.read_text())
        return value

    def is_registered(self) -> bool:
        return (self.home.config / "sessions" / f"{self.process.pid}.json").exists()

    def stderr(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def user_line(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": None, **fields}


def open_gate(path: Path) -> None:
    """Lets a slow step go on; blocks until the stub has come to it."""
    path.open("w").close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


versions = pytest.mark.parametrize("version", [MODERN, OLD])


def test_version() -> None:
    run = subprocess.run([sys.executable, "-I", "-S", STUB, "--version"], capture_output=True, text=True, check=True)
    assert run.stdout == "2.1.332 (Claude Code)\n"


# one turn


@versions
def test_a_turn_from_init_to_result(home: Home, version: str) -> None:
    agent = home.start(version=version)
    answer = agent.control("initialize", hooks=None)["response"]
    assert answer["pid"] == agent.process.pid
    assert ("claude_code_version" in answer) is (version == MODERN)
    identity = agent.say("hi [[say hello]]")
    (result,) = agent.results(1)
    assert (result["result"], result["num_turns"], result["terminal_reason"]) == ("hello", 1, "completed")
    assert result.get("user_message_uuids") == ([identity] if version == MODERN else None)
    kinds = [frame["type"] for frame in agent.frames if frame["type"] not in ("command_lifecycle", "stream_event")]
    assert kinds == ["control_response", "system", "system", "user", "assistant", "result"]
    assert agent.end() == 0
    assert agent.lifecycle(identity) == (["queued", "started", "completed"] if version == MODERN else [])
    assert not agent.is_registered()


def test_the_registry_knows_the_session_before_the_first_answer(home: Home) -> None:
    agent = home.start("--session-id=11111111-2222-4333-8444-555555555555")
    agent.control("initialize")
    record = agent.record()
    assert record["sessionId"] == "11111111-2222-4333-8444-555555555555"
    assert record["pid"] == agent.process.pid
    assert record["cwd"] == str(home.work)
    assert record["status"] == "idle"
    assert record["nameSource"] == "derived"
    if sys.platform == "linux":
        stat = Path(f"/proc/{agent.process.pid}/stat").read_text()
        assert record["procStart"] == stat.rpartition(") ")[2].split()[19]


def test_the_old_registry_has_no_status(home: Home) -> None:
    agent = home.start(version=OLD)
    agent.control("initialize")
    assert "status" not in agent.record()


def test_the_transcript_chains_its_records(home: Home) -> None:
    agent = home.start()
    identity = agent.say('[[tool Bash {"command":"true"} ;; say ok]]')
    agent.answer(agent.question(), behavior="allow")
    (result,) = agent.results(1)
    records = [record for record in home.transcript(result["session_id"]) if "parentUuid" in record]
    assert records[0]["uuid"] == identity
    assert [record["parentUuid"] for record in records] == [None, *(record["uuid"] for record in records[:-1])]
    stops = [record["message"]["stop_reason"] for record in records if record["type"] == "assistant"]
    assert stops == ["tool_use", "end_turn"]


def test_session_state_frames_only_for_those_who_read_them(home: Home) -> None:
    agent = home.start()
    agent.say("hi")
    agent.results(1)
    assert not [frame for frame in agent.frames if frame.get("subtype") == "session_state_changed"]


# tools and permissions


@versions
def test_a_tool_runs_after_it_was_allowed(home: Home, version: str) -> None:
    agent = home.start(version=version)
    agent.say('[[tool Bash {"command":"echo one"} ;; say fin]]')
    question = agent.question()
    assert question["request"]["tool_name"] == "Bash"
    if version == MODERN:
        assert (agent.record()["status"], agent.record()["waitingFor"]) == ("waiting", "permission prompt")
    agent.answer(question, behavior="allow", updatedInput={"command": "echo two"})
    (result,) = agent.results(1)
    assert result["num_turns"] == 2
    tool_result = agent.wait(lambda frame: "tool_use_result" in frame)
    assert tool_result["message"]["content"][0]["content"] == "two"
    # With --replay-user-messages the client's own answers come back.
    assert [frame for frame in agent.frames if frame["type"] == "control_response"]


def test_a_denied_tool_is_told_and_the_turn_goes_on(home: Home) -> None:
    agent = home.start()
    agent.say('[[tool Bash {"command":"touch made"} ;; say fin]]')
    agent.answer(agent.question(), behavior="deny", message="no thanks")
    (result,) = agent.results(1)
    assert result["permission_denials"][0]["tool_name"] == "Bash"
    assert result["result"] == "fin"
    assert not (home.work / "made").exists()


def test_without_anybody_to_ask_a_tool_is_denied(home: Home) -> None:
    agent = home.start(panel=False)
    agent.say('[[tool Bash {"command":"touch made"} ;; say fin]]')
    (result,) = agent.results(1)
    assert len(result["permission_denials"]) == 1
    assert not (home.work / "made").exists()


def test_a_closed_client_answers_no_question(home: Home) -> None:
    agent = home.start()
    agent.say('[[tool Bash {"command":"touch made"} ;; say fin]]')
    agent.question()
    assert agent.end() == 0
    assert not (home.work / "made").exists()


def test_an_mcp_tool_is_called_by_its_own_child(home: Home) -> None:
    (home.path / "server.py").write_text(MCP_SERVER)
    servers = {"lab": {"command": sys.executable, "args": [str(home.path / "server.py")]}}
    (home.path / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    agent = home.start("--allowedTools", "mcp__lab")
    agent.say('[[tool mcp__lab__look {"a":1} ;; say fin]]')
    (result,) = agent.results(1)
    use = agent.wait(lambda frame: frame["type"] == "assistant")["message"]["content"][0]
    seen = json.loads(agent.wait(lambda frame: "tool_use_result" in frame)["message"]["content"][0]["content"])
    assert seen["meta"]["claudecode/toolUseId"] == use["id"]
    assert (seen["args"], seen["env"]) == ({"a": 1}, result["session_id"])
    assert seen["ppid"] == agent.process.pid
    assert agent.end() == 0


def test_an_unknown_tool_is_an_error_for_the_model(home: Home) -> None:
    agent = home.start()
    agent.say("[[tool mcp__none__x {} ;; say fin]]")
    agent.results(1)
    content = agent.wait(lambda frame: "tool_use_result" in frame)["message"]["content"][0]
    assert content["is_error"]
    assert "No such tool available" in content["content"]


# messages that come while a turn runs


@versions
def test_later_waits_and_next_goes_first(home: Home, gate: Path, version: str) -> None:
    agent = home.start(version=version)
    agent.say(f"[[slow {gate} aabb]]")
    agent.streaming("aa")
    agent.say("l1", priority="later")
    last = agent.say("l2", priority="later")
    agent.say("n1")
    open_gate(gate)
    results = [result["result"] for result in agent.results(3)]
    assert results == ["aabb", "echo: n1", "echo: l1\nl2"]
    records = home.transcript(agent.frames[-1]["session_id"])
    assert [record["uuid"] for record in records if record.get("message", {}).get("content") == "l1\nl2"] == [last]


@versions
def test_next_folds_at_a_tool_boundary(home: Home, version: str) -> None:
    agent = home.start(version=version)
    first = agent.say('[[tool Bash {"command":"true"} ;; say fin]]')
    question = agent.question()
    folded = agent.say("folded [[say both]]")
    later = agent.say("later", priority="later")
    agent.answer(question, behavior="allow")
    one, two = agent.results(2)
    assert (one["result"], two["result"]) == ("both", "echo: later")
    if version == MODERN:
        assert one["user_message_uuids"] == [first, folded]
        assert two["user_message_uuids"] == [later]
    (attachment,) = [r["attachment"] for r in home.transcript(one["session_id"]) if r["type"] == "attachment"]
    assert (attachment["type"], attachment["source_uuid"]) == ("queued_command", folded)


@versions
def test_now_cuts_an_answer_off(home: Home, gate: Path, version: str) -> None:
    agent = home.start(version=version)
    first = agent.say(f"[[slow {gate} aabb]]")
    agent.streaming("aa")
    agent.say("urgent", priority="now")
    one, two = agent.results(2)
    assert (one["terminal_reason"], one["is_error"], one["result"]) == ("aborted_streaming", False, "aa")
    assert two["result"] == "echo: urgent"
    assert agent.lifecycle(first) == (["queued", "started", "cancelled"] if version == MODERN else [])


@versions
def test_now_withdraws_an_open_question(home: Home, version: str) -> None:
    agent = home.start(version=version)
    agent.say('[[tool Bash {"command":"touch made"} ;; say fin]]')
    question = agent.question()
    agent.say("urgent", priority="now")
    one, _two = agent.results(2)
    assert (one["terminal_reason"], one["result"]) == ("aborted_tools", "")
    withdrawn = agent.wait(lambda frame: frame["type"] == "control_cancel_request")
    assert withdrawn["request_id"] == question["request_id"]
    agent.answer(question, behavior="allow")
    assert agent.end() == 0
    assert not (home.work / "made").exists()


def test_now_lets_a_running_tool_finish(home: Home, gate: Path) -> None:
    agent = home.start("--allowedTools", "Bash")
    agent.say(f'[[tool Bash {{"command":"cat {gate}; echo done > made"}} ;; say fin]]')
    agent.wait(lambda frame: frame["type"] == "assistant")
    agent.say("urgent", priority="now")
    open_gate(gate)
    one, two = agent.results(2)
    assert (one["terminal_reason"], two["result"]) == ("aborted_tools", "echo: urgent")
    assert (home.work / "made").read_text() == "done\n"


@versions
def test_interrupt_stops_the_turn_and_the_queue_goes_on(home: Home, gate: Path, version: str) -> None:
    agent = home.start(version=version)
    agent.say(f"[[slow {gate} aabb]]")
    agent.streaming("aa")
    later = agent.say("later", priority="later")
    response = agent.control("interrupt")
    assert response.get("response") == ({"still_queued": [later]} if version == MODERN else None)
    one, two = agent.results(2)
    assert (one["subtype"], one["is_error"]) == ("error_during_execution", True)
    assert "result" not in one
    assert two["result"] == "echo: later"


def test_interrupt_kills_a_running_command(home: Home, gate: Path) -> None:
    agent = home.start("--allowedTools", "Bash")
    agent.say(f'[[tool Bash {{"command":"cat {gate}; touch made"}} ;; say fin]]')
    agent.wait(lambda frame: frame["type"] == "assistant")
    agent.control("interrupt")
    (result,) = agent.results(1)
    assert (result["terminal_reason"], result["num_turns"]) == ("aborted_tools", 3)
    assert agent.end() == 1
    assert not (home.work / "made").exists()


@versions
def test_a_uuid_runs_once(home: Home, version: str) -> None:
    agent = home.start(version=version)
    identity = agent.say("once")
    (result,) = agent.results(1)
    agent.say("once", uuid=identity)
    assert agent.end() == 0
    again = home.start(f"--resume={result['session_id']}", version=version)
    again.say("once", uuid=identity)
    again.say("more")
    assert again.end() == 0
    assert [frame["result"] for frame in agent.frames + again.frames if frame["type"] == "result"] == [
        "echo: once",
        "echo: more",
    ]
    assert agent.replayed() == ["once", "once"]


@versions
def test_a_waiting_message_can_be_withdrawn(home: Home, gate: Path, version: str) -> None:
    agent = home.start(version=version)
    agent.say(f"[[slow {gate} aabb]]")
    agent.streaming("aa")
    later = agent.say("later", priority="later")
    assert agent.control("cancel_async_message", message_uuid=later)["response"]["cancelled"] is True
    assert agent.control("cancel_async_message", message_uuid=later)["response"]["cancelled"] is False
    open_gate(gate)
    assert agent.end() == 0
    assert len([frame for frame in agent.frames if frame["type"] == "result"]) == 1


@versions
def test_a_silent_message_asks_no_model(home: Home, version: str) -> None:
    agent = home.start(version=version)
    agent.say("[[say never]]", shouldQuery=False)
    (result,) = agent.results(1)
    assert (result["result"], result["num_turns"]) == ("", 0)
    assert not [frame for frame in agent.frames if frame["type"] == "assistant"]


@versions
def test_end_of_input_finishes_what_waits(home: Home, gate: Path, version: str) -> None:
    agent = home.start(version=version)
    agent.say(f"[[slow {gate} aabb]]")
    agent.say("later", priority="later")
    agent.streaming("aa")
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    open_gate(gate)
    assert agent.exit_code() == 0
    assert [frame["result"] for frame in agent.frames if frame["type"] == "result"] == ["aabb", "echo: later"]


@versions
def test_a_failed_request_is_a_success_that_is_an_error(home: Home, version: str) -> None:
    agent = home.start(version=version)
    agent.say("[[fail no capacity]]")
    (result,) = agent.results(1)
    assert (result["subtype"], result["is_error"]) == ("success", True)
    assert result["terminal_reason"] == ("api_error" if version == MODERN else "completed")
    assert result["result"] == "API Error: 400 no capacity"
    assert agent.end() == 1


@versions
def test_the_exit_status_is_that_of_the_last_result(home: Home, version: str) -> None:
    agent = home.start(version=version)
    failed, done = agent.say("[[fail no capacity]]"), agent.say("[[say fine]]", priority="later")
    agent.results(2)
    assert agent.end() == 0
    states = {uuid: agent.lifecycle(uuid)[-1:] for uuid in (failed, done)}
    assert states == ({failed: ["cancelled"], done: ["completed"]} if version == MODERN else {failed: [], done: []})


@versions
def test_nobody_is_asked_without_a_client_that_answers(home: Home, version: str) -> None:
    agent = home.start("-p", version=version, panel=False)
    agent.say('[[tool Bash {"command":"touch made"} ;; say without]]')
    assert agent.end() == 0
    (result,) = agent.results(1)
    (denial,) = result["permission_denials"]
    assert (result["result"], denial["tool_name"]) == ("without", "Bash")
    noted = [frame["tool_use_id"] for frame in agent.frames if frame.get("subtype") == "permission_denied"]
    assert noted == ([denial["tool_use_id"]] if version == MODERN else [])
    assert not (home.work / "made").exists()


@versions
def test_a_mode_that_it_does_not_know_is_refused(home: Home, version: str) -> None:
    for mode, accepted in {"plan": True, "default": True, "manual": version == MODERN, "whatever": False}.items():
        agent = home.start("-p", f"--permission-mode={mode}", version=version, panel=False)
        assert agent.end() == (0 if accepted else 1), mode
        assert not agent.frames


# text hazards


@versions
def test_a_named_file_is_read_unasked(home: Home, version: str) -> None:
    (home.work / "secret.txt").write_text("the secret\n")
    agent = home.start(version=version)
    agent.say("see @secret.txt, please")
    agent.say("see @secret.txt, please", client_composed=True)
    session_id = agent.results(2)[0]["session_id"]
    read = [record["attachment"] for record in home.transcript(session_id) if record["type"] == "attachment"]
    assert len(read) == (1 if version == MODERN else 2)
    assert read[0]["content"]["file"]["content"] == "the secret\n"


def test_clear_gives_the_process_a_new_conversation(home: Home) -> None:
    agent = home.start()
    agent.say("hi")
    (before,) = agent.results(1)
    agent.say("/clear")
    after = agent.results(2)[1]
    assert after["session_id"] != before["session_id"]
    assert agent.record()["sessionId"] == after["session_id"]
    reset = agent.wait(lambda frame: frame["type"] == "conversation_reset")
    assert reset["session_id"] == before["session_id"]


def test_a_composed_command_is_text(home: Home) -> None:
    agent = home.start()
    agent.say("/clear", client_composed=True)
    (result,) = agent.results(1)
    assert result["result"] == "echo: /clear"


def test_an_unknown_command_per_generation(home: Home) -> None:
    modern, old = home.start(), home.start(version=OLD)
    modern.say("/nope arg")
    old.say("/nope arg")
    assert modern.results(1)[0]["result"] == "echo: /nope arg"
    assert old.results(1)[0]["result"] == "Unknown command: /nope"


def test_rename_per_generation(home: Home) -> None:
    modern, old = home.start(), home.start(version=OLD)
    for agent in (modern, old):
        assert agent.control("rename_session", title="my title")["subtype"] == "success"
        assert agent.control("rename_session", title="")["error"] == "title must be non-empty"
    assert modern.record()["name"] == "my title"
    assert old.record()["name"] != "my title"
    old.say("/rename other")
    assert old.results(1)[0]["result"] == "/rename isn't available in this environment."


# control


def test_control_requests_that_are_refused(home: Home) -> None:
    agent = home.start()
    assert agent.control("bogus")["error"] == "Unsupported control request subtype: bogus"
    assert agent.control("set_permission_mode", mode="bogus")["error_code"] == "invalid_mode"
    assert agent.control("set_permission_mode", mode="bypassPermissions")["error_code"] == "bypass_not_launched"
    assert agent.control("set_permission_mode", mode="plan")["response"] == {"mode": "plan"}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"type":"user"\n', "Error parsing streaming input line (type=user, 14 chars): SyntaxError"),
        (b"null\n", "Error parsing streaming input line"),
        (b'{"type":"user"}\n', "Error: Expected message role 'user', got 'undefined'"),
        (b'{"type":"user","message":{"role":"assistant"}}\n', "Error: Expected message role 'user', got 'assistant'"),
        (b'{"type":"control_request","request_id":"x"}\n', "Error: Missing request on control_request"),
    ],
)
def test_one_bad_line_kills(home: Home, line: bytes, complaint: str) -> None:
    agent = home.start()
    agent.control("initialize")
    agent.write(line + b'{"type":"user","message":{"role":"user","content":"x"}}\n')
    assert agent.exit_code() == 1
    assert complaint in agent.stderr()
    assert not agent.is_registered()
    assert not [frame for frame in agent.frames if frame["type"] == "result"]


def test_harmless_lines(home: Home) -> None:
    agent = home.start()
    agent.write(b'\n[1]\n"x"\r\n{"type":"keep_alive"}\n{"type":"wat"}\n{"type":"user","message":{"role":"user",')
    agent.write(b'"content":[{"type":"text","text":"split"}]}}\r\n')
    assert agent.results(1)[0]["result"] == "echo: split"


# start and end


def test_resume_goes_on_where_it_was(home: Home) -> None:
    first = home.start()
    first.say("one")
    session_id = first.results(1)[0]["session_id"]
    assert first.end() == 0
    second = home.start("--resume", session_id)
    second.say("two")
    assert second.results(1)[0]["session_id"] == session_id
    records = [record for record in home.transcript(session_id) if "parentUuid" in record]
    assert [record["parentUuid"] for record in records] == [None, *(record["uuid"] for record in records[:-1])]


def test_resume_from_another_directory_per_generation(home: Home) -> None:
    first = home.start()
    first.say("one")
    session_id = first.results(1)[0]["session_id"]
    other = home.path / "other"
    other.mkdir()
    modern = home.start(f"--resume={session_id}", cwd=other)
    modern.say("two")
    assert modern.results(1)[0]["session_id"] == session_id
    assert home.start(f"--resume={session_id}", cwd=other, version=OLD).exit_code() == 1


def test_a_fork_has_a_new_id_and_the_old_words(home: Home) -> None:
    first = home.start()
    first.say("one")
    session_id = first.results(1)[0]["session_id"]
    fork = home.start("--resume", session_id, "--fork-session")
    fork.say("two")
    forked = fork.results(1)[0]["session_id"]
    assert forked != session_id
    assert "one" in [record.get("message", {}).get("content") for record in home.transcript(forked)]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["--resume", "fed64140-495c-4ec2-a18c-26dae55b67c0"], "No conversation found with session ID"),
        (["--resume=no-such-title"], "does not match any session title"),
        (["--session-id=zzz"], "Error: Invalid session ID. Must be a valid UUID."),
        (["--continue"], "No conversation found to continue"),
    ],
)
def test_starts_that_are_refused(home: Home, argv: list[str], complaint: str) -> None:
    agent = home.start(*argv)
    assert agent.exit_code() == 1
    assert complaint in agent.stderr()
    assert not agent.is_registered()


def test_a_session_id_is_taken_once(home: Home) -> None:
    first = home.start()
    first.say("one")
    session_id = first.results(1)[0]["session_id"]
    again = home.start(f"--session-id={session_id}")
    assert again.exit_code() == 1
    assert again.stderr() == f"Error: Session ID {session_id} is already in use.\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 0)])
def test_signals(home: Home, gate: Path, number: signal.Signals, status: int) -> None:
    agent = home.start()
    agent.say(f"[[slow {gate} aabb]]")
    agent.streaming("aa")
    agent.process.send_signal(number)
    assert agent.exit_code() == status
    assert not agent.is_registered()
    aborted = [frame for frame in agent.frames if frame["type"] == "result"]
    assert len(aborted) == (1 if number == signal.SIGINT else 0)


def test_a_killed_process_stays_in_the_registry(home: Home) -> None:
    agent = home.start()
    agent.control("initialize")
    agent.kill()
    assert agent.is_registered()
