"""The stub of Grok Build is what the real one is: one story is played to both, and what each has said is compared.

Whatever the tests against stubs prove holds for the real agent as far as this holds. Compared is what says something of
sessions, queues, turns and permissions, in order; not how finely a model's words are cut.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.lines import Json, Lines
from tests.real.binaries import GROK_VERSIONS, binary
from tests.real.exchange import until
from tests.real.gates import Gate
from tests.real.homes import GrokHome
from tests.real.models import XaiModel
from tests.unit.test_stub_grok import REFUSALS, STUB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.real.homes import Shell

    Begin = Callable[..., "Client"]

SERVER = [sys.executable, str(Path(__file__).with_name("small_mcp.py"))]
ECHO = 'tool mcp__cross-agent__echo {"text": "over there"}'
RISKY = 'tool run_terminal_command {"command": "rm -rf nothing", "description": "d"}'
SLEEP = 'tool run_terminal_command {"command": "sleep 60", "description": "d"}'
ENDS = ("answer", "complete", "turn_completed")
SLOW = 60.0
"""Seconds that anything may take: two real agents may start at once on a loaded machine."""

pytestmark = [pytest.mark.requirement("MC-25"), pytest.mark.parametrize("version", GROK_VERSIONS)]


class Client(Lines):
    """A client of either agent."""

    def __init__(self, command: list[str], home: GrokHome) -> None:
        super().__init__([*command, "agent", "stdio"], home.environment(), home.cwd)
        self.home = home
        self.cwd = str(home.cwd)
        self._requests = 0

    def post(self, method: str, params: Any, number: Any = None) -> Any:
        if number is None:
            number, self._requests = self._requests, self._requests + 1
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def answer(self, number: Any) -> Json:
        return self.wait(lambda m: m.get("id") == number and "method" not in m, f"answer {number}", timeout=SLOW)

    def call(self, method: str, params: Any) -> Json:
        return self.answer(self.post(method, params))

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def start(self) -> None:
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities})

    def open(self, method: str = "session/new", session: str = "") -> str:
        named = {"sessionId": session} if session else {}
        result = self.call(method, {"cwd": self.cwd, "mcpServers": [], **named})["result"]
        session = session or result["sessionId"]
        self.hear("_x.ai/mcp_initialized", sessionId=session)
        return session

    def prompt(self, session: str, text: str, prompt_id: str = "") -> Any:
        meta = {"_meta": {"promptId": prompt_id}} if prompt_id else {}
        params = {"sessionId": session, "prompt": [{"type": "text", "text": text}], **meta}
        return self.post("session/prompt", params, f"xagent-{prompt_id}" if prompt_id else None)

    def say(self, session: str, text: str) -> Json:
        return self.answer(self.prompt(session, text))

    def hear(self, method: str, after: int = 0, **params: Any) -> Json:
        def fits(message: Json) -> bool:
            told = message.get("params", {})
            return message.get("method") == method and params.items() <= {**told, **told.get("update", {})}.items()

        self.until(lambda: any(map(fits, self.messages[after:])), method, timeout=SLOW)
        return next(message for message in self.messages[after:] if fits(message))

    def decide(self, option: str | None, after: int) -> None:
        asked = self.hear("session/request_permission", after)
        outcome = {"outcome": "cancelled"} if option is None else {"outcome": "selected", "optionId": option}
        self.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"outcome": outcome}})

    def streaming(self, after: int) -> None:
        self.hear("session/update", after, sessionUpdate="agent_message_chunk")


@pytest.fixture
def model() -> Iterator[XaiModel]:
    with XaiModel() as model:
        yield model


@pytest.fixture
def begin(tmp_path: Path, model: XaiModel, version: str) -> Iterator[Begin]:
    """Starts one of both, in a home of its own; again in the same one."""
    commands = {"real": [str(binary(f"grok-{version}"))], "stub": [sys.executable, "-I", "-S", str(STUB)]}
    begun: list[Client] = []

    def start(name: str, shell: Shell = "ask") -> Client:
        variables = {"STUB_GROK_LINGERS": "2"}
        home = GrokHome(tmp_path / name, model.url, SERVER, extra_env=variables, shell=shell)
        begun.append(Client(commands[name], home))
        return begun[-1]

    yield start
    for client in begun:
        client.close()


@pytest.fixture
def both(begin: Begin) -> dict[str, Client]:
    return {name: begin(name) for name in ("real", "stub")}


# the story


def tell(client: Client, gate: Gate) -> Iterator[str]:
    """One session, from its first prompt to its end; the name of each chapter before it begins."""
    client.start()
    yield "open"
    session = client.open()
    yield "a prompt"
    client.say(session, "hello [[say one two]]")
    yield "an injected one"
    client.answer(client.prompt(session, "hello [[say one two]]", "dlv_1"))
    yield from _queue(client, session, gate)
    for option in ("allow-once", "reject-once", None, "nonsense"):
        yield f"a permission: {option}"
        at = len(client.messages)
        number = client.prompt(session, f"[[comment let me ;; {RISKY} ;; say did it]]", f"dlv_5_{option}")
        client.decide(option, at)
        client.answer(number)
    for what in (ECHO, "tool no_such_tool {}", 'tool run_terminal_command {"command": "true"}', 'tool use_tool {"x": 1}'):
        yield what
        client.say(session, f"[[{what} ;; say came back]]")
    yield "the model fails"
    client.say(session, "[[fail not today]]")
    for command in ("/context", " /Session-info now", "/nosuch"):
        yield command
        client.say(session, command)
    yield from _stops(client, session, gate)
    yield "another name"
    client.call("_x.ai/session/rename", {"sessionId": session, "title": "my name"})
    yield "loaded again"
    client.call("session/load", {"cwd": client.cwd, "mcpServers": [], "sessionId": session})
    yield "closed with one running and one waiting"
    at = len(client.messages)
    client.prompt(session, f"[[slow {gate} aabb]]")
    client.streaming(at)
    client.prompt(session, "late", "dlv_9")
    client.hear("_x.ai/queue/changed", at, runningKind="prompt")
    client.until(lambda: _waits(client, "dlv_9"), "dlv_9 waiting", timeout=SLOW)
    client.call("session/close", {"sessionId": session})
    client.call("session/prompt", {"sessionId": session, "prompt": []})
    yield "resumed"
    client.open("session/resume", session)
    client.say(session, "there again [[say yes]]")


def _queue(client: Client, session: str, gate: Gate) -> Iterator[str]:
    yield "three in the queue, one of them removed"
    at = len(client.messages)
    first = client.prompt(session, f"busy [[slow {gate} aabb]]")
    client.streaming(at)
    others = [client.prompt(session, f"{name} [[say one two]]", name) for name in ("dlv_2", "dlv_3", "dlv_4")]
    client.until(lambda: _waits(client, "dlv_4"), "dlv_4 waiting", timeout=SLOW)
    for name in ("dlv_3", "nosuch"):
        client.notify("_x.ai/queue/remove", sessionId=session, id=name)
    client.answer(others[1])
    gate.release()
    for number in (first, others[0], others[2]):
        client.answer(number)


def _stops(client: Client, session: str, gate: Gate) -> Iterator[str]:
    yield "stopped while it streams"
    at = len(client.messages)
    number = client.prompt(session, f"[[slow {gate} aabb]]")
    client.streaming(at)
    client.notify("session/cancel", sessionId=session)
    client.answer(number)
    yield "stopped with one waiting"
    at = len(client.messages)
    number = client.prompt(session, f"[[slow {gate} aabb]]", "dlv_6")
    client.streaming(at)
    other = client.prompt(session, "[[say one two]]", "dlv_7")
    client.until(lambda: _waits(client, "dlv_7"), "dlv_7 waiting", timeout=SLOW)
    client.notify("session/cancel", sessionId=session)
    client.answer(number)
    client.answer(other)
    yield "stopped while a permission is asked for"
    at = len(client.messages)
    number = client.prompt(session, f"[[{RISKY}]]")
    client.hear("session/request_permission", at)
    client.notify("session/cancel", sessionId=session)
    client.answer(number)
    yield "stopped in a command"
    at = len(client.messages)
    number = client.prompt(session, f"[[{SLEEP}]]")
    client.hear("session/update", at, status="in_progress")
    client.notify("session/cancel", sessionId=session)
    client.answer(number)


def _waits(client: Client, prompt: str) -> bool:
    shown = [m["params"] for m in client.messages if m.get("method") == "_x.ai/queue/changed"]
    return any(entry["id"] == prompt for entry in shown[-1]["entries"]) if shown else False


def _works(client: Client) -> bool:
    """Whether a turn runs; that it does not is told after all else that tells of its end, but for its answer."""
    shown = [m["params"]["upserted"] for m in client.messages if m.get("method") == "_x.ai/sessions/changed"]
    return bool(shown) and any(session["activity"] == "working" for session in shown[-1])


# what was said


def outline(messages: list[Json]) -> list[str]:
    """What says something of sessions and turns."""
    return [words for message in messages if (words := _words(message))]


def _words(message: Json) -> str:
    params = message.get("params", {})
    update = params.get("update", {})
    kind, method = update.get("sessionUpdate", ""), message.get("method", "")
    if not method:
        return _answer(message)
    if method == "_x.ai/queue/changed":
        return f"queue {[_id(e['id']) for e in params['entries']]} {_id(params.get('runningPromptId', ''))}"
    if method == "session/request_permission":
        return f"asks {params['toolCall']['title']} {[option['optionId'] for option in params['options']]}"
    if method == "_x.ai/session/prompt_complete":
        return f"complete {_id(params['promptId'])} {params['stopReason']} {params.get('cancellationCategory')}"
    replayed = " (replayed)" if params.get("_meta", {}).get("isReplay") else ""
    if kind == "turn_completed":
        return f"{kind} {_id(update['prompt_id'])} {update['stop_reason']} {sorted(update.keys() & {'usage'})}{replayed}"
    if kind in ("agent_message_chunk", "user_message_chunk", "tool_call", "tool_call_update"):
        prompt = _id(params.get("_meta", {}).get("promptId", ""))
        return f"{kind} {prompt} {update.get('status', '')} {update.get('title', '')}{replayed}"
    return kind if kind in ("pending_interaction", "interaction_resolved", "retry_state") else ""


def _answer(message: Json) -> str:
    number = message["id"] if isinstance(message["id"], str) else "own"
    if "error" in message:
        return f"answer {number}: error {message['error']['code']}"
    result = message["result"]
    meta = result.get("_meta", {})
    why = {name: meta[name] for name in ("cancellationCategory", "completionKind", "cancelTrigger") if name in meta}
    return f"answer {number}: {result.get('stopReason', '')} {why} {'usage' in meta}"


def _id(prompt: str) -> str:
    """The ids of the client's own stand for themselves."""
    return prompt if prompt.startswith("dlv_") or not prompt else "own"


