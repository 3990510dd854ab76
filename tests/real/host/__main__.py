"""``python -m tests.real.host`` downloads and builds VS Code's agent host, once; 1 and what is missing if it cannot."""

from __future__ import annotations

import sys

from tests.real.binaries import BinaryMissingError
from tests.real.host.installation import VSCODE, install, node_version


def main() -> int:
    try:
        found = install()
    except BinaryMissingError as error:
        print(f"agent host of VS Code {VSCODE}: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"agent host of VS Code {VSCODE}: {found.root} (Node.js {node_version(found)})", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
