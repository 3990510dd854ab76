"""Telling panel calls from all others, over the calls that editors, SDKs and people make of each agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from shims.claude import command as claude
from shims.codex import command as codex
from shims.discover import Search
from shims.grok import command as grok


def _binary(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


VS_CODE = (
    "--output-format stream-json --verbose --input-format stream-json --max-thinking-tokens 31999 --model default "
    "--permission-prompt-tool stdio --resume 6f1b9d1e-0000-4000-8000-000000000000 --mcp-config {} "
    "--setting-sources=user,project,local --permission-mode default --include-partial-messages --debug --debug-to-stderr "
    "--enable-auth-status --no-chrome --replay-user-messages"
)

SDK = (
    "--output-format stream-json --verbose --permission-prompt-tool stdio --include-partial-messages "
    "--setting-sources=user,project,local --input-format stream-json"
)


CLAUDE_COMMANDS = (
    "agents attach auth auto-mode bridge daemon doctor gateway import install kill logs mcp plugin plugins project purge rc "
    "remote-control respawn rm sandbox self-hosted-runner setup-token stop sync ultrareview update upgrade"
)


@pytest.mark.requirement("SH-03", "SH-12")
@pytest.mark.parametrize(
    ("line", "panel"),
    [
        (VS_CODE, True),
        ("--input-format=stream-json", True),
        ("-p --input-format stream-json --output-format stream-json", True),
        ("--input-format text --input-format=stream-json", True),
        ("--input-format stream-json --input-format text", False),
        (SDK, True),
        ("--input-format", False),
        ("-p hello --output-format stream-json", False),
        ("--version", False),
        ("plugin list --json", False),
        ("mcp add x -- server --input-format stream-json", False),
        ("-p stream-json", False),
        ("--append-system-prompt --input-format stream-json", False),
        ("--append-system-prompt --input-format=stream-json -p", False),
        ("--input-format stream-json --version", False),
        ("-v --input-format=stream-json", False),
        ("--input-format stream-json --help", False),
        ("--input-format stream-json mcp list", False),
        ("mcp list --input-format stream-json", False),
        ("--model sonnet plugin list --input-format=stream-json", False),
        ("--debug mcp --input-format stream-json", True),
        ("--add-dir mcp plugin --input-format stream-json", True),
        ("-r update --input-format stream-json", True),
        ("-p update --input-format stream-json", True),
        ("-p --input-format stream-json update", True),
        ("--agent update --input-format stream-json", True),
        ("--permission-prompt-tool stdio --max-turns 3 --input-format stream-json", True),
        ("-- --input-format stream-json", False),
        *((f"{command} --input-format stream-json", False) for command in CLAUDE_COMMANDS.split()),
        ("setup-token", False),
        ("auth login", False),
        ("", False),
    ],
)
def test_calls_of_claude(line: str, panel: bool) -> None:
    assert claude.is_panel(line.split()) is panel


CODEX_COMMANDS = (
    "agents exec e review login logout mcp plugin remote-control completion update doctor sandbox debug apply a resume queue "
    "archive delete migrate-rollouts migrate-nfs-db unarchive fork cloud exec-server features help mcp-server"
)


@pytest.mark.requirement("SH-03", "SH-12")
@pytest.mark.parametrize(
    ("line", "panel"),
    [
        ("app-server", True),
        ("app-server --analytics-default-enabled", True),
        ("app-server --listen stdio://", True),
        ("app-server --listen=stdio://", True),
        ("app-server --stdio --strict-config", True),
        ("-c features.code_mode_host=true app-server --analytics-default-enabled", True),
        ("--config a=b --config=c=d app-server", True),
        ("--enable x --disable y -C /tmp -m model -p work -s read-only -a never --add-dir z app-server", True),
        ("app-server -c a=b --startup-client-info {} --code-mode-host http://x", True),
        ("-c app-server app-server", True),
        ("app-server --listen ws://127.0.0.1:1", False),
        ("app-server --listen=unix://", False),
        ("app-server --listen off", False),
        ("app-server daemon start", False),
        ("app-server -c a=b daemon", False),
        ("app-server proxy", False),
        ("app-server generate-ts --experimental --out x", False),
        ("app-server generate-json-schema", False),
        ("app-server help", False),
        ("app-server --help", False),
        ("app-server --print-startup-config", False),
        ("--version app-server", False),
        ("-c app-server", False),
        ("-C app-server exec", False),
        ("-c a=b -c c=d -c e=f app-server", True),
        ("-ca=b app-server", True),
        ("-mmodel -C/tmp app-server", True),
        ("-i picture.png -m model app-server", True),
        ("-ipicture.png app-server", True),
        ("--search --oss --strict-config app-server", True),
        ("--remote ws://127.0.0.1:1 --local-provider ollama app-server", True),
        ("-c -h app-server", True),
        ("app-server --analytics-default-enabled --listen stdio:// --ws-auth capability-token", True),
        ("app-server --startup-sign-out --cloud-skills-snapshot daemon", True),
        ("-i picture.png app-server", False),
        ("--image a b app-server", False),
        ("a prompt app-server", False),
        ("app-server --listen stdio:// --listen off", False),
        ("app-server --listen unix:///tmp/x", False),
        ("app-server --listen stdio", False),
        ("-c a=b app-server daemon status", False),
        ("app-server --enable x proxy", False),
        ("app-server -h", False),
        ("-V app-server", False),
        ("help app-server", False),
        *((command, False) for command in CODEX_COMMANDS.split()),
        *((f"{command} app-server", False) for command in CODEX_COMMANDS.split()),
        *((f"-c a=b {command} --json", False) for command in CODEX_COMMANDS.split()),
        ("exec app-server", False),
        ("-- app-server", False),
        ("exec --json -", False),
        ("mcp list", False),
        ("", False),
    ],
)
def test_calls_of_codex(line: str, panel: bool) -> None:
    assert codex.is_panel(line.split()) is panel


GUI = "agent --no-leader --model grok-code --reasoning-effort high stdio"
"""What the editor's extension starts: options of `agent` come before the word `stdio`."""


