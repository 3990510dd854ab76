"""What drives a target: atheris where it is installed, hypothesis elsewhere.

Owns the two drivers, each for one target in a process of its own: atheris instruments modules as they are imported and
never returns. Atheris has wheels for CPython on Linux x86_64 alone (pyproject.toml); it follows what is reached, hypothesis
shows a failure in its shortest form. ``python -m tests.fuzz.engines <engine> <target> <runs> <seconds> <directory>``: so many
plays, or so many seconds if that is 0. The play that broke a rule is left in the directory.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz.mutate import SEEDS, Mutator

LONGEST = 5000
"""Bytes of a play."""

STUCK = 60
"""Seconds that one play may take."""


def best() -> str:
    return "atheris" if importlib.util.find_spec("atheris") else "hypothesis"


def with_atheris(target: str, runs: int, seconds: int, directory: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["shims"]):
        from tests.fuzz.targets import TARGETS
    mutator = Mutator(target)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        random = Random(seed)
        changed = mutator.changed(data, random) if random.random() < 0.7 else bytes(atheris.Mutate(data, most))
        return changed[:most]

    arguments = [f"-max_len={LONGEST}", f"-timeout={STUCK}", f"-artifact_prefix={directory}/", "-print_final_stats=1"]
    arguments += [f"-runs={runs}", "-seed=1"] if runs else [f"-max_total_time={seconds}"]
    arguments += _dictionary(mutator.words, directory)
    arguments += [str(_corpus(directory, kept=not runs)), str(SEEDS / target)]  # what is new goes into the first
    atheris.Setup([target, *arguments], TARGETS[target], custom_mutator=mutate)
    atheris.Fuzz()


def _dictionary(words: list[bytes], directory: Path) -> list[str]:
    if not words:
        return []
    path = directory / "words"
    path.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in words))
    return [f"-dict={path}"]


def _corpus(directory: Path, *, kept: bool) -> Path:
    """Where plays go that reach something new; those of an earlier time are in it if they are ``kept``."""
    path = directory / ("corpus" if kept else "corpus-of-runs")
    if not kept:
        shutil.rmtree(path, ignore_errors=True)
    path.mkdir(exist_ok=True)
    return path


def with_hypothesis(target: str, runs: int, seconds: int, directory: Path) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st

    from tests.fuzz.targets import TARGETS

    mutator = Mutator(target)
    kinds = st.sampled_from([b"e", b"E", b"a", b"A", b"c", b"i", b"d", b"f"])
    step = st.one_of(
        st.sampled_from(mutator.steps),
        st.integers(0, 2**32).map(lambda number: mutator.step(Random(number))),
        st.builds(bytes.__add__, kinds, st.binary(max_size=20)),
    )
    plays = st.builds(
        lambda flags, steps: b"\n".join([flags, *steps]), st.sampled_from(mutator.flags), st.lists(step, max_size=25)
    )

    def play(data: bytes) -> None:
        try:
            TARGETS[target](data)
        except BaseException:
            (directory / "crash-hypothesis").write_bytes(data)  # the last one is the shortest
            raise

    def round_of(examples: int, number: int) -> Callable[[], None]:
        bounds = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        )
        return seeded(number)(bounds(given(plays)(play)))

    if runs:
        round_of(runs, 1)()
        return
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        round_of(1000, int.from_bytes(os.urandom(4), "big"))()


ENGINES = {"atheris": with_atheris, "hypothesis": with_hypothesis}


def main() -> None:
    engine, target, runs, seconds, directory = sys.argv[1:]
    ENGINES[engine](target, int(runs), int(seconds), Path(directory))


if __name__ == "__main__":
    main()
