"""What a started turn gets of its caller's environment (EN-11, EN-13). Pure; no I/O.

Owns the rule: the caller's baseline, its settings but for those that say who the caller is, what was named and granted, and
who the turn is. Nothing of the broker's own environment, and nothing that authenticates, unless it was named.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from broker.baseline import carries_credentials, is_baseline, is_proxy, is_setting

_OF_THE_CALLER = frozenset(("CROSS_AGENT_SELF", "CROSS_AGENT_SELF_SESSION", "CROSS_AGENT_CONVERSATION_ID"))


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """What of a caller's environment is kept with a delivery: names without a secret."""
    return {name: value for name, value in environment.items() if is_baseline(name)}


def in_memory(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """What of it must not be written down: proxies, and what the caller's registration has ``named``."""
    return {
        name: value
        for name, value in environment.items()
        if (is_proxy(name) and not carries_credentials(value)) or (name in named and not is_setting(name))
    }


def child_environment(
    baseline: Mapping[str, str],
    settings: Mapping[str, str],
    volatile: Mapping[str, str],
    *,
    agent: str,
    session: str,
    conversation: str,
    trusted_path: str,
) -> dict[str, str]:
    """Everything that the agent of a started turn gets.

    Args:
        baseline: kept with the delivery; volatile: what was not written down.
        settings: the caller's `CROSS_AGENT_*`.
        session: the conversation that it runs in; empty where the agent chooses its id: that it was started is told all the
            same, or what such a turn sends would be a conversation of its own, with a fresh budget of hops (DE-50).
        trusted_path: of the caller's PATH only directories that stand here too are passed on (DE-54); empty: all.
    """
    environment = {name: value for name, value in baseline.items() if is_baseline(name)}
    environment.update(volatile)
    environment.update({name: value for name, value in settings.items() if is_setting(name) and name not in _OF_THE_CALLER})
    if "PATH" in environment or trusted_path:
        environment["PATH"] = bounded_path(environment.get("PATH", ""), trusted_path)
    environment["CROSS_AGENT_SELF_SESSION"] = f"{agent}:{session}"
    environment["CROSS_AGENT_CONVERSATION_ID"] = conversation
    return environment


def bounded_path(path: str, trusted: str) -> str:
    """``path`` with the directories of ``trusted`` alone; all of ``trusted`` when none is left."""
    if not trusted:
        return path
    allowed = trusted.split(os.pathsep)
    return os.pathsep.join(place for place in path.split(os.pathsep) if place in allowed and os.path.isabs(place)) or trusted
