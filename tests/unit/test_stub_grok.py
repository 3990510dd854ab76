"""The Grok stub behaves as ``grok agent stdio`` 1.0.41 was measured to: every test here tells what a client of it sees."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shims.grok.stub.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.requirement("MC-25")

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "shims" / "grok" / "stub" / "__main__.py"
UNKNOWN = "01a22c4a-6655-74e3-b1cf-77c3991e44ca"
PATIENCE = 20.0
RISKY = '{"command":"rm -rf nothing; touch made","description":"d"}'
Json = dict[str, Any]

MCP_SERVER = """
import json, os, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "initialize":
        hello = m["params"]
        info = {"name": "s", "version": "1"}
        r = {"protocolVersion": hello["protocolVersion"], "capabilities": {}, "serverInfo": info}
    elif m["method"] == "tools/list":
        r = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("look", "bad")]}
    elif m["params"]["name"] == "bad":
        r = {"content": [{"type": "text", "text": "it failed"}], "isError": True}
    else:
        seen = {"meta": m["params"]["_meta"], "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid(), "hello": hello}
        r = {"content": [{"type": "text", "text": "words"}], "structuredContent": seen}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"""


class Home:
    """A throw-away home and working directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.grok = path / ".grok"
        self.work = path / "work"
        self.work.mkdir(parents=True)
        self.grok.mkdir()
        self._agents: list[Agent] = []

    def configure(self, *lines: str, mcp: bool = False) -> None:
        server = self.path / "server.py"
        server.write_text(MCP_SERVER)
        added = [f'[mcp_servers.s]\ncommand = "{sys.executable}"\nargs = ["{server}"]\n[mcp_servers.s.env]\nPROBE = "1"']
        (self.grok / "config.toml").write_text("\n".join([*lines, *(added if mcp else [])]) + "\n")

    def bare(self, **env: str) -> Agent:
        agent = Agent(self, env)
        self._agents.append(agent)
        return agent

    def start(self, *, echo: bool = False, **env: str) -> Agent:
        """An agent that has shaken hands."""
        agent = self.bare(**env)
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        meta = {"_meta": {"x.ai/userMessageEcho": True}} if echo else {}
        agent.call("initialize", protocolVersion=1, clientCapabilities={**capabilities, **meta})
        return agent

    def files(self, session: str) -> Path:
        (path,) = self.grok.glob(f"sessions/*/{session}")
        return path

    def summary(self, session: str) -> Json:
        found: Json = json.loads((self.files(session) / "summary.json").read_text())
        return found

    def stored(self, session: str) -> list[tuple[str, str]]:
        """Kind and prompt id, or reason, of every update on disk."""
        return [(u["sessionUpdate"], u.get("stop_reason") or "") for u in self.updates(session)]

    def updates(self, session: str) -> list[Json]:
        path = self.files(session) / "updates.jsonl"
        return [json.loads(line)["params"]["update"] for line in path.read_text().splitlines()] if path.exists() else []

    def history(self, session: str) -> str:
        return (self.files(session) / "chat_history.jsonl").read_text()

    def close(self) -> None:
        for agent in self._agents:
            agent.kill()


class Agent:
    """A stub process and everything that it said."""

    def __init__(self, home: Home, env: dict[str, str]) -> None:
        self.home = home
        base = {"HOME": str(home.path), "PATH": os.environ["PATH"], "XAI_API_KEY": "dummy-key"}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(STUB), "agent", "stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=base | env,
            cwd=home.path,
        )
        self.said: list[Json] = []
        self._ended = False
        self._next = 0
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.said.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # tell

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def post(self, method: str, params: Any, number: Any = None) -> Any:
        """Sends a request; returns its id."""
        if number is None:
            number, self._next = self._next, self._next + 1
        self.send(id=number, method=method, params=params)
        return number

    def answer_to(self, number: Any) -> Json:
        return self.wait(lambda m: m.get("id") == number and "method" not in m)

    def call(self, method: str, **params: Any) -> Json:
        answer = self.answer_to(self.post(method, params))
        assert "result" in answer, answer
        result: Json = answer["result"]
        return result

    def refused(self, method: str, **params: Any) -> tuple[int, Any]:
        error = self.answer_to(self.post(method, params))["error"]
        return error["code"], error.get("data")

    def open(self, **params: Any) -> str:
        return str(self.call("session/new", **{"cwd": str(self.home.work), "mcpServers": [], **params})["sessionId"])

    def load(self, session: str, method: str = "session/load") -> Json:
        return self.call(method, sessionId=session, cwd=str(self.home.work), mcpServers=[])

    def prompt(self, session: str, text: str, prompt_id: str = "", number: Any = None) -> Any:
        meta = {"_meta": {"promptId": prompt_id}} if prompt_id else {}
        return self.post("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}], **meta}, number)

    def say(self, session: str, text: str, prompt_id: str = "") -> Json:
        """A whole turn; the answer to its prompt."""
        return self.answer_to(self.prompt(session, text, prompt_id))

    def decide(self, option: str | None, *, number: int = 0) -> Json:
        """Answers the request for a permission of that id; returns the request."""
        asked = self.wait(lambda m: m.get("method") == "session/request_permission" and m["id"] == number)
        outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
        self.send(id=number, result={"outcome": outcome})
        params: Json = asked["params"]
        return params

    def end(self) -> int:
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

    def wait(self, wanted: Callable[[Json], bool], after: int = 0) -> Json:
        deadline = time.monotonic() + PATIENCE
        at = after
        with self._changed:
            while True:
                while at < len(self.said):
                    if wanted(self.said[at]):
                        return self.said[at]
                    at += 1
                assert not self._ended, f"the stub ended without it; it said {self.said}"
                assert self._changed.wait(deadline - time.monotonic()), f"it never came; the stub said {self.said}"

    def update(self, kind: str, session: str, text: str | None = None, after: int = 0) -> Json:
        def wanted(message: Json) -> bool:
            params = message.get("params", {})
            found = params.get("update", {})
            fits = found.get("sessionUpdate") == kind and params["sessionId"] == session
            return fits and text in (None, found.get("content", {}).get("text"))

        params: Json = self.wait(wanted, after)["params"]
        return params

    def streaming(self, session: str) -> None:
        self.update("agent_message_chunk", session)

    def running_with(self, waiting: str) -> None:
        """Waits until one runs and another waits."""
        self.wait(lambda m: _name(m).startswith(f"changed [{waiting}] "))

    def story(self, after: int = 0) -> list[str]:
        """Method or kind of everything that was said, without what tells nothing of turns."""
        dull = ("available_commands_update", "response_completed", "session_summary_generated", "session_info_update", "setup")
        names = [_name(message) for message in self.said[after:]]
        return [name for name in names if not name.endswith(dull) and "mcp" not in name]

    def queue(self) -> list[tuple[list[str], str]]:
        """Every state of a queue that was shown: who waits, who runs."""
        shown = [m["params"] for m in self.said if m.get("method") == "_x.ai/queue/changed"]
        return [([entry["id"] for entry in state["entries"]], state.get("runningPromptId", "")) for state in shown]


def _name(message: Json) -> str:
    params = message.get("params", {})
    if "method" not in message:
        return f"answer {message['id']}"
    kind = params.get("update", {}).get("sessionUpdate")
    return str(kind or message["method"].rpartition("/")[2] + ("" if "queue" not in message["method"] else _state(params)))


def _state(params: Json) -> str:
    waiting = ",".join(entry["id"] for entry in params["entries"])
    return f" [{waiting}]" + (f" {params['runningPromptId']}" if "runningPromptId" in params else "")


def open_gate(path: Path) -> None:
    """Lets a slow step go on; blocks until the stub has come to it."""
    path.open("w").close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "h")
    yield home
    home.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


