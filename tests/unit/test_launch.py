"""Finding the real binary among what editors and installers leave, and telling panel calls from others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shims.claude import command as claude
from shims.codex import command as codex
from shims.grok import command as grok
from shims.launch import EDITOR_DIRECTORIES, Product, expand, find_real, first_words, host_words, is_real, version_order

ROOT = Path(__file__).resolve().parents[2]
PRODUCTS = {"claude": claude.PRODUCT, "codex": codex.PRODUCT, "grok": grok.PRODUCT}


def _binary(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def _claude(home: Path, editor: str, version: str, platform: str = "-linux-x64") -> str:
    folder = home / editor / "extensions" / f"anthropic.claude-code-{version}{platform}"
    return _binary(folder / "resources" / "native-binary" / "claude")


def _codex(home: Path, version: str, platform: str = "linux-x86_64") -> str:
    return _binary(home / ".vscode" / "extensions" / f"openai.chatgpt-{version}-linux-x64" / "bin" / platform / "codex")


def _find(product: Product, home: Path, **environment: str) -> str | None:
    return find_real(product, environment, str(home))


# discovery


@pytest.mark.requirement("SH-04")
@pytest.mark.parametrize("editor", EDITOR_DIRECTORIES)
def test_every_editor_is_searched(tmp_path: Path, editor: str) -> None:
    assert _find(claude.PRODUCT, tmp_path, PATH="") is None
    real = _claude(tmp_path, editor, "2.1.9")
    assert _find(claude.PRODUCT, tmp_path, PATH="") == real


@pytest.mark.requirement("SH-04")
def test_the_newest_version_wins_whichever_editor_has_it(tmp_path: Path) -> None:
    _claude(tmp_path, ".vscode", "2.1.9")
    newest = _claude(tmp_path, ".cursor", "2.1.332")
    _claude(tmp_path, ".vscode-server", "2.1.100")
    _claude(tmp_path, ".vscode", "2.0.999")
    assert _find(claude.PRODUCT, tmp_path, PATH="") == newest


@pytest.mark.requirement("SH-04")
def test_a_newer_extension_without_its_binary_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".vscode" / "extensions" / "anthropic.claude-code-3.0.0-linux-x64").mkdir(parents=True)
    older = _claude(tmp_path, ".vscode", "2.1.9")
    newer = Path(_claude(tmp_path, ".vscode", "2.1.10"))
    newer.chmod(0o644)
    assert _find(claude.PRODUCT, tmp_path, PATH="") == older


@pytest.mark.requirement("SH-04")
def test_other_extensions_are_not_taken_for_it(tmp_path: Path) -> None:
    _binary(tmp_path / ".vscode/extensions/somebody.claude-code-9.9.9/resources/native-binary/claude")
    _binary(tmp_path / ".vscode/extensions/openai.chatgpt-9.9.9/bin/codex")
    assert _find(claude.PRODUCT, tmp_path, PATH="") is None
    assert _find(codex.PRODUCT, tmp_path, PATH="") is None


@pytest.mark.requirement("SH-04")
def test_of_several_platforms_this_one_is_first(tmp_path: Path) -> None:
    system, machine = host_words()
    for other in ("aaa-x86_64", "windows-x86_64", "macos-aarch64", "linux-x86_64", "linux-aarch64"):
        _codex(tmp_path, "26.930.31730", other)
    assert _find(codex.PRODUCT, tmp_path, PATH="") == _codex(tmp_path, "26.930.31730", f"{system}-{machine}")


@pytest.mark.requirement("SH-04")
def test_the_order_of_places(tmp_path: Path) -> None:
    """Variable, extension, installed place, PATH."""
    named = _binary(tmp_path / "named")
    bundled = _claude(tmp_path, ".vscode", "2.1.9")
    installed = _binary(tmp_path / ".local" / "bin" / "claude")
    on_path = _binary(tmp_path / "path" / "claude")
    environment = {"CROSS_AGENT_REAL_CLAUDE": named, "PATH": f"/nonexistent::{tmp_path / 'path'}"}
    for place in (named, bundled, installed, on_path):
        assert _find(claude.PRODUCT, tmp_path, **environment) == place
        os.unlink(place)
    assert _find(claude.PRODUCT, tmp_path, **environment) is None


@pytest.mark.requirement("SH-04")
def test_groks_own_place(tmp_path: Path) -> None:
    real = _binary(tmp_path / ".grok" / "bin" / "grok")
    assert _find(grok.PRODUCT, tmp_path, PATH="") == real


@pytest.mark.requirement("SH-04")
@pytest.mark.parametrize("agent", PRODUCTS)
def test_a_launcher_is_no_agent_by_whatever_way(tmp_path: Path, agent: str) -> None:
    launcher = ROOT / "bin" / f"{agent}-shim"
    (tmp_path / "link").symlink_to(launcher)
    (tmp_path / "link of a link").symlink_to("link")
    (tmp_path / "a copy").write_bytes(launcher.read_bytes())
    (tmp_path / "a copy").chmod(0o755)
    for path in (launcher, *tmp_path.iterdir()):
        assert not is_real(str(path))
    product = PRODUCTS[agent]
    directories = [tmp_path / name for name in ("one", "two")]
    for directory in directories:
        directory.mkdir()
    (directories[0] / product.program).symlink_to(launcher)
    real = _binary(directories[1] / product.program)
    environment = {product.variable: str(launcher), "PATH": ":".join(map(str, directories))}
    assert find_real(product, environment, str(tmp_path)) == real


@pytest.mark.requirement("SH-04")
def test_what_is_no_executable_file_is_no_agent(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path, tmp_path / "plain", tmp_path / "dangling", tmp_path / "loop", tmp_path / "none", Path("a\0b")):
        assert not is_real(str(path))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.1.332-linux-x64", (2, 1, 332)),
        ("2.1.10", (2, 1, 10)),
        ("26.930.31730-darwin-arm64", (26, 930, 31730)),
        ("2.1.x", (2, 1)),
        ("", ()),
        ("²", ()),
        ("universal", ()),
    ],
)
def test_versions_are_ordered_by_their_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version_order(text) == numbers


def test_a_star_stands_for_one_name(tmp_path: Path) -> None:
    _binary(tmp_path / "bin" / "a" / "codex")
    _binary(tmp_path / "bin" / "b" / "deeper" / "codex")
    assert expand(str(tmp_path), "bin/*/codex") == [str(tmp_path / "bin" / "a" / "codex")]
    assert expand(str(tmp_path / "none"), "*/codex") == []


# classification

VS_CODE = (
    "--output-format stream-json --verbose --input-format stream-json --max-thinking-tokens 31999 --model default "
    "--permission-prompt-tool stdio --resume 6f1b9d1e-0000-4000-8000-000000000000 --mcp-config {} "
    "--setting-sources=user,project,local --permission-mode default --include-partial-messages --debug --debug-to-stderr "
    "--enable-auth-status --no-chrome --replay-user-messages"
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
        ("--input-format", False),
        ("-p hello --output-format stream-json", False),
        ("--version", False),
        ("plugin list --json", False),
        ("mcp add x -- server --input-format stream-json", False),
        ("-p stream-json", False),
        ("", False),
    ],
)
def test_calls_of_claude(line: str, panel: bool) -> None:
    assert claude.is_panel(line.split()) is panel


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
        ("exec app-server", False),
        ("-- app-server", False),
        ("exec --json -", False),
        ("mcp list", False),
        ("", False),
    ],
)
def test_calls_of_codex(line: str, panel: bool) -> None:
    assert codex.is_panel(line.split()) is panel


def test_no_call_of_grok_is_intercepted_yet() -> None:
    assert not grok.is_panel(["agent", "stdio"])


def test_words_are_what_is_neither_option_nor_value() -> None:
    with_value = frozenset(("-c", "--cd"))
    assert first_words(["-c", "a", "one", "-x", "--cd=b", "two", "-"], with_value) == ["one", "two", "-"]
    assert first_words(["-c"], with_value) == []
    assert first_words(["one", "--", "two"], with_value) == ["one"]


@pytest.mark.requirement("SH-02")
def test_the_wrapped_binary_is_the_first_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = _binary(tmp_path / "claude")
    found = _binary(tmp_path / "found" / "claude")
    monkeypatch.setenv("CROSS_AGENT_REAL_CLAUDE", found)
    assert claude.split([real, "--version"], str(tmp_path)) == (real, ["--version"])
    assert claude.split(["--version"], str(tmp_path)) == (found, ["--version"])
    assert claude.split(["install", "stable"], str(tmp_path)) == (found, ["install", "stable"])
    assert claude.split([str(tmp_path / "gone"), "--version"], str(tmp_path)) == (found, ["--version"])
    assert claude.split([], str(tmp_path)) == (found, [])


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
