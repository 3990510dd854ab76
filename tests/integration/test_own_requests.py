"""What a shim asks the agent itself: written between the editor's lines, and its answers stay out of the editor's stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.conftest import OpenPanel
from tests.integration.editor import Editor, Silence

pytestmark = [
    pytest.mark.requirement("SH-05", "SH-33"),
    pytest.mark.parametrize("shim", ["codex"], indirect=True),  # the one that asks without being asked: `thread/read`
]


def _request(number: int, method: str, **parameters: Any) -> bytes:
    return json.dumps({"method": method, "id": number, "params": parameters}).encode() + b"\n"


HELLO = _request(1, "initialize", capabilities={"experimentalApi": True}) + b'{"method":"initialized"}\n'


def _heard(editor: Editor, count: int) -> list[bytes]:
    """The lines that the agent has read, once there are ``count``."""
    while len(lines := editor.errors().splitlines()) < count:
        if not editor.nothing_comes(0.01):
            raise AssertionError(f"unexpected: {editor.read_line()!r}")
    return lines


@pytest.mark.parametrize(("pieces", "padding"), [(1_000_000, 0), (1, 0), (7, 0), (1_000_000, 300_000), (7, 300_000)])
def test_answers_to_us_stay_out_of_the_editors_stream(open_panel: OpenPanel, pieces: int, padding: int) -> None:
    editor = open_panel("app_server", APP_SERVER_PIECES=str(pieces), APP_SERVER_PADDING=str(padding))
    editor.write(HELLO)
    assert json.loads(editor.read_line())["id"] == 1
    for number in range(2, 6):
        editor.write(_request(number, "turn/start", threadId=f"T{number}"))
        assert json.loads(editor.read_line(timeout=30))["id"] == number
        assert editor.read_line(timeout=30) == b"before "
        assert editor.read_line(timeout=30) == b"after"
    editor.close_input()
    assert editor.read_rest() == b""
    assert editor.wait() == 0
    heard = [json.loads(line) for line in editor.errors().splitlines()]
    asked = [message["params"]["threadId"] for message in heard if str(message.get("id")).startswith("xagent-")]
    assert asked == ["T2", "T3", "T4", "T5"]


def test_a_line_of_ours_waits_for_the_end_of_the_editors(open_panel: OpenPanel) -> None:
    editor = open_panel("app_server")
    editor.write(HELLO)
    editor.read_line()
    beginning, end = b'{"method":"later","par', b'ams":{}}\n'
    editor.write(_request(2, "turn/start", threadId="T2") + beginning)
    assert json.loads(editor.read_line())["id"] == 2
    with pytest.raises(Silence):
        editor.read_line(timeout=0.5)
    editor.write(end)
    assert editor.read_line() == b"before "
    heard = _heard(editor, 5)
    assert heard[3] == beginning + end[:-1]
    assert json.loads(heard[4])["method"] == "thread/read"
