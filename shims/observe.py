"""Shows what has passed to the stream tracker, once there is one. Loaded before the agent runs.

Owns the order of things between the byte path and the tracker: bytes that pass before the tracker is loaded are kept for
it, within a bound; a tracker that raises is switched off and the reason noted, and the bytes go on (SH-07).
"""

from __future__ import annotations

import _thread
import time

from shims.lines import LineFilter, Sieve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Tracker(Protocol):
        """A stream tracker as observation sees it; called with the lock held, one line at a time."""

        @property
        def editor_markers(self) -> tuple[bytes, ...]: ...

        @property
        def agent_markers(self) -> tuple[bytes, ...]: ...

        def from_editor(self, line: bytes, whole: bool, now: float) -> None: ...

        def from_agent(self, line: bytes, whole: bool, now: float) -> None: ...

        def editor_ended(self) -> None: ...

        def outstanding(self) -> bool: ...

        def judge(self, start: bytes, whole: bool) -> str: ...


_BACKLOG = 8 << 20
"""Bytes kept for a tracker that is not loaded yet; more than an agent says in its first second."""


class Observer:
    """Both directions of one panel, and the lock that makes one tracker of them."""

    def __init__(self) -> None:
        self.lock = _thread.allocate_lock()
        self.editor_side = _Side(self, from_editor=True)
        self.agent_side = _Side(self, from_editor=False)
        self.sieve = Sieve(self._outstanding, self._judge)
        self._tracker: Tracker | None = None
        self._backlog: list[tuple[_Side, bytes | None]] = []
        self._backlog_bytes = 0
        self._changed: Callable[[], None] = lambda: None
        self.off_because = ""
        """Why nothing is observed any more; empty while all is well."""

    def attach(self, tracker: Tracker, changed: Callable[[], None]) -> None:
        """Hands everything seen so far, and from now on, to ``tracker``; ``changed`` is called after each batch of lines.

        Both are called with the lock held and must not block.
        """
        with self.lock:
            self._tracker = tracker
            self._changed = changed
            self.editor_side.filter = LineFilter(tracker.editor_markers)
            self.agent_side.filter = LineFilter(tracker.agent_markers)
            backlog, self._backlog = self._backlog, []
            for side, chunk in backlog:
                self._show(side, chunk)

    def switch_off(self, reason: str) -> None:
        """From here on bytes pass unobserved."""
        self.off_because = self.off_because or reason
        self._tracker = None
        self._backlog = []

    def see(self, side: _Side, chunk: bytes | None) -> None:
        """``chunk`` has passed on ``side``; None: the side has ended."""
        with self.lock:
            if self.off_because:
                return
            if self._tracker is None:
                self._backlog.append((side, chunk))
                self._backlog_bytes += len(chunk or b"")
                if self._backlog_bytes > _BACKLOG:
                    self.switch_off("more passed than could be kept before the tracker was loaded")
                return
            self._show(side, chunk)

    def _show(self, side: _Side, chunk: bytes | None) -> None:
        tracker = self._tracker
        if tracker is None or side.filter is None:
            return
        try:
            if chunk is None:
                if side.from_editor:
                    tracker.editor_ended()
                    self._changed()
                return
            lines = side.filter.feed(chunk)
            if not lines:
                return
            now = time.time()
            for line, whole in lines:
                if side.from_editor:
                    tracker.from_editor(line, whole, now)
                else:
                    tracker.from_agent(line, whole, now)
            self._changed()
        except Exception as error:  # whatever a tracker does wrong, the agent goes on without it (SH-07)
            self.switch_off(f"the tracker failed: {type(error).__name__}")

    def _outstanding(self) -> bool:
        return self._tracker is not None and self._tracker.outstanding()

    def _judge(self, start: bytes, whole: bool) -> str:
        with self.lock:
            return self._tracker.judge(start, whole) if self._tracker is not None else "pass"


class _Side:
    """One direction's tap."""

    __slots__ = ("_observer", "filter", "from_editor")

    def __init__(self, observer: Observer, *, from_editor: bool) -> None:
        self._observer = observer
        self.from_editor = from_editor
        self.filter: LineFilter | None = None

    def passed(self, chunk: bytes) -> None:
        self._observer.see(self, chunk)

    def ended(self) -> None:
        self._observer.see(self, None)
