"""``python -m tests.bench [--write] [shim|observation|mcp|deliveries|idle|sessions …]``: measures, prints, compares.

Ends with 1 when a figure has become twice as bad as on the page that was kept last; ``--write`` keeps this one (docs/bench.md).
"""

from __future__ import annotations

import sys

from tests.bench import deliveries, idle, mcp, observation, page, sessions, shim

GROUPS = {
    "shim": shim.figures,
    "observation": observation.figures,
    "mcp": mcp.figures,
    "deliveries": deliveries.figures,
    "idle": idle.figures,
    "sessions": sessions.figures,
}


def main() -> int:
    chosen = [name for name in sys.argv[1:] if name in GROUPS] or list(GROUPS)
    last = page.read()
    measured, decayed = [], False
    for group in chosen:
        for figure in GROUPS[group]():
            measured.append(figure)
            rotten = figure.name in last and page.worse(figure, last[figure.name])
            decayed |= rotten
            print(figure.row() + (f" was {last[figure.name]:.1f}" if rotten else ""), flush=True)
    if "--write" in sys.argv:
        page.write(measured)
    return int(decayed)


if __name__ == "__main__":
    sys.exit(main())
