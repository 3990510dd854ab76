"""Entry of the Claude stub: runs as a plain script, ``python -I -S …/shims/claude/stub/__main__.py <claude's argv>``."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def main() -> int:
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    if sys.argv[1:] and sys.argv[1] in ("--version", "-v"):
        version = os.environ.get("STUB_CLAUDE_VERSION") or "2.1.332"
        os.write(1, f"{version} (Claude Code)\n".encode())
        return 0
    from shims.claude.stub.session import run

    return run(sys.argv[1:], dict(os.environ))


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Nothing is left to tidy up, and the interpreter's own tidying costs a stub more than its whole start.
    os._exit(status)
