"""A caller's settings: what its registration says in ``CROSS_AGENT_*``, bounded by what the person granted (DE-54).

Owns names, defaults and the rule that a caller can make things stricter by itself and looser only by a grant in
``config.toml`` of the state directory. Settings travel with each call and stay with its delivery.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from broker.paths import Home
from broker.scope import SCOPES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_MAX_HOPS = 4
DEFAULT_MAX_EXCHANGES = 20
DEFAULT_EXCHANGE_WINDOW = 120.0
DEFAULT_TIMEOUT = 600.0
DEFAULT_PATIENCE = 3600.0
DEFAULT_IDLE = 900.0
DEFAULT_ACTIVE = 240 * 60.0
DEFAULT_TTL = 7 * 24 * 3600.0
DEFAULT_LATE_WATCH = 3 * 3600.0

_NUMBERS = ("max_hops", "max_exchanges", "exchange_window")

_MOST = 1_000_000
"""Of anything that is counted: more than anybody means, and less than a database takes."""

OF_THE_BROKER = ("CROSS_AGENT_GROK_NAMES_DB",)
"""What is one for all callers: names are read by one process, which has its environment from the broker."""

_FALSE = frozenset(("", "0", "false", "no", "off"))


@dataclass(frozen=True, slots=True)
class Grants:
    """What ``config.toml`` of the state directory allows and sets; a missing or broken file grants nothing."""

    max_hops: int = DEFAULT_MAX_HOPS
    max_exchanges: int = DEFAULT_MAX_EXCHANGES
    exchange_window: float = DEFAULT_EXCHANGE_WINDOW
    idle_seconds: float = DEFAULT_IDLE
    delivery_ttl: float = DEFAULT_TTL
    values: Mapping[str, str] = field(default_factory=dict)
    """What is granted of settings that give power, by the setting's name in small letters, without ``CROSS_AGENT_``."""
    trouble: str = ""
    """Why the file was not read, empty when it was or does not exist."""


@dataclass(frozen=True, slots=True)
class CallerSettings:
    """What holds for one call."""

    max_hops: int = DEFAULT_MAX_HOPS
    max_exchanges: int = DEFAULT_MAX_EXCHANGES
    """Requests between this session and another one, either way, within `exchange_window` seconds (DE-55)."""
    exchange_window: float = DEFAULT_EXCHANGE_WINDOW
    patience: float = DEFAULT_PATIENCE
    """Seconds after which a sender is told that its peer is still at work (DE-30)."""
    active: float = DEFAULT_ACTIVE
    """Seconds since its last record within which a session is active (SE-07)."""
    scope: str = "cwd"
    require_explicit_target: bool = False
    use_panels: bool = True
    require_panel: bool = False
    """Nothing is sent to a session that nobody named, and no conversation opened, where no panel is there for it (DE-53)."""
    use_doors: bool = True
    """Whether sessions without a shim are reached by the agents' own live doors (LD-07)."""
    doors_are_panels: bool = False
    """A live door is as good as a panel where one is required (DE-53)."""
    headless: bool = True
    """Whether turns may be started on a command line."""
    timeout: float = DEFAULT_TIMEOUT
    """Seconds without a sign of life after which such a turn is ended, where the call names none (DE-32)."""
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
        max_hops=_count(_number(grants, "max_hops", DEFAULT_MAX_HOPS)),
        max_exchanges=_count(_number(grants, "max_exchanges", DEFAULT_MAX_EXCHANGES)),
        exchange_window=max(0.0, _number(grants, "exchange_window", DEFAULT_EXCHANGE_WINDOW)),
        idle_seconds=_number(broker, "idle_seconds", DEFAULT_IDLE),
        delivery_ttl=_number(broker, "delivery_ttl", DEFAULT_TTL),
        values={name: text for name, value in grants.items() if name not in _NUMBERS and (text := _text(value)) is not None},
    )


