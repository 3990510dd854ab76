"""What a caller may have a started turn run with: its binary, its mode, its model, what else of its environment (EN-14, DE-54).

Owns the rule for each: what only makes a turn stricter holds as it is asked, what makes it looser needs a grant, and without
one the stricter value holds and the caller is told how to grant it. An agent with a shell could leave its sandbox otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from broker.baseline import CHILD_ENV, listed_names
from shims.discover import find_real, path_of
from shims.executable import is_real
from shims.headless import Headless
from shims.launch import Product

_ASKS = "default"
"""How agents call the mode that asks for each approval."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What holds for the turns of one call at one agent.

    Attributes:
        binary: a path, empty: the one on the PATH; mode, model: empty: the agent's own.
        named: variables that are passed on beside the baseline.
        notes: what was asked for and not granted, in words for the receipt.
    """

    binary: str = ""
    mode: str = ""
    model: str = ""
    named: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def allowed(agent: str, headless: Headless, values: Mapping[str, str], granted: Mapping[str, str]) -> Allowed:
    """What of the settings ``values`` holds.

    Args:
        granted: the [grants] of the state directory's config.toml: values by the setting's name without ``CROSS_AGENT_``, in
            small letters.
    """
    notes: list[str] = []
    prefix = f"CROSS_AGENT_{agent.upper()}"
    mode = _mode(headless, values, granted, notes)
    binary = _equal(f"{prefix}_BIN", values, granted, notes)
    names = listed_names(values.get(CHILD_ENV, ""))
    may = listed_names(granted.get("child_env", ""))
    if refused := [name for name in names if name not in may]:
        notes.append(_how(CHILD_ENV, ",".join([*may, *refused])))
    return Allowed(
        binary, mode, values.get(f"{prefix}_MODEL", "").strip(), tuple(name for name in names if name in may), tuple(notes)
    )


def _mode(headless: Headless, values: Mapping[str, str], granted: Mapping[str, str], notes: list[str]) -> str:
    """Of the modes, which are ordered, the one asked for, up to the one that is granted; an unknown one is not asked for."""
    modes = headless.modes
    asked = values.get(headless.mode_setting, "").strip()
    default = headless.default_mode
    if asked not in modes:
        return default
    may = granted.get(_key(headless.mode_setting), "").strip()
    free = (modes[0], default, _ASKS)  # what asks for approvals is denied what needs one, for nobody is there
    if modes.index(asked) <= max(modes.index(mode) for mode in (*free, may) if mode in modes):
        return asked
    notes.append(_how(headless.mode_setting, asked))
    return default


def _equal(name: str, values: Mapping[str, str], granted: Mapping[str, str], notes: list[str]) -> str:
    """A value that holds only if the very same is granted; what is granted holds also where nothing is asked."""
    asked, may = values.get(name, "").strip(), granted.get(_key(name), "").strip()
    if asked and asked != may:
        notes.append(_how(name, asked))
    return os.path.expanduser(may)


def _key(name: str) -> str:
    return name.removeprefix("CROSS_AGENT_").lower()


def _how(name: str, value: str) -> str:
    return (
        f'{name} is not granted and does not hold; to grant it, write `{_key(name)} = "{value}"` under [grants] in '
        "config.toml of the state directory"
    )


def find_program(product: Product, binary: str, environment: Mapping[str, str]) -> str | None:
    """The agent's program: the granted one, the first on the PATH of ``environment``, or wherever it lies. Looks at files."""
    if binary:
        return binary if os.path.isabs(binary) and is_real(binary) else None
    on_path = (os.path.join(place, product.program) for place in path_of(environment))
    found = next((place for place in on_path if is_real(place)), None)
    if found:
        return found
    home = os.path.expanduser("~")  # whose programs are run needs no word of the caller's
    return find_real(product, {"PATH": environment.get("PATH", ""), "HOME": home}, home)
