"""What the real agent's deserialisation refuses: missing fields, wrong types, unknown words.

Owns these checks and their wording, up to the position in the line that the real one adds; a handler may rely on them and
looks at no type itself.
"""

from __future__ import annotations

import json

from shims.grok.stub.wire import INVALID_PARAMS, RpcError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

STRING, PATH, SEQUENCE, MAP = "a string", "path string", "a sequence", "a map"
_TYPES: Final[dict[str, type]] = {STRING: str, PATH: str, SEQUENCE: list, MAP: dict}
_FIELDS: Final = {
    "_meta": MAP,
    "cwd": PATH,
    "mcpServers": SEQUENCE,
    "methodId": STRING,
    "prompt": SEQUENCE,
    "sessionId": STRING,
    "title": STRING,
}
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "initialize": ("protocolVersion",),
    "authenticate": ("methodId",),
    "session/new": ("cwd", "mcpServers"),
    "session/load": ("mcpServers", "cwd", "sessionId"),
    "session/resume": ("cwd", "sessionId"),
    "session/close": ("sessionId",),
    "session/list": (),
    "session/prompt": ("sessionId", "prompt"),
    "_x.ai/session/rename": ("sessionId",),
    "_x.ai/sessions/list": (),
}
_BLOCKS: Final = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("name", "uri"),
    "resource": ("resource",),
}


def check_params(method: str, params: Any) -> dict[str, Any]:
    """The params of a request, once they are known to be of the right shape."""
    prefix = "invalid params: " if method.startswith("_") else ""
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS)
    for field, value in params.items():
        expected = _FIELDS.get(field)
        if expected is not None and (value is not None or field in REQUIRED[method]):
            _check_type(value, expected, prefix)
    for field in REQUIRED[method]:
        if field not in params:
            raise RpcError(INVALID_PARAMS, f"{prefix}missing field `{field}`")
    for block in params.get("prompt") or ():
        _check_block(block)
    return params


def check_absolute(path: str) -> None:
    if not path.startswith("/"):
        raise RpcError(INVALID_PARAMS, f"Path is not absolute: {path}")


def _check_block(block: Any) -> None:
    """One element of a prompt."""
    _check_type(block, MAP, "")
    if "type" not in block:
        raise RpcError(INVALID_PARAMS, "missing field `type`")
    fields = _BLOCKS.get(str(block["type"]))
    if fields is None:
        known = ", ".join(f"`{kind}`" for kind in _BLOCKS)
        raise RpcError(INVALID_PARAMS, f"unknown variant `{block['type']}`, expected one of {known}")
    for field in fields:
        if field not in block:
            raise RpcError(INVALID_PARAMS, f"missing field `{field}`")
        _check_type(block[field], MAP if field == "resource" else STRING, "")


def _check_type(value: Any, expected: str, prefix: str) -> None:
    if not isinstance(value, _TYPES[expected]):
        raise RpcError(INVALID_PARAMS, f"{prefix}invalid type: {_named(value)}, expected {expected}")


def _named(value: Any) -> str:
    """A value as the real agent names it."""
    if isinstance(value, str):
        return f"string {json.dumps(value)}"
    if isinstance(value, bool):
        return f"boolean `{json.dumps(value)}`"
    if isinstance(value, (int, float)):
        return f"{'integer' if isinstance(value, int) else 'floating point'} `{value}`"
    return "map" if isinstance(value, dict) else "sequence" if isinstance(value, list) else "null"