def caller_settings(values: Mapping[str, str], grants: Grants, own: Mapping[str, str] = os.environ) -> CallerSettings:
    """The settings of a call whose process has ``values`` in its environment. Unreadable ones fall back to the default.

    Args:
        own: the broker's environment.
    """
    notes = [
        f"{name} of a registration has no effect: it counts as the process that starts the broker has it"
        for name in OF_THE_BROKER
        if values.get(name) and values[name] != own.get(name)
    ]
    hook = hook_of(values)
    return CallerSettings(
        max_hops=_at_most(values, "max_hops", grants.max_hops, DEFAULT_MAX_HOPS, notes),
        max_exchanges=_at_most(values, "max_exchanges", grants.max_exchanges, DEFAULT_MAX_EXCHANGES, notes),
        exchange_window=_at_least(values, "exchange_window", grants.exchange_window, DEFAULT_EXCHANGE_WINDOW, notes),
        patience=patience_of(values),
        active=active_window(values),
        scope=scope_of(values),
        require_explicit_target=is_on(values.get("CROSS_AGENT_REQUIRE_EXPLICIT_TARGET")),
        use_panels=hook != "off",
        require_panel=hook in ("require", "require-live"),
        use_doors=uses_doors(values),
        doors_are_panels=hook == "require-live",
        headless=not is_on(values.get("CROSS_AGENT_DISABLE_HEADLESS")) and is_on(grants.values.get("headless", "yes")),
        timeout=max(1.0, _as_number(values.get("CROSS_AGENT_TIMEOUT"), DEFAULT_TIMEOUT)),
        notes=tuple(notes),
    )


def _at_most(values: Mapping[str, str], name: str, granted: int, default: int, notes: list[str]) -> int:
    """What is counted: less is stricter. What is granted may be less than the default."""
    variable, allowed = _variable(name), max(1, granted)
    asked = _count(_as_number(values.get(variable), min(default, allowed)))
    if asked > allowed:
        notes.append(f"{variable}={asked} is more than is granted, {allowed} holds; {_how_to_grant(name, str(asked))}")
    return max(1, min(asked, allowed))


def _at_least(values: Mapping[str, str], name: str, granted: float, default: float, notes: list[str]) -> float:
    """Seconds for which something is remembered: more is stricter."""
    variable = _variable(name)
    asked = max(0.0, _as_number(values.get(variable), max(default, granted)))
    if asked < granted:
        shown = f"{asked:g}"
        notes.append(f"{variable}={shown} is less than is granted, {granted:g} holds; {_how_to_grant(name, shown)}")
    return max(asked, granted)


def _variable(name: str) -> str:
    return f"CROSS_AGENT_{name.upper()}"


def _how_to_grant(name: str, value: str) -> str:
    return f"to grant it, write `{name} = {value}` under [grants] in config.toml of the state directory"


def patience_of(values: Mapping[str, str]) -> float:
    """Seconds that a turn in a panel may take before its sender is told that it goes on."""
    return max(1.0, _as_number(values.get("CROSS_AGENT_PANEL_PATIENCE"), DEFAULT_PATIENCE))


def late_watch_of(values: Mapping[str, str]) -> float:
    """Seconds that a peer's records are watched for the answer to a request that has ended without it; 0: not at all."""
    return max(0.0, _as_number(values.get("CROSS_AGENT_LATE_ANSWER_WATCH"), DEFAULT_LATE_WATCH))


def active_window(values: Mapping[str, str]) -> float:
    return max(0.0, 60 * _as_number(values.get("CROSS_AGENT_ACTIVE_WINDOW_MIN"), DEFAULT_ACTIVE / 60))


def uses_doors(values: Mapping[str, str]) -> bool:
    """Whether the agents' own live doors are used (LD-07)."""
    given = values.get("CROSS_AGENT_LIVE_DOORS")
    return given is None or is_on(given)


def uses_panels(values: Mapping[str, str]) -> bool:
    return hook_of(values) != "off"


def hook_of(values: Mapping[str, str]) -> str:
    """How panels are used: ``auto``, ``off``, ``require``, ``require-live``."""
    return (values.get("CROSS_AGENT_UI_HOOK") or "auto").strip().lower()


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


def _text(value: object) -> str | None:
    """A grant as a registration would write it; None: as none would."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else None


def _number(table: dict[str, Any], name: str, default: float) -> float:
    value = table.get(name, default)
    return _finite(value, default) if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _as_number(value: str | None, default: float) -> float:
    return _finite(value, default) if value is not None else default


def _count(value: float) -> int:
    return int(max(-_MOST, min(value, _MOST)))


def _finite(value: str | float, default: float) -> float:
    """``value`` as a number that one can count and wait with."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return default
    return number if math.isfinite(number) else default
