"""Finding the real binary: one row is a tree of files, an environment, a platform, and the path that must be found (SH-04)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shims.claude.command import PRODUCT as CLAUDE
from shims.codex.command import PRODUCT as CODEX
from shims.discover import Search, find_real, version_order
from shims.grok.command import PRODUCT as GROK
from shims.launch import Product

pytestmark = pytest.mark.requirement("SH-04")

ROOT = Path(__file__).resolve().parents[2]
LINUX, LINUX_ARM = ("Linux", "x86_64"), ("Linux", "aarch64")
MAC, INTEL_MAC = ("Darwin", "aarch64"), ("Darwin", "x86_64")

ELF, ELF_ARM = (b"\x7fELF\x02\x01\x01" + bytes(11) + bytes((code, 0)) for code in (62, 183))
MACH_O, MACH_O_INTEL = (b"\xcf\xfa\xed\xfe" + bytes((code, 0, 0, 1)) for code in (12, 7))
UNIVERSAL = b"\xca\xfe\xba\xbe\0\0\0\2" + b"\1\0\0\7" + bytes(16) + b"\1\0\0\x0c" + bytes(16)
WINDOWS = b"MZ\x90\0"
SCRIPT = b"#!/bin/sh\nexit\n"
NODE = b"#!/usr/bin/env node\nimport './cli.js'\n"
NO_PROGRAM = b'echo "native binary not installed"\n'
LAUNCHER = (ROOT / "bin" / "claude-shim").read_bytes()

EDITORS = (
    ".vscode/extensions", ".vscode-insiders/extensions", ".vscode-oss/extensions", ".vscodium/extensions", ".cursor/extensions",
    ".windsurf/extensions", ".antigravity/extensions", ".kiro/extensions", ".trae/extensions", ".positron/extensions",
    ".vscode-server/extensions", ".vscode-server-insiders/extensions", ".vscode-remote/extensions",
    ".vscodium-server/extensions", ".cursor-server/extensions", ".windsurf-server/extensions", ".openvscode-server/extensions",
    ".local/share/code-server/extensions", ".var/app/com.visualstudio.code/data/vscode/extensions",
    ".var/app/com.vscodium.codium/data/codium/extensions",
)  # fmt: skip
"""Written out: rows that come of the program's own table would miss what it misses."""
MANAGERS = (
    "/opt/homebrew/bin", "/usr/local/bin", "/home/linuxbrew/.linuxbrew/bin", "~/.npm-global/bin", "~/.volta/bin", "~/.bun/bin",
    "~/.local/share/pnpm", "~/Library/pnpm", "~/.local/share/mise/shims", "~/.asdf/shims", "~/.nvm/versions/node/v22.1.0/bin",
    "~/.local/share/fnm/node-versions/v22.1.0/installation/bin",
)  # fmt: skip
CASKS = (
    (CLAUDE, "claude-code/2.1.9/claude"), (CLAUDE, "claude-code@latest/2.1.9/claude"),
    (CODEX, "codex/0.171.0/codex-aarch64-apple-darwin"), (CODEX, "codex/0.171.0/bin/codex"),
)  # fmt: skip

VSCODE = "~/.vscode/extensions"
BREW = "/opt/homebrew/lib/node_modules/@openai/codex"
VENDORED = f"{BREW}/node_modules/@openai/codex-darwin-arm64/vendor/aarch64-apple-darwin/bin/codex"
CLAUDE_IN = "resources/native-binary/claude"


@dataclass(frozen=True)
class Row:
    """``tree``: path → what is there: bytes of an executable file, `None` for a directory, ``-> target`` for a link,
    ``plain …`` for a file that is not executable. ``~/`` is the home; other absolute paths lie below a root of their own,
    and so do those in ``PATH``."""

    name: str
    product: Product
    host: tuple[str, str]
    tree: dict[str, bytes | str | None]
    expected: str | None
    environment: dict[str, str] = field(default_factory=dict)


USELESS: dict[str, bytes | str | None] = {
    "nothing": "-> nowhere",
    "a directory": None,
    "an empty file": b"",
    "a shim": "-> /co/bin/codex-shim",
    "a copy of a shim": LAUNCHER,
    "a script that calls a shim": b'#!/bin/sh\nexec codex-shim "$@"\n',
}

