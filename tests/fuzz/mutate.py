"""New plays from old ones: steps are moved, doubled, cut and mixed, and words of the protocol take each other's places.

Owns the seeds, the words in them, and changes that keep a play a play; a fuzzer's own changes to single bytes come on top.
Knows no engine.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Final

SEEDS: Final = Path(__file__).parent / "seeds"

_WORD: Final = re.compile(rb'"[^"\\\n]{0,60}"')
_KINDS: Final = b"eEaAc.idfqhxz"


def seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((SEEDS / target).iterdir())]


def words(target: str) -> list[bytes]:
    """Every quoted word of the target's seeds: names, values, markers."""
    return sorted({word for seed in seeds(target) for word in _WORD.findall(seed)})


class Mutator:
    """Changes plays of one target."""

    def __init__(self, target: str) -> None:
        self.words = words(target)
        self.flags = sorted({seed.split(b"\n", 1)[0] for seed in seeds(target)})
        self.steps = sorted({step for seed in seeds(target) for step in seed.split(b"\n")[1:] if step})
        self._changes = [
            self._insert,
            self._insert,
            self._drop,
            self._double,
            self._swap,
            self._word,
            self._cut,
            self._split,
            self._blank,
        ]

    def changed(self, play: bytes, random: Random) -> bytes:
        """``play`` with one to four changes."""
        flags, *steps = play.split(b"\n")
        if random.random() < 0.05:
            flags = random.choice(self.flags)
        for _ in range(random.randint(1, 4)):
            random.choice(self._changes)(steps, random)
        return b"\n".join([flags, *steps])

    def step(self, random: Random) -> bytes:
        """One step, as some seed has it or all new."""
        if random.random() < 0.7:
            return random.choice(self.steps)
        kind = random.choice(_KINDS).to_bytes(1, "big")
        if kind == b"c":
            return kind + bytes(random.randint(32, 64) for _ in range(random.randint(0, 4)))
        if kind in b"eEaA":
            return kind + b"".join(
                random.choice([*self.words, b"{", b"}", b":", b",", b"\xff"]) for _ in range(random.randint(0, 6))
            )
        return kind + b"%x" % random.randint(0, 11)

    # changes

    def _insert(self, steps: list[bytes], random: Random) -> None:
        steps.insert(random.randint(0, len(steps)), self.step(random))

    def _drop(self, steps: list[bytes], random: Random) -> None:
        if steps:
            del steps[random.randrange(len(steps))]

    def _double(self, steps: list[bytes], random: Random) -> None:
        if steps:
            steps.insert(random.randint(0, len(steps)), random.choice(steps))

    def _swap(self, steps: list[bytes], random: Random) -> None:
        if steps:
            steps.insert(random.randint(0, len(steps) - 1), steps.pop(random.randrange(len(steps))))

    def _word(self, steps: list[bytes], random: Random) -> None:
        """A word for another one."""
        places = [(at, found) for at, step in enumerate(steps) for found in _WORD.finditer(step)]
        if places and self.words:
            at, found = random.choice(places)
            steps[at] = steps[at][: found.start()] + random.choice(self.words) + steps[at][found.end() :]

    def _cut(self, steps: list[bytes], random: Random) -> None:
        sizes = bytes(random.randint(32, 96) for _ in range(random.randint(0, 6)))
        steps.insert(random.randint(0, len(steps)), b"c" + sizes.replace(b"\n", b"!"))

    def _blank(self, steps: list[bytes], random: Random) -> None:
        """White space before or after a word, where JSON has room for it."""
        places = [(at, place) for at, step in enumerate(steps) for found in _WORD.finditer(step) for place in found.span()]
        if places:
            at, place = random.choice(places)
            steps[at] = steps[at][:place] + random.choice([b" ", b"\t", b"\r", b"  "]) + steps[at][place:]

    def _split(self, steps: list[bytes], random: Random) -> None:
        """What was said as one line is said in two steps; anything may happen in between."""
        long = [at for at, step in enumerate(steps) if step[:1] in (b"a", b"e") and len(step) > 2]
        if long:
            at = random.choice(long)
            place = random.randint(1, len(steps[at]) - 1)
            whole = steps[at]
            steps[at : at + 1] = [whole[:1].upper() + whole[1:place], whole[:1] + whole[place:]]
