"""What the agent of a started turn begins with: its caller's baseline, and nothing else of anybody's (EN-11 to EN-13, EN-16)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.turns.files import Run, TurnFiles
from tests.integration.brokers import Brokers
from tests.integration.command_lines import Turns
from tests.integration.exchanges import open_gate
from tests.integration.startable import each_agent
from tests.integration.world import ROOT

pytestmark = pytest.mark.requirement("EN-11")

SECRETS = {
    "ANTHROPIC_API_KEY": "sk-secret-1", "OPENAI_API_KEY": "sk-secret-2", "GITHUB_TOKEN": "ghp-secret-3",
    "AWS_PROFILE": "secret-4", "SSH_AUTH_SOCK": "/secret-5", "COPILOT_AGENT_SESSION_ID": "secret-6",
    "CLAUDE_CODE_SESSION_ID": "secret-7",
    "GROK_SESSION_ID": "secret-8", "MY_OWN": "secret-9", "LD_LIBRARY_PATH": "/secret-10",
}  # fmt: skip
BASELINE = {
    "SHELL": "/bin/sh", "USER": "u", "LOGNAME": "u", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "dumb", "TZ": "UTC",
    "XDG_CACHE_HOME": "/nowhere/cache", "NO_PROXY": "localhost",
}  # fmt: skip
_IDENTITY = {
    "CROSS_AGENT_SELF": "",
    "CROSS_AGENT_SELF_SESSION": "grok:of-the-caller",
    "CROSS_AGENT_CONVERSATION_ID": "conv_caller",
}


@pytest.fixture
def world(home: Path, brokers: Brokers) -> Iterator[Turns]:
    built = Turns(home, brokers)
    try:
        yield built
    finally:
        built.close()


def look_at_environment(world: Turns, agent: str) -> Path:
    """The file in which the environment of a turn's agent will be, without what its shell has made up."""
    seen = Path(world.home.root, f"seen-{agent}")
    world.wrap(agent, f"tr '\\0' '\\n' < /proc/$$/environ > {seen}")
    return seen


def read(seen: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in seen.read_text().splitlines())


@pytest.mark.requirement("EN-13", "EN-14")
@each_agent
def test_exactly_the_callers_baseline_and_what_was_named(world: Turns, agent: str) -> None:
    seen = look_at_environment(world, agent)
    told = {"HTTPS_PROXY": "http://proxy.example:3128", "http_proxy": "http://u:password-11@proxy.example:3128", **BASELINE}
    client = world.caller(**told, **SECRETS, **_IDENTITY)
    receipt = world.send(client, agent, world.message("M1"), new_session=True)
    delivery = world.ended(receipt)
    found = read(seen)
    assert not [name for name, value in found.items() if "secret-" in value or "password-11" in value]
    chosen = "" if agent == "codex" else delivery["session"]  # whose thread has no id before it is there
    own = {"CROSS_AGENT_CONVERSATION_ID": receipt["conversation_id"], "CROSS_AGENT_SELF_SESSION": f"{agent}:{chosen}"}
    settings = {name: value for name, value in found.items() if name.startswith("CROSS_AGENT_") and name not in own}
    assert settings.items() <= {**world.settings, **_marked(), "CROSS_AGENT_CHILD_ENV": "XAI_API_KEY"}.items()
    passed = {**BASELINE, "HTTPS_PROXY": told["HTTPS_PROXY"], "HOME": str(world.user), "XAI_API_KEY": "k"}
    path = found.pop("PATH")
    assert found == {**passed, **settings, **own}
    assert set(path.split(os.pathsep)) <= set(world.settings["PATH"].split(os.pathsep))


def _marked() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name == "CROSS_AGENT_TEST_MARK"}


@each_agent
def test_what_was_not_named_or_not_granted_is_not_passed(world: Turns, agent: str) -> None:
    seen = look_at_environment(world, agent)
    client = world.caller(XAI_API_KEY="k", MY_OWN="secret-9", CROSS_AGENT_CHILD_ENV="XAI_API_KEY, MY_OWN")
    receipt = world.send(client, agent, world.message("M1"), new_session=True)
    assert any(warning["code"] == "not_granted" and "MY_OWN" in warning["text"] for warning in receipt["warnings"])
    assert world.ended(receipt)["state"] == "delivered"
    found = read(seen)
    assert (found["XAI_API_KEY"], "MY_OWN" in found) == ("k", False)


def test_values_that_must_not_be_written_down_are_nowhere(world: Turns) -> None:
    """While the turn runs: neither in the database, nor in its log, nor in a file of the turn."""
    Path(world.home.config).write_text('[grants]\nchild_env = ["XAI_API_KEY", "MY_OWN"]\n')
    client = world.caller(
        MY_OWN="canary-1", XAI_API_KEY="canary-2", https_proxy="http://canary-3:1", CROSS_AGENT_CHILD_ENV="MY_OWN,XAI_API_KEY"
    )
    gate = world.gate()
    receipt = world.send(client, "grok", world.message("M1", f"slowreply {gate} pong M1"), new_session=True)
    world.reaches(receipt, "awaiting-peer")
    environment = Path(f"/proc/{world.agent_process('grok').pid}/environ").read_bytes()
    assert all(f"canary-{number}".encode() in environment for number in (1, 2, 3))
    files = [path for path in Path(world.home.root).rglob("*") if path.is_file()]
    assert {Path(world.home.database).name, "order.json"} <= {path.name for path in files}
    assert [path for path in files if b"canary-" in path.read_bytes()] == []
    open_gate(gate)
    assert world.ended(receipt)["state"] == "delivered"