# start, handshake, end


def run_stub(*argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", str(STUB), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, stdin=subprocess.DEVNULL)


def test_version() -> None:
    assert run_stub("--version").stdout.startswith("grok 1.0.41 (")


@pytest.mark.parametrize(
    "argv",
    ["", "agent", "agent serve", "agent --leader stdio", "agent --nope stdio", "agent stdio x", "agent stdio -m x", "-p hi"],
)
def test_everything_else_is_refused(argv: str) -> None:
    run = run_stub(*argv.split())
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("error: ")


def test_options_stand_in_front_of_the_word() -> None:
    run = run_stub("agent", "--model", "stdio", "--reasoning-effort=high", "--always-approve", "--no-leader", "stdio", "--debug")
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_at_once_with_a_status_of_its_own(home: Home, gate: Path, number: int, status: int) -> None:
    agent = home.start()
    session = agent.open()
    agent.prompt(session, f"[[slow {gate} aabb]]")
    agent.streaming(session)
    agent.process.send_signal(number)
    assert agent.exit_code() == status
    assert home.stored(session)[0][0] == "user_message_chunk"
    assert "turn_completed" not in dict(home.stored(session))


def test_at_the_end_of_input_it_falls_silent_and_goes_on(home: Home, gate: Path) -> None:
    """What waited runs, and nobody is told: no line, no record."""
    home.configure("[permission]", 'allow = ["Bash"]')
    agent = home.start(STUB_GROK_LINGERS="3")
    session = agent.open()
    agent.prompt(session, f"[[slow {gate} aabb]]")
    agent.update("agent_message_chunk", session, "aa")
    agent.prompt(session, '[[tool run_terminal_command {"command":"touch ran","description":"d"}]]', "dlv_W")
    agent.running_with("dlv_W")
    before = len(agent.said), home.stored(session)
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
    assert agent.exit_code() == 0
    assert (len(agent.said), home.stored(session)) == before
    assert (home.work / "ran").exists()
    home.start().load(session)
    assert "turn_completed" not in dict(home.stored(session))


def test_the_exit_cuts_what_still_runs(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.update("agent_message_chunk", session, "aa")
    began = time.monotonic()
    assert agent.end() == 0
    assert time.monotonic() - began > 0.2
    home.start().load(session)
    assert dict(home.stored(session))["turn_completed"] == "interrupted"


def test_it_says_who_it_is_as_often_as_it_is_asked(home: Home) -> None:
    agent = home.bare()
    for _ in range(2):
        answer = agent.call("initialize", protocolVersion="any", clientCapabilities={})
    assert answer["protocolVersion"] == 1
    assert answer["_meta"]["agentVersion"] == "1.0.41"
    assert "agentInfo" not in answer
    assert [method["id"] for method in answer["authMethods"]] == ["xai.api_key", "grok.com"]
    assert agent.call("authenticate", methodId="xai.api_key") == {}


def test_nobody_signed_in(home: Home) -> None:
    agent = home.start(XAI_API_KEY="")
    assert agent.refused("session/new", cwd="/", mcpServers=[]) == (-32000, "no auth method id provided")
    assert agent.refused("authenticate", methodId="xai.api_key")[0] == -32000


def test_nothing_is_opened_before_the_handshake(home: Home) -> None:
    agent = home.bare()
    words = "initialize must be called before "
    assert agent.refused("session/new", cwd="/", mcpServers=[]) == (-32602, words + "new_session")
    assert agent.refused("session/load", sessionId="x", cwd="/", mcpServers=[]) == (-32602, words + "load_session")
    assert agent.refused("session/resume", sessionId="x", cwd="/") == (-32602, words + "load_session")
    assert agent.refused("session/prompt", sessionId="x", prompt=[]) == (-32602, "unknown session id")
    assert agent.call("session/list") == {"sessions": []}


BLOCK = "unknown variant `bogus`, expected one of `text`, `image`, `audio`, `resource_link`, `resource`"
REFUSALS: list[tuple[str, Any, int, Any]] = [
    ("nope/nope", {}, -32601, None),
    ("x.ai/session/rename", {}, -32601, None),
    ("_x.ai/nope", {}, -32601, "unknown ACP extension method: x.ai/nope"),
    ("session/cancel", {"sessionId": "S"}, -32601, None),
    ("_x.ai/queue/remove", {"sessionId": "S", "id": "x"}, -32601, "unknown ACP extension method: x.ai/queue/remove"),
    ("initialize", {}, -32602, "missing field `protocolVersion`"),
    ("authenticate", {"methodId": "nope"}, -32602, "unsupported auth method: nope"),
    ("session/new", None, -32602, None),
    ("session/new", {}, -32602, "missing field `cwd`"),
    ("session/new", {"cwd": "/"}, -32602, "missing field `mcpServers`"),
    ("session/new", {"cwd": 5, "mcpServers": []}, -32602, "invalid type: integer `5`, expected path string"),
    ("session/new", {"cwd": "rel", "mcpServers": []}, -32602, "Path is not absolute: rel"),
    ("session/new", {"cwd": "/", "mcpServers": "x"}, -32602, 'invalid type: string "x", expected a sequence'),
    ("session/load", {"sessionId": "S", "cwd": "/"}, -32602, "missing field `mcpServers`"),
    ("session/resume", {"sessionId": "S"}, -32602, "missing field `cwd`"),
    ("session/prompt", {"sessionId": "S"}, -32602, "missing field `prompt`"),
    ("session/prompt", {"sessionId": 5, "prompt": []}, -32602, "invalid type: integer `5`, expected a string"),
    ("session/prompt", {"sessionId": "S", "prompt": "x"}, -32602, 'invalid type: string "x", expected a sequence'),
    ("session/prompt", {"sessionId": "S", "prompt": [{"type": "bogus"}]}, -32602, BLOCK),
    ("session/prompt", {"sessionId": "S", "prompt": [{"text": "x"}]}, -32602, "missing field `type`"),
    ("session/prompt", {"sessionId": "S", "prompt": [{"type": "text"}]}, -32602, "missing field `text`"),
    ("session/prompt", {"sessionId": "S", "prompt": [], "_meta": "x"}, -32602, 'invalid type: string "x", expected a map'),
    ("session/prompt", {"sessionId": UNKNOWN, "prompt": []}, -32602, "unknown session id"),
    ("session/close", {}, -32602, "missing field `sessionId`"),
    ("session/list", None, -32602, None),
    ("_x.ai/session/rename", {}, -32602, "invalid params: missing field `sessionId`"),
    ("_x.ai/session/rename", {"sessionId": "S"}, -32600, "title must not be blank"),
    ("_x.ai/session/rename", {"sessionId": "S", "title": " \n"}, -32600, "title must not be blank"),
    ("_x.ai/session/rename", {"sessionId": UNKNOWN, "title": "x"}, -32600, f"session not found: {UNKNOWN}"),
]


def test_requests_that_make_no_sense(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    for method, params, code, data in REFUSALS:
        if isinstance(params, dict) and params.get("sessionId") == "S":
            params = {**params, "sessionId": session}
        error = agent.answer_to(agent.post(method, params))["error"]
        assert (error["code"], error.get("data")) == (code, data), (method, params)
    for asked in (UNKNOWN, "../x"):
        error = agent.answer_to(agent.post("session/load", {"sessionId": asked, "cwd": "/", "mcpServers": []}))["error"]
        assert (error["code"], error["message"], error["data"]["code"]) == (-32603, "Path not found.", "FS_NOT_FOUND")
    assert agent.call("session/close", sessionId=UNKNOWN) == {"_meta": {"x.ai/closeOutcome": "notResident"}}


def test_noise_gets_no_answer(home: Home) -> None:
    agent = home.start()
    before = len(agent.said)
    agent.write(b'not json\n\n[1]\n5\n{"id":777}\n{"id":null,"method":"session/list","params":{}}\n{"id":7,"result":{}}\n')
    agent.write(b'{"id":1.5,"method":"session/list"}\n{"id":true,"method":"session/list"}\n{"id":9,"method":5}\n')
    agent.write(
        b'{"method":"session/prompt","params":{}}\n{"method":"session/cancel"}\n{"method":"session/cancel","params":{}}\n'
    )
    agent.write(b'{"id":-4,"method":"session/list","params":{}}\r\n')
    assert agent.answer_to(-4)["result"] == {"sessions": []}
    assert len(agent.said) == before + 1


# turns


def test_a_turn_is_told_in_this_order(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    before = len(agent.said)
    number = agent.prompt(session, "hello [[say one two]]", "dlv_1", "xagent-1")
    answer = agent.answer_to(number)["result"]
    agent.update("last_turn_summary", session)
    assert agent.story(before) == [
        "changed",
        "changed [dlv_1]",
        "changed [] dlv_1",
        "agent_thought_chunk",
        "agent_message_chunk",
        "agent_message_chunk",
        "changed []",
        "turn_completed",
        "prompt_complete",
        "changed",
        "answer xagent-1",
        "last_turn_summary",
    ]
    assert answer["stopReason"] == "end_turn"
    assert answer["_meta"]["promptId"] == answer["_meta"]["requestId"] == "dlv_1"
    tagged = [m for m in agent.said[before:] if m.get("method") == "session/update" and "content" in m["params"]["update"]]
    assert {m["params"]["_meta"]["promptId"] for m in tagged} == {"dlv_1"}
    assert home.updates(session)[2]["content"]["text"] == "one two", "a block is one line on disk"
    assert [kind for kind, _ in home.stored(session)] == [
        "user_message_chunk",
        "agent_thought_chunk",
        "agent_message_chunk",
        "turn_completed",
    ]


def test_a_prompt_is_echoed_to_those_who_asked_for_it(home: Home) -> None:
    quiet, loud = home.start(), home.start(echo=True)
    for agent in (quiet, loud):
        session = agent.open()
        agent.say(session, "hello", "dlv_1")
        echoed = [m["params"] for m in agent.said if _name(m) == "user_message_chunk"]
        assert [params["update"]["content"]["text"] for params in echoed] == (["hello"] if agent is loud else [])
        assert not any("promptId" in params["_meta"] for params in echoed)


def test_a_prompt_without_an_id_gets_one(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    assert len(agent.say(session, "x")["result"]["_meta"]["promptId"]) == 36
    named = {"sessionId": session, "prompt": [], "_meta": {"promptId": 5}}
    assert len(agent.answer_to(agent.post("session/prompt", named))["result"]["_meta"]["promptId"]) == 36


def test_several_blocks_are_one_prompt(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    blocks = [{"type": "text", "text": "two"}, {"type": "resource_link", "uri": "u", "name": "n"}, {"type": "text", "text": "b"}]
    agent.answer_to(agent.post("session/prompt", {"sessionId": session, "prompt": blocks}))
    shown = next(m["params"]["entries"] for m in agent.said if _name(m).startswith("changed ["))
    assert [entry["text"] for entry in shown] == ["two\n\nb"]
    assert [u["content"]["text"] for u in home.updates(session) if u["sessionUpdate"] == "user_message_chunk"] == ["two", "b"]
    assert "<user_query>\\ntwo b\\n" in home.history(session)


def test_all_prompts_stand_in_one_queue(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    first = agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.streaming(session)
    others = [agent.prompt(session, name, name) for name in ("B", "C", "D")]
    agent.wait(lambda m: _name(m) == "changed [B,C,D] A")
    assert home.summary(session)["request_id"] == "D", "accepted, though it only waits"
    agent.notify("_x.ai/queue/remove", sessionId=session, id="C")
    removed = agent.answer_to(others[1])["result"]
    assert (removed["stopReason"], removed["_meta"]["completionKind"]) == ("cancelled", "removedFromQueue")
    for nothing in ("A", "nosuch"):
        before = len(agent.said)
        agent.notify("_x.ai/queue/remove", sessionId=session, id=nothing)
        agent.wait(lambda m: _name(m) == "changed [B,D] A", before)
    before = len(agent.said)
    open_gate(gate)
    assert agent.answer_to(others[2])["result"]["stopReason"] == "end_turn"
    story = agent.story(before)
    assert story.index("changed [D] B") < story.index(f"answer {first}"), "the next one begins before the last is answered"
    assert [name for name in story if name.startswith("answer")] == [f"answer {n}" for n in (first, others[0], others[2])]
    assert not any(u.get("prompt_id") == "C" for u in home.updates(session))


def test_one_id_twice_runs_twice(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    agent.prompt(session, f"[[slow {gate} aabb]]")
    agent.streaming(session)
    twice = [agent.prompt(session, f"[[say {word}]]", "dlv_5") for word in ("one", "two")]
    open_gate(gate)
    for number in twice:
        agent.answer_to(number)
    assert [u["content"]["text"] for u in home.updates(session) if u["sessionUpdate"] == "agent_message_chunk"] == [
        "aabb",
        "one",
        "two",
    ]


def test_a_stop_is_not_followed_by_the_queue(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    agent.notify("session/cancel", sessionId=session)
    number = agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.streaming(session)
    before = len(agent.said)
    agent.notify("session/cancel", sessionId=session)
    answer = agent.answer_to(number)["result"]
    assert (answer["stopReason"], answer["_meta"]["cancellationCategory"]) == ("cancelled", "MidTurnAbort")
    assert agent.story(before) == ["turn_completed", "prompt_complete", "changed", f"answer {number}"]
    assert agent.queue()[-1] == ([], "A")
    assert home.stored(session)[-1] == ("turn_completed", "cancelled")
    assert home.updates(session)[-2]["content"]["text"] == "aa", "what was said is kept"


def test_a_stop_makes_room_for_the_next(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.streaming(session)
    number = agent.prompt(session, "B", "B")
    agent.wait(lambda m: _name(m) == "changed [B] A")
    before = len(agent.said)
    agent.notify("session/cancel", sessionId=session)
    assert agent.answer_to(number)["result"]["stopReason"] == "end_turn"
    assert agent.story(before)[:3] == ["turn_completed", "changed [] B", "prompt_complete"]


def test_a_session_is_closed_with_one_running_and_one_waiting(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    running = agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.streaming(session)
    waiting = agent.prompt(session, "B", "B")
    agent.wait(lambda m: _name(m) == "changed [B] A")
    before = len(agent.said)
    assert agent.call("session/close", sessionId=session) == {"_meta": {"x.ai/closeOutcome": "closed"}}
    names = ["changed", "turn_completed", "prompt_complete", f"answer {running}", "prompt_complete", f"answer {waiting}"]
    assert agent.story(before)[:-1] == names
    assert agent.answer_to(running)["result"]["_meta"]["cancelTrigger"] == "session_close"
    assert "completionKind" not in agent.answer_to(waiting)["result"]["_meta"]
    assert agent.refused("session/prompt", sessionId=session, prompt=[]) == (-32602, "unknown session id")


def test_two_sessions_of_one_process_run_side_by_side(home: Home, gate: Path) -> None:
    agent = home.start()
    one, other = agent.open(), agent.open()
    number = agent.prompt(one, f"[[slow {gate} aabb]]")
    agent.streaming(one)
    assert agent.say(other, "x")["result"]["stopReason"] == "end_turn"
    open_gate(gate)
    assert agent.answer_to(number)["result"]["stopReason"] == "end_turn"


def test_the_model_fails(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    before = len(agent.said)
    error = agent.say(session, "[[fail not today]]", "A")["error"]
    message = "API error (status 400 Bad Request): not today"
    assert (error["code"], error["data"]) == (-32603, {"message": message, "http_status": 400})
    assert agent.story(before)[4:7] == ["retry_state", "changed []", "turn_completed"]
    assert home.stored(session)[-1] == ("turn_completed", "error")
    assert agent.say(session, "[[nonsense]]")["error"]["code"] == -32603


@pytest.mark.parametrize(
    ("text", "local"),
    [
        *[
            (text, True)
            for text in ("/context", " /context", "\n/Context\nmore", "/session-info now", "/goal status", "/compact")
        ],
        *[(text, False) for text in ("/rename x", "/nosuch", "//context", "!ls", "x /context", "/")],
    ],
)
def test_slash_commands_run_without_the_model(home: Home, text: str, local: bool) -> None:
    agent = home.start()
    session = agent.open()
    answer = agent.say(session, text, "A")["result"]
    assert answer["stopReason"] == "end_turn"
    assert ("usage" in answer["_meta"]) is not local
    assert any(_name(m) == "agent_thought_chunk" for m in agent.said) is not local
    first = home.updates(session)[0]
    assert first["_meta"].get("hostTurn") is (True if local else None)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("@f.txt look", True),
        ("see @f.txt", True),
        ("l\n@f.txt", True),
        ("x@f.txt", False),
        ("@\u2060f.txt", False),
        ("@no", False),
    ],
)
def test_a_name_behind_an_at_sign_is_read(home: Home, text: str, read: bool) -> None:
    (home.work / "f.txt").write_text("TOPSECRET")
    agent = home.start()
    session = agent.open()
    agent.say(session, text)
    assert ("TOPSECRET" in home.history(session)) is read


# tools and permissions


@pytest.mark.parametrize(
    ("option", "reason", "category", "ran"),
    [
        ("allow-once", "end_turn", None, True),
        ("always-allow", "end_turn", None, True),
        ("reject-once", "cancelled", "PermissionRejected", False),
        ("reject-always", "cancelled", "PermissionRejected", False),
        (None, "cancelled", "PermissionCancelled", False),
        ("nonsense", "cancelled", "PermissionRejected", False),
    ],
)
def test_a_command_that_asks(home: Home, option: str | None, reason: str, category: str | None, ran: bool) -> None:
    agent = home.start()
    session = agent.open()
    before = len(agent.said)
    number = agent.prompt(session, f"[[comment let me ;; tool run_terminal_command {RISKY} ;; say done]]", "A")
    asked = agent.decide(option)
    answer = agent.answer_to(number)["result"]
    assert asked["toolCall"]["title"] == "Execute `rm -rf nothing; touch made`"
    assert [entry["optionId"] for entry in asked["options"]] == ["always-allow", "allow-once", "reject-once", "reject-always"]
    assert (answer["stopReason"], answer["_meta"].get("cancellationCategory")) == (reason, category)
    assert (home.work / "made").exists() is ran
    story = agent.story(before)
    begun = ["tool_call", "pending_interaction", "tool_call_update", "request_permission", "interaction_resolved"]
    at = story.index("tool_call")
    assert story[at : at + 5] == begun
    if not ran:
        assert story[at + 5 : at + 8] == ["tool_call_update", "changed []", "turn_completed"], "the model is not asked again"
    if option == "always-allow":
        agent.say(session, f"[[tool run_terminal_command {RISKY}]]")
        assert agent.story().count("request_permission") == 1


@pytest.mark.parametrize("answer", [{"error": {"code": -32601, "message": "no"}}, {"result": {}}, {"result": {"outcome": "x"}}])
def test_an_answer_that_is_none_is_no_consent(home: Home, answer: Json) -> None:
    agent = home.start()
    session = agent.open()
    number = agent.prompt(session, f"[[tool run_terminal_command {RISKY}]]")
    agent.wait(lambda m: m.get("method") == "session/request_permission")
    agent.send(id=0, **answer)
    assert agent.answer_to(number)["result"]["_meta"]["cancellationCategory"] == "PermissionRejected"


def test_a_stop_while_a_permission_is_asked_for(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    number = agent.prompt(session, f"[[tool run_terminal_command {RISKY}]]", "A")
    agent.wait(lambda m: m.get("method") == "session/request_permission")
    other = agent.prompt(session, f"[[tool run_terminal_command {RISKY} ;; say done]]", "B")
    agent.notify("session/cancel", sessionId=session)
    assert agent.answer_to(number)["result"]["_meta"]["cancellationCategory"] == "MidTurnAbort"
    agent.decide("allow-once")
    assert not (home.work / "made").exists(), "a late answer is nobody's"
    agent.decide("allow-once", number=1)
    assert agent.answer_to(other)["result"]["stopReason"] == "end_turn"


def test_a_stop_ends_a_running_command(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    number = agent.prompt(session, '[[tool run_terminal_command {"command":"sleep 60","description":"d"}]]')
    agent.wait(lambda m: m.get("params", {}).get("update", {}).get("status") == "in_progress")
    began = time.monotonic()
    agent.notify("session/cancel", sessionId=session)
    assert agent.answer_to(number)["result"]["stopReason"] == "cancelled"
    assert time.monotonic() - began < 5


ASKING, ALLOWING, SILENT = 'ask = ["Bash"]', 'allow = ["Bash"]', ""


@pytest.mark.parametrize(
    ("command", "unasked"),
    [
        ("sleep 1", {ASKING, ALLOWING, SILENT}),
        ("touch x", {ALLOWING, SILENT}),
        ("sleep 1; touch x", {ALLOWING, SILENT}),
        ("wc -c < /dev/null", {ALLOWING, SILENT}),
        ("true", {ALLOWING}),
        ("touch x && exit 3", {ALLOWING}),
        ("echo hi > x", set()),
        ("rm -rf x", set()),
        ("touch x; rm y", set()),
    ],
)
def test_what_runs_unasked(home: Home, command: str, unasked: set[str]) -> None:
    for rule in (ASKING, ALLOWING, SILENT):
        home.configure("[permission]", rule)
        assert Config(str(home.grok)).lets_run(command) is (rule in unasked)


def test_a_command_runs_where_its_session_works_and_knows_it(home: Home) -> None:
    home.configure("[permission]", 'allow = ["Bash"]')
    agent = home.start()
    session = agent.open()
    command = json.dumps({"command": 'echo "$GROK_SESSION_ID" in $PWD; exit 3', "description": "d"})
    agent.say(session, f"[[tool run_terminal_command {command} ;; say done]]")
    output = home.updates(session)[-4]["rawOutput"]
    assert (output["exit_code"], bytes(output["output"]).decode()) == (3, f"{session} in {home.work}\n")
    assert "request_permission" not in agent.story()


@pytest.mark.parametrize("how", ["by its settings", "by a command"])
def test_everything_is_approved(home: Home, how: str) -> None:
    if how == "by its settings":
        home.configure("[ui]", 'permission_mode = "always-approve"', mcp=True)
    agent = home.start()
    session = agent.open()
    if how == "by a command":
        agent.say(session, "/always-approve")
    agent.say(session, f"[[tool run_terminal_command {RISKY} ;; say done]]")
    assert (home.work / "made").exists()
    assert "request_permission" not in agent.story()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("no_such_tool {}", "Tool not found: no_such_tool"),
        ("mcp {}", "Tool not found: mcp"),
        ('run_terminal_command {"command":"true"}', "missing field `description`"),
        ("run_terminal_command []", "invalid type, expected a map"),
        ('use_tool {"tool":"x"}', "use exactly one of {tool_name,tool_input}"),
    ],
)
def test_calls_that_make_no_sense_are_told_to_the_model(home: Home, call: str, words: str) -> None:
    agent = home.start()
    session = agent.open()
    assert agent.say(session, f"[[tool {call} ;; say after]]")["result"]["stopReason"] == "end_turn"
    failed = next(u for u in home.updates(session) if u.get("status") == "failed")
    assert words in failed["content"][0]["content"]["text"]


# MCP


def test_each_session_has_servers_of_its_own(home: Home) -> None:
    home.configure("[permission]", 'allow = ["MCPTool(s__*)"]', mcp=True)
    agent = home.start(SECRET="x")
    seen = []
    for session in (agent.open(), agent.open()):
        agent.wait(lambda m: m.get("method") == "_x.ai/mcp_initialized" and m["params"]["mcpToolCount"] == 2)
        agent.say(session, '[[tool use_tool {"tool_name":"s__look","tool_input":{}} ;; say done]]')
        text = next(u for u in home.updates(session) if u.get("status") == "completed")["rawOutput"]["output"]["OkayOutput"]
        words, structured = text.split("\n")
        assert words == "words"
        seen.append(json.loads(structured))
        assert (seen[-1]["env"]["GROK_SESSION_ID"], seen[-1]["cwd"]) == (session, str(home.path)), "the process's directory"
    assert "request_permission" not in agent.story()
    assert seen[0]["pid"] != seen[1]["pid"]
    assert seen[0]["meta"] == {"progressToken": 1}
    assert (seen[0]["env"]["SECRET"], seen[0]["env"]["PROBE"]) == ("x", "1")
    assert seen[0]["hello"]["clientInfo"] == {"name": "grok-shell-s", "version": "1.0.41"}
    agent.call("session/close", sessionId=session)
    assert not _lives(seen[1]["pid"], PATIENCE)
    assert _lives(seen[0]["pid"])
    assert agent.end() == 0
    assert not _lives(seen[0]["pid"])


@pytest.mark.parametrize("name", ["use_tool", "mcp__s__look", "s__look"])
def test_a_server_is_called_under_any_of_its_names_and_asks(home: Home, name: str) -> None:
    home.configure(mcp=True)
    agent = home.start()
    session = agent.open()
    arguments = '{"tool_name":"s__look","tool_input":{}}' if name == "use_tool" else "{}"
    if name == "s__look":
        agent.wait(lambda m: m.get("method") == "_x.ai/mcp_initialized")
    number = agent.prompt(session, f"[[tool {name} {arguments} ;; say done]]")
    asked = agent.decide("allow-once")
    assert [entry["optionId"] for entry in asked["options"]] == ["always-allow", "allow-once", "reject-once"]
    assert asked["toolCall"]["title"] == "s__look"
    assert agent.answer_to(number)["result"]["stopReason"] == "end_turn"


def test_what_a_server_refuses(home: Home) -> None:
    home.configure("[permission]", 'allow = ["MCPTool"]', mcp=True)
    agent = home.start()
    session = agent.open()
    agent.say(session, "[[tool mcp__s__bad {} ;; tool mcp__s__none {} ;; tool mcp__x__y {} ;; say done]]")
    failed = [u["rawOutput"] for u in home.updates(session) if u.get("status") == "failed"]
    assert failed[0]["output"] == {"Error": "it failed"}
    assert [raw["message"] for raw in failed[1:]] == ["Tool not found: s__none", "Tool not found: x__y"]


# the store


def test_titles_and_names(home: Home) -> None:
    agent = home.start()
    session = agent.open()
    agent.say(session, "fix the   parser [[say done]]")
    assert agent.update("session_info_update", session)["update"]["title"] == "fix the parser"
    assert home.summary(session)["generated_title"] == "fix the parser"
    assert "title_is_manual" not in home.summary(session)
    assert agent.call("_x.ai/session/rename", sessionId=session, title=" my \n name ") == {"success": True}
    assert agent.update("session_info_update", session, after=len(agent.said) - 2)["_meta"] == {"x.ai/titleIsManual": True}
    assert (home.summary(session)["generated_title"], home.summary(session)["title_is_manual"]) == ("my  name", True)
    (row,) = agent.call("session/list", cwd=str(home.work))["sessions"]
    assert (row["sessionId"], row["title"]) == (session, "my  name")
    assert agent.call("session/list", cwd="/nowhere") == {"sessions": []}
    agent.call("session/close", sessionId=session)
    agent.call("_x.ai/session/rename", sessionId=session, title="another")
    (entry,) = agent.call("_x.ai/sessions/list")["result"]["sessions"]
    assert (entry["activity"], entry["title"], entry["resident"]) == ("dormant", "another", False)


def test_a_session_is_loaded_with_a_replay_and_resumed_without(home: Home) -> None:
    first = home.start()
    session = first.open()
    first.say(session, f"[[tool run_terminal_command {RISKY.replace('rm -rf nothing; ', '')} ;; say done]]", "A")
    first.end()
    for method in ("session/load", "session/resume"):
        agent = home.start()
        answer = agent.load(session, method)
        assert answer["_meta"]["sessionId"] == session
        assert "sessionId" not in answer
        replayed = [m["params"] for m in agent.said if m.get("params", {}).get("_meta", {}).get("isReplay")]
        assert [params["update"]["sessionUpdate"] for params in replayed[:6]] == (
            []
            if method == "session/resume"
            else [
                "user_message_chunk",
                "agent_thought_chunk",
                "tool_call",
                "agent_thought_chunk",
                "agent_message_chunk",
                "turn_completed",
            ]
        )
        assert agent.queue() == []
        assert agent.say(session, "and now", method)["result"]["stopReason"] == "end_turn"
        assert agent.load(session)["_meta"]["sessionId"] == session, "once more, in the same process"
    refused = agent.answer_to(agent.post("session/load", {"sessionId": session, "cwd": str(home.path), "mcpServers": []}))
    assert refused["error"]["data"]["code"] == "FS_NOT_FOUND", "by its own directory only"


def test_what_runs_is_not_disturbed_by_a_second_load(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    number = agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.streaming(session)
    agent.load(session)
    open_gate(gate)
    assert agent.answer_to(number)["result"]["stopReason"] == "end_turn"
    assert [reason for kind, reason in home.stored(session) if kind == "turn_completed"] == ["end_turn"]


@pytest.mark.parametrize("waiting", [False, True])
def test_a_killed_turn_leaves_its_question_and_the_next_load_an_end(home: Home, gate: Path, waiting: bool) -> None:
    agent = home.start()
    session = agent.open()
    agent.say(session, "first")
    agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.update("agent_message_chunk", session, "aa")
    if waiting:
        agent.prompt(session, "B", "B")
        agent.wait(lambda m: _name(m) == "changed [B] A")
    agent.kill()
    assert home.stored(session)[4:] == [("user_message_chunk", ""), ("agent_thought_chunk", "")]
    again = home.start()
    again.load(session)
    ended = home.updates(session)[-2]
    assert (ended["prompt_id"], ended["stop_reason"]) == ("B" if waiting else "A", "interrupted")
    again.load(session)
    assert [kind for kind, _ in home.stored(session)].count("turn_completed") == 2


def test_a_turn_that_was_stopped_has_its_end(home: Home, gate: Path) -> None:
    agent = home.start()
    session = agent.open()
    number = agent.prompt(session, f"[[slow {gate} aabb]]", "A")
    agent.streaming(session)
    agent.notify("session/cancel", sessionId=session)
    agent.answer_to(number)
    agent.kill()
    home.start().load(session)
    assert [reason for kind, reason in home.stored(session) if kind == "turn_completed"] == ["cancelled"]


def test_a_session_never_prompted_can_be_opened_again(home: Home) -> None:
    agent = home.start()
    session = agent.open(cwd=str(home.work / ("d" * 120) / ("ü" * 100)))
    assert "request_id" not in home.summary(session)
    assert home.files(session).parent.joinpath(".cwd").read_text().endswith("ü")
    assert agent.call("session/list") == {"sessions": []}
    short = agent.open()
    agent.end()
    assert home.start().load(short)["_meta"]["sessionId"] == short


# sub-agents


def test_a_sub_agent_is_seen_in_notifications_alone_and_wakes_its_parent(home: Home) -> None:
    agent = home.start(STUB_GROK_SUBAGENT="1")
    session = agent.open()
    agent.say(session, "x", "A")
    ended = agent.wait(lambda m: _name(m) == "turn_completed" and m["params"]["update"]["prompt_id"].startswith("subagent"))
    child = agent.update("subagent_spawned", session)["update"]["child_session_id"]
    assert ended["params"]["update"]["prompt_id"] == f"subagent-completed-{child}"
    assert any(m.get("params", {}).get("sessionId") == child for m in agent.said)
    assert [row["sessionId"] for row in agent.call("session/list")["sessions"]] == [session]
    after = agent.said.index(ended)
    assert not [name for name in agent.story(after) if name.startswith(("changed [", "prompt_complete"))]
    assert agent.queue()[-1] == ([], f"subagent-completed-{child}")
    assert agent.refused("session/prompt", sessionId=child, prompt=[]) == (-32602, "unknown session id")


def _lives(pid: int, seconds: float = 0.0) -> bool:
    """Whether a process is still there after at most ``seconds``."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        return not select.select([watch], [], [], seconds)[0]
    finally:
        os.close(watch)