def chapters(client: Client, directory: Path) -> dict[str, list[str]]:
    """The outline of each chapter."""
    begun: list[tuple[str, int]] = [("hello", 0)]
    for name in tell(client, Gate(directory)):
        client.until(lambda: not _works(client), "the last word of the chapter", timeout=SLOW)
        begun.append((name, len(client.messages)))
    ends = [at for _, at in begun[1:]] + [len(client.messages)]
    return {name: outline(client.messages[at:end]) for (name, at), end in zip(begun, ends, strict=True)}


def records(client: Client) -> list[str]:
    """What is on disk of the one session, without what the model thought."""
    (path,) = client.home.config.glob("sessions/*/*/updates.jsonl")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [words for line in lines if (words := _words(line))]


def test_a_story_is_the_same_with_both(both: dict[str, Client], tmp_path: Path) -> None:
    told = {name: chapters(client, tmp_path) for name, client in both.items()}
    for chapter, real in told["real"].items():
        stub = told["stub"][chapter]
        # The last lines of a turn have no fixed order (1.0.41): its answer may come before or after what tells of its end.
        assert differences(steady(real), steady(stub)) == [], chapter
        assert differences(sorted(set(real)), sorted(set(stub))) == [], chapter
    assert differences(records(both["real"]), records(both["stub"])) == []
    kept, copied = summary(both["real"]), summary(both["stub"])
    assert (copied["generated_title"], copied["title_is_manual"]) == (kept["generated_title"], kept["title_is_manual"])
    assert kept.keys() >= copied.keys()


