"""What the real server's deserialisation refuses: wrong types, unknown words, missing fields.

Owns these checks and their wording; a handler may rely on them and looks at no type itself.
"""

from __future__ import annotations

import json

from shims.codex.stub.wire import RpcError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

ID_LENGTH: Final = 36
STRING, WHOLE, FLAG, SEQUENCE, MAP = "a string", "u32", "a boolean", "a sequence", "a map"
KINDS: Final[dict[str, tuple[type, ...]]] = {
    STRING: (str,),
    WHOLE: (int,),
    FLAG: (bool,),
    SEQUENCE: (list,),
    MAP: (dict,),
}
FIELDS: Final = {
    "approvalPolicy": STRING,
    "archived": FLAG,
    "capabilities": MAP,
    "clientInfo": MAP,
    "clientUserMessageId": STRING,
    "cursor": STRING,
    "excludeTurns": FLAG,
    "expectedTurnId": STRING,
    "includeTurns": FLAG,
    "input": SEQUENCE,
    "limit": WHOLE,
    "name": STRING,
    "queuedSubmissionId": STRING,
    "sandbox": STRING,
    "searchTerm": STRING,
    "sortDirection": STRING,
    "sourceKinds": SEQUENCE,
    "threadId": STRING,
    "threadSource": STRING,
    "turnId": STRING,
}
WORDS: Final = {
    "approvalPolicy": ("untrusted", "on-request", "granular", "never"),
    "sandbox": ("read-only", "workspace-write", "danger-full-access"),
    "sortDirection": ("asc", "desc"),
}
INPUTS: Final = {
    "text": "text",
    "image": "url",
    "localImage": "path",
    "audio": "url",
    "localAudio": "path",
    "skill": "name",
    "mention": "name",
}


def check_params(method: str, params: Any, required: tuple[str, ...]) -> dict[str, Any]:
    """The params of a request, once they are known to be of the right shape."""
    if params is None and required:
        raise RpcError("Invalid request: missing field `params`")
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise refusal(params, "struct Params")
    for field in required:
        if field not in params:
            raise RpcError(f"Invalid request: missing field `{field}`")
    for field, value in params.items():
        expected = FIELDS.get(field)
        if value is None and field not in required:
            continue
        if expected is not None:
            check_kind(value, expected)
        if field in WORDS and value not in WORDS[field]:
            known = ", ".join(f"`{word}`" for word in WORDS[field])
            raise RpcError(f"Invalid request: unknown variant `{value}`, expected one of {known}")
    check_cwd(method, params.get("cwd"))
    for part in params.get("input") or ():
        check_input(part)
    return params


def check_kind(value: Any, expected: str) -> None:
    flag_as_number = isinstance(value, bool) and expected != FLAG
    if not isinstance(value, KINDS[expected]) or flag_as_number:
        raise refusal(value, expected)
    if isinstance(value, int) and value < 0:
        raise RpcError(f"Invalid request: invalid value: integer `{value}`, expected {expected}")


def check_cwd(method: str, cwd: Any) -> None:
    several = method == "thread/list" and isinstance(cwd, list) and all(isinstance(path, str) for path in cwd)
    if cwd is not None and not several:
        check_kind(cwd, STRING)


def check_input(part: Any) -> None:
    """One element of an input."""
    if not isinstance(part, dict):
        raise refusal(part, "internally tagged enum UserInput")
    if "type" not in part:
        raise RpcError("Invalid request: missing field `type`")
    if part["type"] not in tuple(INPUTS):
        known = ", ".join(f"`{kind}`" for kind in INPUTS)
        raise RpcError(f"Invalid request: unknown variant `{part['type']}`, expected one of {known}")
    field = INPUTS[part["type"]]
    if field not in part:
        raise RpcError(f"Invalid request: missing field `{field}`")
    check_kind(part[field], STRING)


def check_id(thread_id: str) -> None:
    """Refuses what isn't a uuid."""
    for at, letter in enumerate(thread_id, 1):
        if letter not in "0123456789abcdefABCDEF-":
            raise RpcError(
                "invalid thread id: invalid character: expected an optional prefix of `urn:uuid:` followed by "
                f"[0-9a-fA-F-], found `{letter}` at {at}"
            )
    if len(thread_id) != ID_LENGTH:
        raise RpcError(f"invalid thread id: invalid length: expected length 32 for simple format, found {len(thread_id)}")


def refusal(value: Any, expected: str) -> RpcError:
    """The refusal of a value of the wrong type, named as the real server names it."""
    if isinstance(value, str):
        found = f"string {json.dumps(value)}"
    elif isinstance(value, bool):
        found = f"boolean `{json.dumps(value)}`"
    elif isinstance(value, (int, float)):
        found = f"{'integer' if isinstance(value, int) else 'floating point'} `{value}`"
    else:
        found = "map" if isinstance(value, dict) else "sequence" if isinstance(value, list) else "null"
    return RpcError(f"Invalid request: invalid type: {found}, expected {expected}")
