"""Entry of the Grok stub: runs as a plain script, ``python -I -S …/shims/grok/stub/__main__.py agent stdio``, or one turn."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def main() -> int:
    if ROOT not in sys.path:
        sys.path.insert(0, ROOT)
    from shims.grok.stub.options import VERSION, Options, TurnOptions

    if sys.argv[1:2] in (["--version"], ["-V"], ["version"]):
        os.write(1, f"grok {VERSION} (scripted)\n".encode())
        return 0
    panel = sys.argv[1:2] == ["agent"]
    options = (Options if panel else TurnOptions)(sys.argv[1:], dict(os.environ))
    if options.refused:
        print(f"error: {options.refused}", file=sys.stderr)
        return 2
    from shims.grok.stub.server import run

    if panel:
        return run(options)
    from shims.grok.stub.headless import TurnServer

    return run(options, TurnServer)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    # Nothing is left to tidy up, and the interpreter's own tidying costs a stub more than its whole start.
    os._exit(status)