def steady(said: list[str]) -> list[str]:
    """What comes in a fixed order; the same thing twice in a row is one."""
    kept = [words for words in said if not words.startswith(ENDS)]
    return [words for words, before in zip(kept, ["", *kept], strict=False) if words != before]


def differences(real: list[str], stub: list[str]) -> list[str]:
    return [line for line in difflib.ndiff(real, stub) if not line.startswith("  ")]


def summary(client: Client) -> Json:
    (path,) = client.home.config.glob("sessions/*/*/summary.json")
    found: Json = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_both_refuse_the_same(both: dict[str, Client]) -> None:
    for name, client in both.items():
        early = client.call("session/new", {"cwd": client.cwd, "mcpServers": []})["error"]
        assert early["data"] == "initialize must be called before new_session"
        client.start()
        session = client.open()
        for method, params, code, data in REFUSALS:
            named = {**params, "sessionId": session} if isinstance(params, dict) and params.get("sessionId") == "S" else params
            error = client.call(method, named)["error"]
            assert error["code"] == code, (name, method, params)
            assert str(error.get("data")).startswith(str(data)), (name, method, params)
        for noise in (b"not json\n", b'{"id":1.5,"method":"session/list"}\n', b'{"method":"session/prompt","params":{}}\n'):
            client.write(noise)
        assert "sessions" in client.call("session/list", {"cwd": "/nowhere"})["result"]