@pytest.mark.parametrize("point", ["broker.turn.before", "broker.hand-over.before", "broker.hand-over.after"])
def test_a_new_broker_asks_for_them_again(world: Turns, point: str) -> None:
    """Of the process that it came from, which lives; a moment is granted to it."""
    first = world.broker()
    world.arm(point)
    receipt = world.send(world.client, "grok", world.message("M1"), new_session=True)
    assert world.broker(other_than=first)
    assert world.ended(receipt)["state"] == "delivered"


def test_with_the_process_gone_that_had_them_it_fails_and_says_so(world: Turns) -> None:
    gate = world.gate()
    first = world.send(world.client, "grok", world.message("M1", f"slowreply {gate} pong M1"), new_session=True)
    session = world.reaches(first, "awaiting-peer")["session"]
    waiting = world.send(world.client, "grok", world.message("M2"), session)
    world.client.close()
    broker = world.kill_broker()
    world.caller()
    world.broker(other_than=broker)
    open_gate(gate)
    assert world.ended(first)["state"] == "delivered"
    failed = world.ended(waiting)
    assert (failed["state"], failed["error_code"], failed["handed_over"]) == ("failed", "environment_lost", False)
    assert "XAI_API_KEY" in failed["error"]
    assert "is_undelivered" in failed["flags"]
    assert world.taken("grok", "M2") == 0


@pytest.mark.requirement("EN-12")
def test_the_error_of_a_turn_names_the_key_that_was_withheld(world: Turns) -> None:
    client = world.caller(CROSS_AGENT_CHILD_ENV="", XAI_API_KEY="secret-1")
    failed = world.ended(world.send(client, "grok", world.message("M1"), new_session=True))
    assert (failed["state"], failed["error_code"]) == ("failed", "not_logged_in")
    assert "XAI_API_KEY" in failed["error"] and "secret-1" not in failed["error"]


@pytest.mark.requirement("EN-16", "EN-14")
@each_agent
def test_an_agent_begins_like_one_of_a_shell(world: Turns, agent: str) -> None:
    """Three descriptors, a session of its own, nothing ignored or blocked, in the directory of its conversation."""
    seen = Path(world.home.root, f"seen-{agent}")
    looks = ("ls -l /proc/$$/fd", "cat /proc/$$/stat /proc/$$/status", "/bin/pwd -P")
    world.wrap(agent, *(f"({look} >> {seen})" for look in looks))
    assert world.ended(world.send(world.client, agent, world.message("M1"), new_session=True))["state"] == "delivered"
    text = seen.read_text()
    held = [line.split()[-3::2] for line in text.splitlines() if " -> " in line]
    assert sorted(number for number, what in held if what != str(world.bin / agent)) == ["0", "1", "2"], held
    stat = next(line for line in text.splitlines() if line[:1].isdigit() and "(" in line).split()
    pid, fields = stat[0], stat[stat.index(next(part for part in stat if part.endswith(")"))) + 1 :]
    assert fields[2:4] == [pid, pid], stat  # group and session
    status = dict(line.split(":", 1) for line in text.splitlines() if line.startswith("Sig"))
    assert [int(status[name], 16) for name in ("SigBlk", "SigIgn")] == [0, 0], status
    assert text.splitlines()[-1] == os.path.realpath(world.work)


@pytest.mark.requirement("EN-16")
def test_what_the_starter_of_a_broker_ignored_or_blocked_does_not_reach_an_agent(tmp_path: Path) -> None:
    """As a job in the background of a script does, which ignores SIGINT: that is by what a turn is ended."""
    seen, files = tmp_path / "seen", TurnFiles(str(tmp_path / "att"))
    command = ("/bin/sh", "-c", f"exec grep Sig /proc/self/status > {seen}")
    files.create(Run("grok", str(tmp_path), "", "x", command, True, str(tmp_path), ("PATH",), 60.0), b"")
    program = "import os, signal, sys; [signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGHUP)]; "
    program += (
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    runner = str(ROOT / "broker" / "turns" / "program.py")
    subprocess.run([sys.executable, "-c", program, "-I", runner, files.path], check=True, timeout=30)
    status = dict(line.split(":", 1) for line in seen.read_text().splitlines() if line.startswith("Sig"))
    assert [int(status[name], 16) for name in ("SigBlk", "SigIgn")] == [0, 0], status


def test_what_its_agent_writes_is_as_private_as_what_its_caller_writes(world: Turns) -> None:
    seen = Path(world.home.root, "umask")
    world.wrap("claude", f"umask > {seen}")
    mine = os.umask(0o027)
    try:
        client = world.caller()
    finally:
        os.umask(mine)
    world.opened(client, "claude")
    assert int(seen.read_text(), 8) == 0o027
