"""A caller's settings: what its registration says in ``CROSS_AGENT_*``, bounded by what the person granted (DE-54).

Owns names, defaults and the rule that a caller can make things stricter by itself and looser only by a grant in
``config.toml`` of the state directory. Settings travel with each call and stay with its delivery.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from broker.paths import Home
from broker.scope import SCOPES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_MAX_HOPS = 4
DEFAULT_TIMEOUT = 600.0
DEFAULT_PATIENCE = 3600.0
DEFAULT_IDLE = 900.0
DEFAULT_ACTIVE = 240 * 60.0
DEFAULT_TTL = 7 * 24 * 3600.0

OF_THE_BROKER = ("CROSS_AGENT_GROK_NAMES_DB",)
"""What is one for all callers: names are read by one process, which has its environment from the broker."""

_FALSE = frozenset(("", "0", "false", "no", "off"))


@dataclass(frozen=True, slots=True)
class Grants:
    """What ``config.toml`` of the state directory allows and sets; a missing or broken file grants nothing."""

    max_hops: int = DEFAULT_MAX_HOPS
    idle_seconds: float = DEFAULT_IDLE
    delivery_ttl: float = DEFAULT_TTL
    trouble: str = ""
    """Why the file was not read, empty when it was or does not exist."""


@dataclass(frozen=True, slots=True)
class CallerSettings:
    """What holds for one call."""

    max_hops: int = DEFAULT_MAX_HOPS
    patience: float = DEFAULT_PATIENCE
    """Seconds after which a sender is told that its peer is still at work (DE-30)."""
    active: float = DEFAULT_ACTIVE
    """Seconds since its last record within which a session is active (SE-07)."""
    scope: str = "cwd"
    require_explicit_target: bool = False
    use_panels: bool = True
    notes: tuple[str, ...] = ()
    """What was asked for and not granted, in words for the receipt."""


def read_grants(home: Home) -> Grants:
    try:
        with open(home.config, "rb") as file:
            config = tomllib.load(file)
    except FileNotFoundError:
        return Grants()
    except (OSError, ValueError, RecursionError) as error:
        return Grants(trouble=f"{home.config} cannot be read: {type(error).__name__}")
    grants, broker = _table(config, "grants"), _table(config, "broker")
    return Grants(
        max_hops=int(_number(grants, "max_hops", DEFAULT_MAX_HOPS)),
        idle_seconds=_number(broker, "idle_seconds", DEFAULT_IDLE),
        delivery_ttl=_number(broker, "delivery_ttl", DEFAULT_TTL),
    )


def caller_settings(values: Mapping[str, str], grants: Grants, own: Mapping[str, str] = os.environ) -> CallerSettings:
    """The settings of a call whose process has ``values`` in its environment. Unreadable ones fall back to the default.

    Args:
        own: the broker's environment.
    """
    notes = []
    allowed = max(1, grants.max_hops)  # which may be less than the default
    asked = int(_as_number(values.get("CROSS_AGENT_MAX_HOPS"), min(DEFAULT_MAX_HOPS, allowed)))
    if asked > allowed:
        notes.append(
            f"CROSS_AGENT_MAX_HOPS={asked} is more than is granted, {allowed} holds; to grant it, write "
            f"`max_hops = {asked}` under [grants] in config.toml of the state directory"
        )
    notes += [
        f"{name} of a registration has no effect: it counts as the process that starts the broker has it"
        for name in OF_THE_BROKER
        if values.get(name) and values[name] != own.get(name)
    ]
    return CallerSettings(
        max_hops=max(1, min(asked, allowed)),
        patience=patience_of(values),
        active=active_window(values),
        scope=scope_of(values),
        require_explicit_target=is_on(values.get("CROSS_AGENT_REQUIRE_EXPLICIT_TARGET")),
        use_panels=(values.get("CROSS_AGENT_UI_HOOK") or "auto").strip().lower() != "off",
        notes=tuple(notes),
    )


def patience_of(values: Mapping[str, str]) -> float:
    """Seconds that a turn in a panel may take before its sender is told that it goes on."""
    return max(1.0, _as_number(values.get("CROSS_AGENT_PANEL_PATIENCE"), DEFAULT_PATIENCE))


def active_window(values: Mapping[str, str]) -> float:
    return max(0.0, 60 * _as_number(values.get("CROSS_AGENT_ACTIVE_WINDOW_MIN"), DEFAULT_ACTIVE / 60))


def scope_of(values: Mapping[str, str]) -> str:
    """The scope of a call that names none; an unknown one is the default."""
    given = values.get("CROSS_AGENT_SCOPE", "").strip().lower()
    return given if given in SCOPES else "cwd"


def wait_of(values: Mapping[str, str]) -> float:
    """Seconds that a busy session is waited for by what names no timeout of its own (DE-31)."""
    return max(DEFAULT_TIMEOUT, patience_of(values))


def is_on(value: str | None) -> bool:
    """A boolean setting: everything but ``0 false no off`` and nothing at all (EN-21)."""
    return value is not None and value.strip().lower() not in _FALSE


def _table(config: dict[str, Any], name: str) -> dict[str, Any]:
    table = config.get(name)
    return table if isinstance(table, dict) else {}


def _number(table: dict[str, Any], name: str, default: float) -> float:
    value = table.get(name, default)
    return _finite(value, default) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _as_number(value: str | None, default: float) -> float:
    return _finite(value, default) if value is not None else default


def _finite(value: str | float, default: float) -> float:
    """``value`` as a number that one can count and wait with."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return default
    return number if math.isfinite(number) else default
