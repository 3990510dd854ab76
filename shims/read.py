"""The reader program: one question on stdin, one answer on stdout, both JSON. Started by `broker.reader`.

``["record" | "answer_naming", agent, store, session, key]`` → ``{"found", "text", "turn"}``;
``["names", agent, store, session]`` → ``{"name", "title"}``; ``["moved", agent, [[store, session], …], [key, …]]`` →
``{session: seconds}``. Reads the agent's files and nothing else.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from dataclasses import asdict

from shims.agent import agent


def main() -> None:
    question, name, *rest = json.load(sys.stdin)
    described = agent(name)
    if question == "names":
        answer = asdict(described.names(rest[0], rest[1]))
    elif question == "moved":
        answer = {session: described.moved(store, session, frozenset(rest[1])) for store, session in rest[0]}
    elif question == "record":
        answer = asdict(described.record(rest[0], rest[1], rest[2]))
    else:
        answer = asdict(described.answer_naming(rest[0], rest[1], rest[2]))
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
