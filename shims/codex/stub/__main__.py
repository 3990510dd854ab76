"""Entry of the Codex stub: runs as a plain script, ``python -I -S …/shims/codex/stub/__main__.py app-server``."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def main() -> int:
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    from shims.codex.stub.options import Options, serves

    options = Options(dict(os.environ))
    if "--version" in sys.argv[1:2] or "-V" in sys.argv[1:2]:
        os.write(1, f"codex-cli {options.version}\n".encode())
        return 0
    if sys.argv[1:2] == ["exec"]:
        from shims.codex.stub import headless

        return headless.run(options, sys.argv[2:])
    if not serves(sys.argv[1:]):
        print("error: this stand-in for Codex runs `app-server` on stdio and `exec` only", file=sys.stderr)
        return 2
    from shims.codex.stub.server import run

    return run(options)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Nothing is left to tidy up, and the interpreter's own tidying costs a stub more than its whole start.
    os._exit(status)
