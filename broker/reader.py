"""Asking an agent's own records, in a process of its own: a transcript may be a gigabyte, and the loop must not wait.

Owns the reader processes: one a question, a few at a time, bounded in time; the program is ``shims/read.py``. An answer
that does not come counts as undecided, never as absent.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence

from shims.agent import Found, Latest, Record
from shims.headless import Said

_AT_ONCE = 2
_PATIENCE = 60.0
_SHORT_PATIENCE = 5.0
"""Seconds for what a caller waits for, and can do without."""

_TRIES = 30
_TRY_AGAIN = 1.0
_PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shims", "read.py")


class Reader:
    """Questions about sessions, answered by the agents' files."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def record(self, agent: str, store: str, session: str, key: str) -> Record:
        """What became of the message with ``key``."""
        return await self._record("record", agent, store, session, key)

    async def answer_naming(self, agent: str, store: str, session: str, token: str) -> Record:
        """The finished turn that closes with ``token``; ABSENT when there is none."""
        return await self._record("answer_naming", agent, store, session, token)

    async def newest(self, agent: str, store: str, session: str) -> str | None:
        """The agent's id for the message that a session accepted last (`Headless.newest`)."""
        answer = (await self._ask("newest", agent, store, session)).get("newest")
        return answer if isinstance(answer, str) else None

    async def went_to(self, agent: str, store: str, key: str, since: float) -> str:
        """The session that has the message with ``key``, of those written to since that wall-clock time; empty: none seen."""
        answer = (await self._ask("went_to", agent, store, key, since)).get("session")
        return answer if isinstance(answer, str) else ""

    async def output(self, agent: str, path: str, session: str) -> Said:
        """What the output of a started turn says, which is in the file ``path``; ``session``: that it should be of."""
        head, text = await self._output("output", agent, path, session)
        answer = {name: value for name, value in _object(head).items() if name in Said._fields}
        denied, later = answer.pop("denied", ()), answer.pop("later", ())
        try:
            said = Said(**answer)  # type: ignore[arg-type]
        except TypeError:
            return Said()
        return said._replace(text=_decoded(text), denied=_words(denied), later=_words(later))

    async def answers_naming(self, agent: str, store: str, session: str, tokens: Sequence[str]) -> list[Record]:
        """What `answer_naming` says of each of ``tokens``, by one process."""
        head, text = await self._output("answers_naming", agent, store, session, list(tokens))
        found = _object(head).get("found")
        if not isinstance(found, list) or len(found) != len(tokens):
            return [Record(Found.UNKNOWN)] * len(tokens)
        records, at = [], 0
        for state, turn, length in found:
            records.append(Record(Found(state), _decoded(text[at : at + length]), turn))
            at += length
        return records

    async def latest(self, agent: str, store: str, session: str, after: float) -> Latest:
        """The last finished turn, whether one is open, and what was said after that wall-clock time; empty: nobody knows."""
        head, text = await self._output("latest", agent, store, session, after)
        answer = _object(head)
        ended, length = answer.get("ended"), answer.get("text")
        if not isinstance(ended, float) or not isinstance(length, int):
            return Latest()
        return Latest(_decoded(text[:length]), ended, answer.get("open") is True, _decoded(text[length:]))

    async def moved(self, agent: str, sessions: Iterable[tuple[str, str]], ours: Collection[str]) -> dict[str, float]:
        """When somebody other than us last moved each of ``sessions`` (store, id), whose records tell; soon, or empty.

        Args:
            ours: the keys of our messages to them.
        """
        try:
            answer = await asyncio.wait_for(self._ask("moved", agent, list(sessions), list(ours)), _SHORT_PATIENCE)
        except asyncio.TimeoutError:
            return {}
        return {session: float(when) for session, when in answer.items() if isinstance(when, (int, float))}

    async def _record(self, *question: str) -> Record:
        head, text = await self._output(*question)
        answer = _object(head)
        if "found" not in answer:
            return Record(Found.UNKNOWN)
        return Record(Found(answer["found"]), _decoded(text), str(answer.get("turn") or ""))

    async def _ask(self, *question: object) -> dict[str, object]:
        head, _ = await self._output(*question)
        return _object(head)

    async def _output(self, *question: object) -> tuple[bytes, bytes]:
        """The line of the answer, and the text behind it; empty when none came."""
        async with self._places:
            process = await self._start()
            if process is None:
                return b"", b""
            try:
                output, _ = await asyncio.wait_for(process.communicate(json.dumps(question).encode()), _PATIENCE)
            except asyncio.TimeoutError:
                return b"", b""
            finally:  # also when nobody waits for the answer any more
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        head, _, text = output.partition(b"\n")
        return head, text

    async def _start(self) -> asyncio.subprocess.Process | None:
        """A reader process; None when the system has no place for one, even after some time."""
        for _ in range(_TRIES):
            try:
                return await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-I",
                    _PROGRAM,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                )
            except OSError:
                await asyncio.sleep(_TRY_AGAIN)
        return None


def _words(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _decoded(text: bytes) -> str:
    return text.decode(errors="surrogatepass")


def _object(line: bytes) -> dict[str, object]:
    try:
        answer = json.loads(line)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