@pytest.mark.requirement("SH-03", "SH-12")
@pytest.mark.parametrize(
    ("line", "panel"),
    [
        (GUI, True),
        ("agent stdio", True),
        ("agent --always-approve stdio --debug", True),
        ("agent --leader stdio", True),
        ("agent --leader-socket /tmp/leader.sock --leader stdio", True),
        ("--debug agent stdio --debug-file log", True),
        ("-m grok-code agent -m other stdio", True),
        ("-mgrok-code --effort=high agent stdio", True),
        ("-cm grok-code agent stdio", True),
        ("--agent agent agent stdio", True),
        ("--resume x agent stdio", True),
        ("--resume -c agent stdio", True),
        ("agent --plugin-dir stdio --plugin-dir x stdio", True),
        ("agent --reauth stdio", True),
        ("-r agent stdio", False),
        ("-w agent stdio", False),
        ("-p agent stdio", False),
        ("agent", False),
        ("agent serve", False),
        ("agent headless", False),
        ("agent leader", False),
        ("agent --leader serve", False),
        ("agent --agent-profile stdio serve", False),
        ("agent stdio --help", False),
        ("agent -h stdio", False),
        ("--version agent stdio", False),
        ("-v", False),
        ("agent help stdio", False),
        ("help agent stdio", False),
        ("agent -- stdio", False),
        ("-- agent stdio", False),
        ("stdio", False),
        ("wrap agent stdio", False),
        ("-p hello", False),
        ("leader list --json", False),
        *((command, False) for command in ["update", "login", "logout", "models", "mcp", "sessions", "doctor", "version"]),
        ("mcp add x -- agent stdio", False),
        ("", False),
    ],
)
def test_calls_of_grok(line: str, panel: bool) -> None:
    assert grok.is_panel(line.split()) is panel


