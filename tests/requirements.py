"""The manifest of requirements: every id of the specification, and whether it is held now, in part, or later.

`HELD` ids must have a test that names them; `PARTLY` ids must as well, and say what is missing; `DEFERRED` ids say which
later piece of work brings them. A test keeps this honest both ways (tests/unit/test_requirements.py): no id without a place,
no held id without a test, no test that names an id which does not exist. A test names ids by the marker
``requirement("SH-05", …)``.
"""

from __future__ import annotations

GROK = "the Grok shim, every launch path and version"
SESSIONS = "session stores, live registry, names, resolution, callers"
DURABLE = "headless turns, late and recovered answers, limits"
DOORS = "live doors into sessions without a shim"
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
    | _ids("DE", "1-5 10-14 20-25 30-37 40-46 50-53 55")
    | _ids("EN", "1-5 8-17 22 26")
    | _ids("MC", "1 3 5 7-9 25 31 32")
    | _ids("SE", "1-3 5-14 20-31")
)

PARTLY: dict[str, str] = {
    "SH-10": f"what the log says is held; what the broker works out of ancestors is shown with {COMMANDS}",
    "DE-26": f"the broker takes back what it can; the command that asks for it comes with {COMMANDS}",
    "DE-47": f"refusals of panels; those of other routes come with {DURABLE}",
    "DE-54": f"the limits of hops and exchanges need a grant; `install --env` comes with {COMMANDS}",
    "EN-20": f"all but Copilot's evidence, which comes with {COPILOT}",
    "EN-21": f"the variables of what exists; those of headless turns and jobs come with {DURABLE}, {JOBS}",
    "EN-24": f"logs and events are held; the canary over every route comes with {DURABLE}",
    "EN-25": "a message of 60 MiB, which only a foreign client sends, is still copied in the loop",
    "MC-02": f"all but `send_to_copilot`, which comes with {COPILOT}",
    "MC-04": "sessions of other windows are told by the window of their panel, not by a list of their own",
    "MC-06": f"the tool list does not change within a version; announcing a changed one comes with {COMMANDS}",
    "MC-24": f"`mcp`, `broker`, `demo` exist; `reload` and the jobs surface come with {COMMANDS}, {JOBS}",
    "MC-30": f"the handshake is replayed to a new broker; the command `reload` comes with {COMMANDS}",
    "MC-33": f"a cancelled call is owed no answer; `reload` comes with {COMMANDS}",
    "MC-34": f"naming and verified versions; approvals, `SendMessage` and limits come with {COMMANDS}",
    "SE-40": f"in a panel that can open one; on the command line with {DURABLE}",
}

DEFERRED: dict[str, str] = {
    **dict.fromkeys(_ids("LD", "1-9"), DOORS),
    **dict.fromkeys(_ids("SE", "4 41"), COPILOT),
    **dict.fromkeys(_ids("EN", "6 7 23"), COMMANDS),
    **dict.fromkeys(_ids("CO", "1-14"), COPILOT),
    **dict.fromkeys(_ids("MC", "20-23 26-29 35"), COMMANDS),
    **dict.fromkeys(_ids("JO", "1-26"), JOBS),
}
