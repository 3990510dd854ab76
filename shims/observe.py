"""Shows what has passed to the stream tracker, once there is one. Loaded before the agent runs.

Owns the order of things between the byte path and the tracker: bytes that pass before the tracker is loaded are kept for
it, within a bound; a tracker that raises is switched off and the reason noted, and the bytes go on (SH-07).
"""

from __future__ import annotations

import _thread
import time

from shims.lines import PASS, LineFilter, Sieve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from shims.stream import Tracker
else:
    from _collections import deque  # built in; `collections` is not

_BACKLOG = 8 << 20
"""Bytes kept for a tracker that is not loaded yet; more than an agent says in its first second."""

_CHUNK_COST = 256
"""What a kept chunk costs besides its bytes; without it, single bytes would make the bound meaningless."""


class Observer:
    """Both directions of one panel, and the lock that makes one tracker of them.

    Args:
        note: told once, from whichever thread, why nothing is observed any more; must not block.
    """

    def __init__(self, note: Callable[[str], None] = lambda _: None) -> None:
        self._note = note
        self.lock = _thread.allocate_lock()
        self.editor_side = _Side(self, from_editor=True)
        self.agent_side = _Side(self, from_editor=False)
        self.sieve = Sieve(self._outstanding, self._judge, self._ahead)
        self._tracker: Tracker | None = None
        self._arrived: deque[tuple[_Side, bytes | None]] = deque()
        self._backlog: list[tuple[_Side, bytes | None]] = []
        self._backlog_bytes = 0
        self._changed: Callable[[], None] = lambda: None
        self.off_because = ""
        """Why nothing is observed any more; empty while all is well."""

    def attach(self, tracker: Tracker, changed: Callable[[], None]) -> None:
        """Hands everything seen so far, and from now on, to ``tracker``; ``changed`` is called after each batch of lines.

        Both are called with the lock held and must not block. What was kept is shown piece by piece: the byte path waits
        for the lock, and not longer than for one chunk.
        """
        self._changed = changed
        self.editor_side.filter = LineFilter(tracker.editor_markers)
        self.agent_side.filter = LineFilter(tracker.agent_markers, tracker.agent_bulk, tracker.agent_long)
        while True:
            with self.lock:
                backlog, self._backlog = self._backlog, []
                if self.off_because:
                    return
                if not backlog:
                    self._tracker = tracker
                    return
            for side, chunk in backlog:
                with self.lock:
                    self._show(tracker, side, chunk)

    def switch_off(self, reason: str) -> None:
        """From here on bytes pass unobserved."""
        self._tracker = None
        self._backlog = []
        if not self.off_because:
            self.off_because = reason
            self._note(reason)

    def arrived(self, side: _Side, chunk: bytes | None) -> None:
        """``chunk`` is about to be forwarded on ``side``; None: the side has ended. In the order of cause and effect."""
        self._arrived.append((side, chunk))

    def look(self) -> None:
        """Something has been forwarded: everything that has arrived, on either side, is seen in its order."""
        with self.lock:
            while self._arrived:
                self._see(*self._arrived.popleft())

    def _see(self, side: _Side, chunk: bytes | None) -> None:
        if self.off_because:
            return
        if self._tracker is not None:
            self._show(self._tracker, side, chunk)
            return
        self._backlog.append((side, chunk))
        self._backlog_bytes += len(chunk or b"") + _CHUNK_COST
        if self._backlog_bytes > _BACKLOG:
            self.switch_off("more passed than could be kept before the tracker was loaded")

    def _show(self, tracker: Tracker, side: _Side, chunk: bytes | None) -> None:
        if side.filter is None or self.off_because:
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
        tracker = self._tracker
        try:
            return tracker is not None and tracker.outstanding()
        except Exception as error:  # as above
            self.switch_off(f"the tracker failed: {type(error).__name__}")
            return False

    def _judge(self, start: bytes, whole: bool) -> str:
        with self.lock:
            tracker = self._tracker
            if tracker is None:
                return PASS
            try:
                return tracker.judge(start, whole)
            except Exception as error:  # as above; an answer of ours that slips through does less harm than a lost line
                self.switch_off(f"the tracker failed to judge: {type(error).__name__}")
                return PASS

    def _ahead(self) -> bytes:
        with self.lock:
            tracker = self._tracker
            try:
                return b"" if tracker is None else tracker.ahead()
            except Exception as error:  # as above
                self.switch_off(f"the tracker failed to judge: {type(error).__name__}")
                return b""


class _Side:
    """One direction's tap."""

    __slots__ = ("_observer", "filter", "from_editor")

    def __init__(self, observer: Observer, *, from_editor: bool) -> None:
        self._observer = observer
        self.from_editor = from_editor
        self.filter: LineFilter | None = None

    def arrived(self, chunk: bytes) -> None:
        self._observer.arrived(self, chunk)

    def passed(self) -> None:
        self._observer.look()

    def ended(self) -> None:
        self._observer.arrived(self, None)
        self._observer.look()