@pytest.mark.requirement("SH-02")
def test_the_wrapped_binary_is_the_first_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _binary(tmp_path / "claude")
    found = _binary(tmp_path / "found" / "claude")
    monkeypatch.setenv("CROSS_AGENT_REAL_CLAUDE", found)
    assert claude.split([real, "--version"], str(tmp_path)) == (real, ["--version"])
    assert claude.split(["--version"], str(tmp_path)) == (found, ["--version"])
    assert claude.split(["install", "stable"], str(tmp_path)) == (found, ["install", "stable"])
    assert claude.split([], str(tmp_path)) == (found, [])
    assert claude.split([real, "--version"], str(tmp_path), left_out=[real]) == (found, ["--version"])


@pytest.mark.requirement("SH-02")
@pytest.mark.parametrize(
    ("line", "dropped"),
    [
        (["/gone/claude", "--version"], 1),
        (["/gone/node", "/x/cli.js", "--version"], 2),
        (["/gone/bun", "/x/cli.js"], 2),
        (["node", "/x/cli.js", "-p"], 2),
        (["/gone/node", "-p", "hi"], 0),
        (["--settings=/tmp/x", "-p", "hi"], 0),
        (["fix src/foo.py"], 0),
        (["src/foo.py", "is wrong"], 0),
        (["/init"], 0),
        (["/gone/other", "x"], 0),
        (["./claude", "x"], 0),
        (["doctor", "/x/cli.js"], 0),
    ],
)
def test_only_a_binary_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], dropped: int) -> None:
    """In a build without a bundled one the first argument is the conversation's."""
    (tmp_path / "src").mkdir()
    _binary(tmp_path / "src" / "foo.py")
    found = _binary(tmp_path / "found" / "claude")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSS_AGENT_REAL_CLAUDE", found)
    monkeypatch.setenv("PATH", "")
    assert claude.split(line, str(tmp_path)) == (found, line[dropped:])


@pytest.mark.requirement("SH-04")
@pytest.mark.parametrize("path", [None, "", ":", ".", "relative:."])
def test_the_workspace_never_says_what_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None) -> None:
    for name in ("codex", "node", "relative/codex"):
        _binary(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    environment = {} if path is None else {"PATH": path}
    search = Search({**environment, "CROSS_AGENT_REAL_CODEX": "codex"}, str(tmp_path / "home"), root=str(tmp_path / "root"))
    assert (search.named(codex.PRODUCT), search.find(codex.PRODUCT)) == (None, None)
    monkeypatch.setattr("os.environ", environment)
    assert claude.split(["node", "cli.js"], str(tmp_path / "home"))[1] == []


@pytest.mark.requirement("SH-04")
def test_the_variable_may_name_the_home(tmp_path: Path) -> None:
    real = _binary(tmp_path / "mine")
    assert Search({"CROSS_AGENT_REAL_CODEX": "~/mine"}, str(tmp_path)).named(codex.PRODUCT) == real


@pytest.mark.requirement("SH-40")
@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("", ("", False)),
        ("--resume 6f1b9d1e-0000-4000-8000-000000000000", ("6f1b9d1e-0000-4000-8000-000000000000", True)),
        ("--resume=6f1b9d1e-0000-4000-8000-000000000000", ("6f1b9d1e-0000-4000-8000-000000000000", True)),
        ("-r 6f1b9d1e-0000-4000-8000-000000000000", ("6f1b9d1e-0000-4000-8000-000000000000", True)),
        ("--resume 6f1b9d1e-0000-4000-8000-000000000000 --fork-session", ("", True)),
        ("--resume title", ("", True)),
        ("--session-id 6f1b9d1e-0000-4000-8000-000000000000", ("6f1b9d1e-0000-4000-8000-000000000000", False)),
        ("--continue", ("", True)),
        ("-c", ("", True)),
    ],
)
def test_what_the_command_line_says_of_the_session(line: str, known: tuple[str, bool]) -> None:
    assert claude.session(line.split()) == known
