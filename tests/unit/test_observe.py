"""What is seen of two directions, in which order."""

from __future__ import annotations

import pytest

from shims.lines import PASS
from shims.observe import Observer


class Recorder:
    """A tracker that writes down what it is shown."""

    editor_markers: tuple[bytes, ...] = ()
    agent_markers: tuple[bytes, ...] = ()
    agent_long: tuple[bytes, ...] = ()

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def agent_bulk(self) -> dict[bytes, tuple[bytes, ...]]:
        return {}

    def from_editor(self, line: bytes, whole: bool, now: float) -> None:
        del whole, now
        self.seen.append(line)

    def from_agent(self, line: bytes, whole: bool, now: float) -> None:
        del whole, now
        self.seen.append(line)

    def editor_ended(self) -> None:
        self.seen.append(b"end")

    def outstanding(self) -> bool:
        return False

    def judge(self, start: bytes, whole: bool) -> str:
        del start, whole
        return PASS

    def ahead(self) -> bytes:
        return b""


@pytest.mark.requirement("SH-20", "SH-21")
@pytest.mark.parametrize("attached_first", [True, False])
def test_an_answer_is_never_seen_before_what_it_answers(attached_first: bool) -> None:
    """The agent may answer, and its answer may have passed, before the thread that forwarded the question goes on."""
    observer, tracker = Observer(note=lambda _: None), Recorder()
    if attached_first:
        observer.attach(tracker, lambda: None)

    observer.editor_side.arrived(b'{"question":1}\n')  # and is forwarded; its thread is not back yet
    observer.agent_side.arrived(b'{"answer":1}\n')
    observer.agent_side.passed()
    observer.editor_side.passed()
    if not attached_first:
        observer.attach(tracker, lambda: None)

    assert tracker.seen == [b'{"question":1}', b'{"answer":1}']