ROWS = [
    # editors' extensions
    Row("nothing at all", CLAUDE, LINUX, {}, None, {"PATH": "/usr/bin:/bin"}),
    Row("nothing at all on macOS", CODEX, MAC, {}, None, {"PATH": "/usr/bin:/bin"}),
    *(
        Row(f"in ~/{place}", CLAUDE, LINUX, {f"~/{place}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}": ELF},
            f"~/{place}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}")
        for place in EDITORS
    ),
    Row("2.1.10 is newer than 2.1.9", CLAUDE, LINUX, {
        f"{VSCODE}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}": ELF,
        f"{VSCODE}/anthropic.claude-code-2.1.10-linux-x64/{CLAUDE_IN}": ELF,
        f"{VSCODE}/anthropic.claude-code-2.0.999-linux-x64/{CLAUDE_IN}": ELF,
    }, f"{VSCODE}/anthropic.claude-code-2.1.10-linux-x64/{CLAUDE_IN}"),
    Row("the newest of all editors", CODEX, LINUX, {
        f"{VSCODE}/openai.chatgpt-26.506.31421-linux-x64/bin/linux-x86_64/codex": ELF,
        "~/.cursor/extensions/openai.chatgpt-26.930.31730-linux-x64/bin/linux-x86_64/codex": ELF,
        "~/.vscode-server/extensions/openai.chatgpt-26.623.40000-linux-x64/bin/linux-x86_64/codex": ELF,
    }, "~/.cursor/extensions/openai.chatgpt-26.930.31730-linux-x64/bin/linux-x86_64/codex"),
    Row("a pre-release is older than its release", CODEX, LINUX, {
        f"{VSCODE}/openai.chatgpt-26.930.0-beta.2-linux-x64/bin/linux-x86_64/codex": ELF,
        f"{VSCODE}/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex": ELF,
    }, f"{VSCODE}/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex"),
    Row("a pre-release is newer than what came before", CODEX, LINUX, {
        f"{VSCODE}/openai.chatgpt-26.930.0-beta.2-linux-x64/bin/linux-x86_64/codex": ELF,
        f"{VSCODE}/openai.chatgpt-26.930.0-beta.11-linux-x64/bin/linux-x86_64/codex": ELF,
        f"{VSCODE}/openai.chatgpt-26.929.9-linux-x64/bin/linux-x86_64/codex": ELF,
    }, f"{VSCODE}/openai.chatgpt-26.930.0-beta.11-linux-x64/bin/linux-x86_64/codex"),
    Row("an extension without a platform in its name", CLAUDE, LINUX, {
        f"{VSCODE}/anthropic.claude-code-2.1.10/{CLAUDE_IN}": ELF,
        f"{VSCODE}/anthropic.claude-code-2.1.9-universal/{CLAUDE_IN}": ELF,
    }, f"{VSCODE}/anthropic.claude-code-2.1.10/{CLAUDE_IN}"),
    Row("a newer extension that is not unpacked yet", CLAUDE, LINUX, {
        f"{VSCODE}/anthropic.claude-code-3.0.0-linux-x64/resources": None,
        f"{VSCODE}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}": ELF,
    }, f"{VSCODE}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}"),
    Row("newer ones that are broken", CLAUDE, LINUX, {
        f"{VSCODE}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}": ELF,
        f"{VSCODE}/anthropic.claude-code-2.1.10-linux-x64/{CLAUDE_IN}": "plain " + "x",
        f"{VSCODE}/anthropic.claude-code-2.1.11-linux-x64/{CLAUDE_IN}": b"",
        f"{VSCODE}/anthropic.claude-code-2.1.12-linux-x64/{CLAUDE_IN}": "-> nowhere",
        f"{VSCODE}/anthropic.claude-code-2.1.13-linux-x64/{CLAUDE_IN}": None,
        f"{VSCODE}/anthropic.claude-code-2.1.14-linux-x64/{CLAUDE_IN}": "-> claude",
        f"{VSCODE}/anthropic.claude-code-2.1.15-linux-x64": b"a file where a folder should be",
    }, f"{VSCODE}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}"),
    Row("other extensions whose names begin alike", CODEX, LINUX, {
        f"{VSCODE}/openai.chatgpt-helper-99.0.0/bin/linux-x86_64/codex": ELF,
        f"{VSCODE}/somebody.chatgpt-99.0.0/bin/linux-x86_64/codex": ELF,
        f"{VSCODE}/openai.chatgpt-99.0.0/bin/codex": ELF,
    }, None),
    Row("one that was uninstalled and lies there until the editor's next start", CODEX, LINUX, {
        f"{VSCODE}/.obsolete": 'plain {"openai.chatgpt-26.930.0-linux-x64":true}',
        f"{VSCODE}/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex": ELF,
        f"{VSCODE}/openai.chatgpt-26.506.0-linux-x64/bin/linux-x86_64/codex": ELF,
    }, f"{VSCODE}/openai.chatgpt-26.506.0-linux-x64/bin/linux-x86_64/codex"),
    Row("better an uninstalled one than none", CODEX, LINUX, {
        f"{VSCODE}/.obsolete": 'plain {"openai.chatgpt-26.930.0-linux-x64":true}',
        f"{VSCODE}/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex": ELF,
    }, f"{VSCODE}/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex"),
    Row("the extensions directory is a link", CLAUDE, LINUX, {
        f"~/elsewhere/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}": ELF,
        "~/.vscode-oss/extensions": "-> ../elsewhere",
    }, f"~/.vscode-oss/extensions/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}"),
    Row("portable mode", CODEX, LINUX, {
        "/media/stick/code/data/extensions/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex": ELF,
    }, "/media/stick/code/data/extensions/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex",
        {"VSCODE_PORTABLE": "/media/stick/code/data"}),
    Row("a directory of the environment's", CODEX, LINUX, {
        "/srv/extensions/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex": ELF,
        f"{VSCODE}/openai.chatgpt-26.506.0-linux-x64/bin/linux-x86_64/codex": ELF,
    }, "/srv/extensions/openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex", {"VSCODE_EXTENSIONS": "/srv/extensions"}),
    Row("a server with a directory of its own", CLAUDE, LINUX, {
        f"/srv/server/extensions/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}": ELF,
    }, f"/srv/server/extensions/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}", {"VSCODE_AGENT_FOLDER": "/srv/server"}),
    # platforms
    *(
        Row(f"the folder for {host[0]} {host[1]}", CODEX, host, {
            f"{VSCODE}/openai.chatgpt-26.930.0/bin/aaa-x86_64/codex": WINDOWS,
            f"{VSCODE}/openai.chatgpt-26.930.0/bin/linux-x86_64/codex": ELF,
            f"{VSCODE}/openai.chatgpt-26.930.0/bin/linux-aarch64/codex": ELF_ARM,
            f"{VSCODE}/openai.chatgpt-26.930.0/bin/macos-x86_64/codex": MACH_O_INTEL,
            f"{VSCODE}/openai.chatgpt-26.930.0/bin/macos-aarch64/codex": MACH_O,
            f"{VSCODE}/openai.chatgpt-26.930.0/bin/windows-x86_64/codex": WINDOWS,
        }, f"{VSCODE}/openai.chatgpt-26.930.0/bin/{folder}/codex")
        for host, folder in ((LINUX, "linux-x86_64"), (LINUX_ARM, "linux-aarch64"), (MAC, "macos-aarch64"),
                             (INTEL_MAC, "macos-x86_64"))
    ),
    Row("a home that is shared with a Mac", CLAUDE, LINUX, {
        f"{VSCODE}/anthropic.claude-code-2.1.332-darwin-arm64/{CLAUDE_IN}": MACH_O,
        f"{VSCODE}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}": ELF,
    }, f"{VSCODE}/anthropic.claude-code-2.1.9-linux-x64/{CLAUDE_IN}"),
    Row("another platform's is not taken before one on the PATH", CLAUDE, LINUX_ARM, {
        f"{VSCODE}/anthropic.claude-code-2.1.332-linux-x64/{CLAUDE_IN}": ELF,
        "/usr/bin/claude": ELF_ARM,
    }, "/usr/bin/claude", {"PATH": "/usr/bin:/bin"}),
    Row("another platform's, if there is nothing else: an emulator may know it", CLAUDE, LINUX_ARM, {
        f"{VSCODE}/anthropic.claude-code-2.1.332-linux-x64/{CLAUDE_IN}": ELF,
    }, f"{VSCODE}/anthropic.claude-code-2.1.332-linux-x64/{CLAUDE_IN}", {"PATH": "/usr/bin:/bin"}),
    Row("a program for several processors", CODEX, MAC, {
        f"{VSCODE}/openai.chatgpt-26.930.0-darwin-arm64/bin/universal/codex": UNIVERSAL,
    }, f"{VSCODE}/openai.chatgpt-26.930.0-darwin-arm64/bin/universal/codex"),
    Row("a script as an agent", CLAUDE, MAC, {f"{VSCODE}/anthropic.claude-code-2.1.9/{CLAUDE_IN}": SCRIPT},
        f"{VSCODE}/anthropic.claude-code-2.1.9/{CLAUDE_IN}"),
    # the agents' own installers
    Row("Claude Code's native installer", CLAUDE, LINUX, {
        "~/.local/share/claude/versions/2.1.332": ELF,
        "~/.local/share/claude/versions/2.1.9": ELF,
        "~/.local/bin/claude": "-> ../share/claude/versions/2.1.332",
    }, "~/.local/bin/claude"),
    Row("its link is gone", CLAUDE, MAC, {
        "~/.local/share/claude/versions/2.1.9": MACH_O,
        "~/.local/share/claude/versions/2.1.332": MACH_O,
        "~/.local/bin/claude": "-> ../share/claude/versions/2.1.400",
    }, "~/.local/share/claude/versions/2.1.332"),
    Row("Claude Code's older local installation", CLAUDE, LINUX, {
        "~/.claude/local/claude": b'#!/bin/bash\nexec "/home/u/.claude/local/node_modules/.bin/claude" "$@"\n',
    }, "~/.claude/local/claude"),
    Row("the same with a data directory elsewhere", CLAUDE, LINUX, {"/data/c/local/claude": SCRIPT}, "/data/c/local/claude",
        {"CLAUDE_CONFIG_DIR": "/data/c"}),
    Row("Codex's standalone installer", CODEX, MAC, {
        "~/.codex/packages/standalone/releases/0.171.0/bin/codex": MACH_O,
        "~/.codex/packages/standalone/current": "-> releases/0.171.0",
    }, "~/.codex/packages/standalone/current/bin/codex"),
    Row("the same with a data directory elsewhere", CODEX, LINUX, {"/data/x/packages/standalone/current/codex": ELF},
        "/data/x/packages/standalone/current/codex", {"CODEX_HOME": "/data/x"}),
    Row("Grok's own place before the PATH", GROK, LINUX, {
        "~/.grok/bin/grok-1.0.41": ELF, "~/.grok/bin/grok": "-> grok-1.0.41", "/usr/bin/grok": ELF,
    }, "~/.grok/bin/grok", {"PATH": "/usr/bin"}),
    Row("Grok's link is gone", GROK, LINUX, {
        "~/.grok/bin/grok-1.0.9": ELF, "~/.grok/bin/grok-1.0.41": ELF, "~/.grok/bin/grok": "-> grok-1.0.42",
    }, "~/.grok/bin/grok-1.0.41"),
    Row("Grok's data directory elsewhere", GROK, LINUX, {"/data/g/bin/grok": ELF, "~/.grok/bin/grok": ELF},
        "/data/g/bin/grok", {"GROK_HOME": "/data/g"}),
    Row("an extension before an installation", CODEX, LINUX, {
        f"{VSCODE}/openai.chatgpt-26.1.0-linux-x64/bin/linux-x86_64/codex": ELF, "~/.local/bin/codex": ELF,
        "/usr/bin/codex": ELF,
    }, f"{VSCODE}/openai.chatgpt-26.1.0-linux-x64/bin/linux-x86_64/codex", {"PATH": "/usr/bin"}),
    # the PATH
    Row("the first on the PATH", CODEX, LINUX, {"/a/codex": "plain x", "/b/codex": ELF, "/c/codex": ELF}, "/b/codex",
        {"PATH": "/none:/a:/b:/c"}),
    Row("npm's global prefix", CODEX, LINUX, {
        "/usr/lib/node_modules/@openai/codex/bin/codex.js": NODE,
        "/usr/bin/codex": "-> ../lib/node_modules/@openai/codex/bin/codex.js",
        "/usr/bin/node": ELF,
    }, "/usr/bin/codex", {"PATH": "/usr/bin"}),
    Row("no node on the PATH: what the package carries", CODEX, MAC, {
        f"{BREW}/bin/codex.js": NODE, VENDORED: MACH_O,
        "/opt/homebrew/bin/codex": "-> ../lib/node_modules/@openai/codex/bin/codex.js",
    }, VENDORED, {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}),
    Row("the same with the platform's package beside it", CODEX, LINUX, {
        "~/.npm-global/lib/node_modules/@openai/codex/bin/codex.js": NODE,
        "~/.npm-global/lib/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex": ELF,
        "~/.npm-global/bin/codex": "-> ../lib/node_modules/@openai/codex/bin/codex.js",
    }, "~/.npm-global/lib/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"),
    Row("npm without its install script", CLAUDE, LINUX, {
        "/usr/lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe": NO_PROGRAM,
        "/usr/lib/node_modules/@anthropic-ai/claude-code/node_modules/@anthropic-ai/claude-code-linux-x64/claude": ELF,
        "/usr/bin/claude": "-> ../lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe",
    }, "/usr/lib/node_modules/@anthropic-ai/claude-code/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
        {"PATH": "/usr/bin"}),
    Row("a script without its interpreter, if there is nothing else", CODEX, LINUX, {"/usr/bin/codex": NODE}, "/usr/bin/codex",
        {"PATH": "/usr/bin"}),
    Row("nvm on the PATH", CLAUDE, LINUX, {"~/.nvm/versions/node/v22.1.0/bin/claude": ELF},
        "~/.nvm/versions/node/v22.1.0/bin/claude", {"PATH": "~/.nvm/versions/node/v22.1.0/bin:/usr/bin"}),
    # outside it: a GUI editor's PATH is short
    Row("Homebrew, Apple silicon", CLAUDE, MAC, {
        "/opt/homebrew/Caskroom/claude-code/2.1.332/claude": MACH_O,
        "/opt/homebrew/bin/claude": "-> ../Caskroom/claude-code/2.1.332/claude",
    }, "/opt/homebrew/bin/claude", {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}),
    Row("Homebrew, Intel", CODEX, INTEL_MAC, {
        "/usr/local/Caskroom/codex/0.171.0/codex-x86_64-apple-darwin": MACH_O_INTEL,
        "/usr/local/bin/codex": "-> ../Caskroom/codex/0.171.0/codex-x86_64-apple-darwin",
    }, "/usr/local/bin/codex", {"PATH": "/usr/bin:/bin"}),
    Row("a cask that is not linked", CODEX, MAC, {
        "/opt/homebrew/Caskroom/codex/0.147.0/codex-aarch64-apple-darwin": MACH_O,
        "/opt/homebrew/Caskroom/codex/0.171.0/codex-aarch64-apple-darwin": MACH_O,
    }, "/opt/homebrew/Caskroom/codex/0.171.0/codex-aarch64-apple-darwin", {"PATH": "/usr/bin:/bin"}),
    Row("another shape of cask", CODEX, MAC, {"/opt/homebrew/Caskroom/codex/0.171.0/bin/codex": MACH_O},
        "/opt/homebrew/Caskroom/codex/0.171.0/bin/codex"),
    Row("a cask of another channel", CLAUDE, MAC, {"/opt/homebrew/Caskroom/claude-code@latest/2.1.332/claude": MACH_O},
        "/opt/homebrew/Caskroom/claude-code@latest/2.1.332/claude"),
    Row("Homebrew on Linux", CODEX, LINUX, {"/home/linuxbrew/.linuxbrew/bin/codex": ELF}, "/home/linuxbrew/.linuxbrew/bin/codex"),
    Row("nvm outside the PATH, newest Node.js first", CLAUDE, LINUX, {
        "~/.nvm/versions/node/v9.0.0/bin/claude": ELF, "~/.nvm/versions/node/v22.1.0/bin/claude": ELF,
        "~/.nvm/versions/node/v24.0.0/bin/node": ELF,
    }, "~/.nvm/versions/node/v22.1.0/bin/claude"),
    Row("fnm", CLAUDE, LINUX, {"~/.local/share/fnm/node-versions/v22.1.0/installation/bin/claude": ELF},
        "~/.local/share/fnm/node-versions/v22.1.0/installation/bin/claude"),
    Row("fnm on macOS", CLAUDE, MAC, {"~/Library/Application Support/fnm/node-versions/v22.1.0/installation/bin/claude": MACH_O},
        "~/Library/Application Support/fnm/node-versions/v22.1.0/installation/bin/claude"),
    Row("volta", CODEX, MAC, {"~/.volta/bin/volta-shim": MACH_O, "~/.volta/bin/codex": "-> volta-shim"}, "~/.volta/bin/codex"),
    Row("the PATH before what is outside it", CODEX, MAC, {"/a/codex": MACH_O, "/opt/homebrew/bin/codex": MACH_O}, "/a/codex",
        {"PATH": "/a"}),
    *(
        Row(f"outside the PATH: {product.name} in {place}", product, LINUX, {f"{place}/{product.program}": ELF},
            f"{place}/{product.program}", {"PATH": "/usr/bin:/bin"})
        for place in MANAGERS for product in (CLAUDE, CODEX, GROK)
    ),
    *(
        Row(f"the cask {cask} below {prefix}", product, MAC, {f"{prefix}/Caskroom/{cask}": MACH_O}, f"{prefix}/Caskroom/{cask}",
            {"PATH": "/usr/bin:/bin"})
        for product, cask in CASKS for prefix in ("/opt/homebrew", "/usr/local", "/home/linuxbrew/.linuxbrew")
    ),
    # never a shim
    Row("the variable", CODEX, LINUX, {"~/mine": ELF, "/usr/bin/codex": ELF}, "~/mine",
        {"CROSS_AGENT_REAL_CODEX": "~/mine", "PATH": "/usr/bin"}),
    Row("the variable names another platform's: who set it knows why", CODEX, LINUX, {"~/mine": ELF_ARM, "/usr/bin/codex": ELF},
        "~/mine", {"CROSS_AGENT_REAL_CODEX": "~/mine", "PATH": "/usr/bin"}),
    *(
        Row(f"the variable leads to {what}", CODEX, LINUX, {
            "~/mine": there, "/usr/bin/codex": ELF, "/co/bin/codex-shim": LAUNCHER,
        }, "/usr/bin/codex", {"CROSS_AGENT_REAL_CODEX": "~/mine", "PATH": "/usr/bin"})
        for what, there in USELESS.items()
    ),
    Row("shims first on the PATH", CLAUDE, LINUX, {
        "/co/bin/claude-shim": LAUNCHER, "/a/claude": "-> /co/bin/claude-shim", "/b/claude": "-> ../a/claude",
        "/c/claude": LAUNCHER, "/d/claude": b'#!/usr/bin/env bash\nexport X=1\nexec "$HOME/bin/claude-shim" "$@"\n',
        "/e/claude": ELF,
    }, "/e/claude", {"PATH": "/co/bin:/a:/b:/c:/d:/e"}),
    Row("nothing but shims", CLAUDE, LINUX, {"/co/bin/claude-shim": LAUNCHER, "~/.local/bin/claude": "-> /co/bin/claude-shim",
                                             "/c/claude": LAUNCHER}, None, {"PATH": "/c"}),
]  # fmt: skip


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Search, str | None]:
    """The search in a row's tree, and the path that it must find."""
    row: Row = request.param
    root, home = tmp_path / "root", tmp_path / "root" / "home" / "someone"

    def place(path: str) -> str:
        return f"{home}{path[1:]}" if path.startswith("~") else f"{root}{path}"

    home.mkdir(parents=True)
    for path, content in row.tree.items():
        _put(Path(place(path)), content, root)
    environment = {
        name: ":".join(map(place, value.split(":"))) if value.startswith(("/", "~")) else value
        for name, value in row.environment.items()
    }
    search = Search(environment, str(home), host=row.host, root=str(root), processes=str(tmp_path))
    return search, None if row.expected is None else place(row.expected)


