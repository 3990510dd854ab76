"""What of callers' environments must not be written down, for as long as the broker lives (EN-11).

Owns the values of proxies and of the variables that a registration names; each MCP process tells its own at every connect,
so that a new broker has them again from those that are still there.
"""

from __future__ import annotations

from collections.abc import Mapping

_MOST = 1000
"""Processes that are remembered; the one that told last the longest."""


class Unwritten:
    """Values by the MCP process that told them."""

    def __init__(self) -> None:
        self._values: dict[str, Mapping[str, str]] = {}

    def know(self, origin: str, values: Mapping[str, str]) -> None:
        self._values.pop(origin, None)
        self._values[origin] = dict(values)
        if len(self._values) > _MOST:
            del self._values[next(iter(self._values))]

    def of(self, origin: str) -> Mapping[str, str]:
        return self._values.get(origin, {})
