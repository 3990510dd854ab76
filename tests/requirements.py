"""The manifest of requirements: every id of the specification, and whether it is held now, in part, or later.

`HELD` ids must have a test that names them; `PARTLY` ids must as well, and say what is missing; `DEFERRED` ids say which
later piece of work brings them. A test keeps this honest both ways (tests/unit/test_requirements.py): no id without a place,
no held id without a test, no test that names an id which does not exist. A test names ids by the marker
``requirement("SH-05", …)``.
"""

from __future__ import annotations

COPILOT = "Copilot over the Agent Host Protocol"
COMMANDS = "command line, monitor, installation, reload"
JOBS = "delegated jobs"


def _ids(area: str, numbers: str) -> set[str]:
    """``_ids("SH", "1-3 7")`` → SH-01, SH-02, SH-03, SH-07."""
    found = set()
    for part in numbers.split():
        first, _, last = part.partition("-")
        found |= {f"{area}-{number:02}" for number in range(int(first), int(last or first) + 1)}
    return found


HELD: set[str] = (
    _ids("SH", "1-9 11-16 20-23 30-35 40-46 50-56 60-65")
    | _ids("DE", "1-5 10-14 20-25 30-37 40-46 47 50-53 55")
    | _ids("LD", "1-9")
    | _ids("EN", "1-5 8-17 22 26")
    | _ids("MC", "1 5 7-9 25 31 32")
    | _ids("SE", "1-3 5-14 20-31 40")
)

PARTLY: dict[str, str] = {
    "SH-10": f"what the log says is held; what the broker works out of ancestors is shown with {COMMANDS}",
    "DE-26": f"the broker takes back what it can; the command that asks for it comes with {COMMANDS}",
    "DE-54": f"the limits of hops and exchanges need a grant; `install --env` comes with {COMMANDS}",
    "EN-06": f"deliveries and watches; jobs come with {JOBS}",
    "EN-20": f"all but Copilot's evidence, which comes with {COPILOT}",
    "EN-21": f"the variables of what exists; those of jobs come with {JOBS}",
    "EN-24": f"panels, doors and command lines; the canary over the other route comes with {COPILOT}",
    "EN-25": "a message of 60 MiB, which only a foreign client sends, is still copied in the loop",
    "MC-02": f"all but `send_to_copilot`, which comes with {COPILOT}",
    "MC-03": f"all but Copilot, which comes with {COPILOT}",
    "MC-04": f"settings and panels of what exists; Copilot comes with {COPILOT}",
    "MC-06": f"the tool list does not change within a version; announcing a changed one comes with {COMMANDS}",
    "MC-24": f"`mcp`, `broker`, `demo` exist; `reload` and the jobs surface come with {COMMANDS}, {JOBS}",
    "MC-30": f"the handshake is replayed to a new broker; the command `reload` comes with {COMMANDS}",
    "MC-33": f"a cancelled call is owed no answer; `reload` comes with {COMMANDS}",
    "MC-34": f"naming and verified versions; approvals, `SendMessage` and limits come with {COMMANDS}",
}

DEFERRED: dict[str, str] = {
    **dict.fromkeys(_ids("SE", "4 41"), COPILOT),
    **dict.fromkeys(_ids("EN", "7 23"), COMMANDS),
    **dict.fromkeys(_ids("CO", "1-14"), COPILOT),
    **dict.fromkeys(_ids("MC", "20-23 26-29 35"), COMMANDS),
    **dict.fromkeys(_ids("JO", "1-26"), JOBS),
}