def _put(file: Path, content: bytes | str | None, root: Path) -> None:
    if content is None:
        file.mkdir(parents=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        file.write_bytes(content)
        file.chmod(0o755)
    elif content.startswith("-> "):
        target = content[3:]
        file.symlink_to(f"{root}{target}" if target.startswith("/") else target)
    else:
        file.write_text(content.removeprefix("plain "))


@pytest.mark.parametrize(("row", "made"), [(row, row) for row in ROWS], indirect=["made"], ids=[row.name for row in ROWS])
def test_the_binary_is_found(row: Row, made: tuple[Search, str | None]) -> None:
    search, expected = made
    assert (search.named(row.product) or search.find(row.product)) == expected


def _home_with(tmp_path: Path, *paths: str) -> Path:
    for path in paths:
        _put(tmp_path / path, ELF, tmp_path)
    return tmp_path


NEWER = "openai.chatgpt-26.930.0-linux-x64/bin/linux-x86_64/codex"
OLDER = ".vscode/extensions/openai.chatgpt-26.506.0-linux-x64/bin/linux-x86_64/codex"


@pytest.mark.parametrize("option", ["--extensions-dir={0}", "--extensions-dir {0}"])
@pytest.mark.parametrize("generations", [0, 1, 4])
def test_an_editor_above_was_started_with_a_directory_of_its_own(tmp_path: Path, option: str, generations: int) -> None:
    home = _home_with(tmp_path, f"own/{NEWER}", OLDER)
    pid = os.getppid()
    for generation in range(generations + 1):
        arguments = option.format(home / "own").split(" ") if generation == generations else ["--type=utility"]
        _process(tmp_path / "proc" / str(pid), 9000 + generation, ["/usr/share/code/code", *arguments])
        pid = 9000 + generation

    def found(environment: dict[str, str]) -> str | None:
        search = Search(environment, str(home), host=LINUX, root=str(tmp_path), processes=str(tmp_path / "proc"))
        return search.find(CODEX)

    assert found({"VSCODE_PID": "7"}) == str(home / "own" / NEWER)
    assert found({}) == str(home / OLDER), "in a terminal nobody above matters"


def _process(directory: Path, parent: int, command: list[str]) -> None:
    directory.mkdir(parents=True)
    (directory / "cmdline").write_bytes("".join(f"{part}\0" for part in command).encode())
    (directory / "stat").write_text(f"1 (a name) with ) S {parent} 1 1 0")


def test_what_the_answer_rests_on_is_known(tmp_path: Path) -> None:
    """So that it can be told later whether the same search would find the same."""
    home = _home_with(tmp_path, OLDER)
    search = Search({"PATH": ""}, str(home), host=LINUX, root=str(tmp_path))
    assert search.find(CODEX) == str(home / OLDER)
    assert search.certain
    parents = [str(path) for path in (home / OLDER).parents][:5]
    assert {*parents[:1], *parents[1:2], *parents[3:4], str(home / OLDER)} <= set(search.looked_in)
    assert f"{home}/.cursor/extensions" in search.missing
    assert f"{home}/.vscode/extensions/.obsolete" in search.missing
    assert not set(search.looked_in) & set(search.missing)


@pytest.mark.parametrize("spoil", ["a newer one that is not executable yet", "a script"])
def test_what_cannot_be_told_later_is_not_certain(tmp_path: Path, spoil: str) -> None:
    home = _home_with(tmp_path, OLDER)
    if spoil == "a script":
        (home / OLDER).write_bytes(SCRIPT)
    else:
        _put(home / ".vscode/extensions" / NEWER, "plain x", tmp_path)
    search = Search({"PATH": ""}, str(home), host=LINUX, root=str(tmp_path))
    assert search.find(CODEX) == str(home / OLDER)
    assert not search.certain


def test_the_public_way(tmp_path: Path) -> None:
    real = tmp_path / "somewhere" / "claude"
    _put(real, SCRIPT, tmp_path)
    assert find_real(CLAUDE, {"PATH": str(real.parent)}, str(tmp_path)) == str(real)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("2.1.9", "2.1.10"),
        ("2.1.9-linux-x64", "2.1.10-darwin-arm64"),
        ("2.1.10-beta.2-linux-x64", "2.1.10-beta.11-linux-x64"),
        ("2.1.10-beta.11", "2.1.10-rc.1"),
        ("2.1.10-rc.1-linux-x64", "2.1.10-linux-x64"),
        ("2.1.10-1", "2.1.10-alpha"),
        ("2.1.9", "2.1.10-rc.1"),
        ("v9.0.0", "v22.1.0"),
        ("26.930.31730", "26.1001.1"),
        ("2.1", "2.1.0"),
        ("", "0"),
        ("universal", "0.0.1"),
        ("²", "0"),
        ("2.x", "2.0"),
    ],
)
def test_versions_are_ordered(older: str, newer: str) -> None:
    assert version_order(older) < version_order(newer)


def test_a_platform_or_a_build_makes_no_difference() -> None:
    assert (
        len({version_order(f"2.1.10{suffix}") for suffix in ("", "-linux-x64", "-universal", "+build.7", "-alpine-arm64")}) == 1
    )
