"""The reader program: one question on stdin, one answer on stdout, both JSON, a line. Started by `broker.reader`.

``["record" | "answer_naming", agent, store, session, key]`` → ``{"found", "turn"}`` and, behind that line, the text as it is:
who asks must not have to decode a megabyte of JSON (EN-25);
``["answers_naming", agent, store, session, [token, …]]`` → ``{"found": [[found, turn, number of bytes], …]}`` and behind that
line the texts, one after the other;
``["latest", agent, store, session, after]`` → ``{"ended", "open", "text"}``, the last a number of bytes, and behind that line
so much of the answer, then what was said since;
``["newest", agent, store, session]`` → ``{"newest"}``, the agent's id for the message that it accepted last;
``["went_to", agent, store, key, since]`` → ``{"session"}`` that has the message with that key, written to since then;
``["output", agent, path, session]`` → what the output of a started turn in that file says, its text behind the line;
``["moved", agent, [[store, session], …], [key, …]]`` → ``{session: seconds}``. Reads the agent's files and nothing else.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from dataclasses import asdict
from typing import Any

from shims.agent import Agent, agent
from shims.headless import Said


def main() -> None:
    question, name, *rest = json.load(sys.stdin)
    described = agent(name)
    texts: list[str] = []
    if question == "moved":
        answer: dict[str, Any] = {session: described.moved(store, session, frozenset(rest[1])) for store, session in rest[0]}
    elif question == "answers_naming":
        records = [described.answer_naming(rest[0], rest[1], token) for token in rest[2]]
        texts = [record.text for record in records]
        answer = {"found": [(record.found.value, record.turn, len(_encoded(record.text))) for record in records]}
    elif question == "latest":
        latest = described.latest(*rest)
        texts = [latest.text, latest.since]
        answer = {"ended": latest.ended, "open": latest.open, "text": len(_encoded(latest.text))}
    elif question == "newest":
        newest = described.headless.newest if described.headless is not None else None
        answer = {"newest": newest(*rest) if newest is not None else None}
    elif question == "went_to":
        answer = {"session": next(filter(None, (door.went_to(*rest) for door in described.doors)), "")}
    elif question == "output":
        said = _said(described, *rest)
        texts = [said.text]
        answer = {**said._asdict(), "text": ""}
    else:
        look = described.record if question == "record" else described.answer_naming
        answer = asdict(look(rest[0], rest[1], rest[2]))
        texts = [answer.pop("text")]
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + _encoded("".join(texts)))


def _said(described: Agent, path: str, session: str) -> Said:
    if described.headless is None or not os.path.exists(path):
        return Said()
    output = described.headless.output(session)
    with open(path, "rb") as file:
        for line in file:
            output.feed(line.rstrip(b"\n"))
    return output.said()


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


if __name__ == "__main__":
    main()