ENDINGS = [(signal.SIGTERM, 143, False), (None, 0, True)]
MORE = [(None, 0, False), *((number, 128 + number, waits) for number in (1, 2, 15) for waits in (False, True))]


@pytest.mark.parametrize(
    ("number", "status", "waiting"),
    [*ENDINGS, *(pytest.param(*row, marks=pytest.mark.full) for row in MORE if row not in ENDINGS)],
)
def test_both_end_alike(begin: Begin, tmp_path: Path, number: int | None, status: int, waiting: bool) -> None:
    """And leave the same of the turn that ran and of the prompt that waited, also when they are opened again."""
    left = {}
    for name in ("real", "stub"):
        client = begin(name)
        client.start()
        session = client.open()
        client.say(session, "first [[say one two]]")
        at = len(client.messages)
        client.prompt(session, f"[[slow {Gate(tmp_path)} aabb]]", "dlv_1")
        client.streaming(at)
        if waiting:
            client.prompt(session, "late", "dlv_2")
        accepted = "dlv_2" if waiting else "dlv_1"
        until(lambda: summary(client).get("request_id"), lambda found: found == accepted)  # noqa: B023
        if number is None:
            client.end_input()
        else:
            os.kill(client.pid, number)
        assert client.wait_end() == status, name
        left[name] = records(client)
        again = begin(name)
        again.start()
        again.open("session/load", session)
        left[name] += ["opened again", *records(again)]
    assert differences(left["real"], left["stub"]) == []


def test_with_both_a_prompt_that_waits_may_run_after_the_end_of_input(begin: Begin, tmp_path: Path) -> None:
    """So that it waited there when its client left is no proof that it never ran: after a moment nobody is told any more."""
    for name in ("real", "stub"):
        gate = Gate(tmp_path)
        client = begin(name, shell="allow")
        client.start()
        session = client.open()
        client.say(session, "first [[say one two]]")
        at = len(client.messages)
        client.prompt(session, f"[[slow {gate} aabb]]", "dlv_1")
        client.streaming(at)
        client.prompt(session, '[[tool run_terminal_command {"command": "touch ran", "description": "d"} ;; say late]]', "dlv_2")
        client.until(lambda: _waits(client, "dlv_2"), "dlv_2 waiting", timeout=SLOW)  # noqa: B023
        client.end_input()
        gate.release()
        assert client.wait_end() == 0
        assert (client.home.cwd / "ran").exists(), name
