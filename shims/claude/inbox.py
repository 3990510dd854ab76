"""Claude Code's inbox as a door: the socket at which each session hears from others.

Owns the wire and what the live registry says of it. Since 2.1.224; measured with 2.1.332 (protocols: claude.md, section 6):

* ``priority: "later"`` waits for the end of the running turn and is a turn of its own; everything else is folded into it.
* What waits together is answered by one turn, so that one message at a time is handed in. It dies with its process.
* Nothing is answered on the connection. What became of a message is told to the socket that it names as ``from``, if that lies
  in the directory of the receiver's own or in ``/tmp/cc-socks``: ``held``, ``denied``, ``expired`` (``status_detail``
  ``refused`` where a setting says so), ``dropped`` (``drop_reason``; after some thirty within a few seconds it lets in one every
  few seconds, and tells of several that it dropped in one message). Delivery itself is told by the transcript alone:
  ``origin.msg_id`` of a ``user`` record.
* A repeated ``msg_id`` is delivered again.
* A receiver that bypasses permissions holds messages; ``crossSessionInbound`` in its settings may hold or refuse them as well.
* What an MCP server of the session's own writes there with the token that it was given is never held; the token alone, from any
  other process, changes nothing. A descendant of the session's counts as its own without any token.
* Slash commands and ``@path`` in a text do nothing.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

from broker.processes import ProcessId
from shims import tail
from shims.claude import live, sessions
from shims.door import Door, Letter, News, Notice, Opening, Outcome, Said, Shut, Way, encoded
from shims.jsonline import as_list, parse_object
from shims.moved import moment

_REMEDY = "Update it, open the session in an editor panel, or close it."
_SETTING = "`crossSessionInbound` in that session's .claude/settings.json"


def look(store: str, session: str, holders: Sequence[ProcessId]) -> Opening | Shut:
    shut = Shut("its process has moved to another conversation", "Name another session: list_agent_sessions shows them.")
    for holder in holders:
        entry = live.entry(store, holder)
        if entry is None or entry.get("sessionId") != session:
            continue
        socket = entry.get("messagingSocketPath")
        if not isinstance(socket, str) or not socket:
            version = str(entry.get("version") or "an unknown version")
            shut = Shut(f"Claude Code {version} has no inbox (from 2.1.224 on, where it is not switched off)", _REMEDY)
            continue
        status = entry.get("status")
        since = entry.get("statusUpdatedAt")
        return Opening(
            holder,
            Way.SOCKET,
            socket=socket,
            listener=holder,
            secret=_token(store, holder),
            notices=os.path.dirname(socket),
            busy=status != "idle" if isinstance(status, str) else None,
            waits_for=str(entry.get("waitingFor") or "") if status == "waiting" else "",
            since=since / 1e3 if isinstance(since, (int, float)) else 0.0,
        )
    return shut


def _token(store: str, holder: ProcessId) -> str:
    """What the process tells those who may read its files."""
    for path in glob.glob(os.path.join(glob.escape(store), "sessions", f"{holder.pid}.*.key")):
        try:
            with open(path, "rb") as file:
                entry = parse_object(file.read(1 << 16))
        except OSError:
            continue
        if str(entry.get("procStart")) == str(holder.start) and isinstance(entry.get("peerToken"), str):
            return str(entry["peerToken"])
    return ""


class Posting:
    """Two lines, and nothing to hear."""

    def __init__(self, opening: Opening, letter: Letter) -> None:
        self._opening = opening
        self._letter = letter

    def begin(self) -> Said:
        message: dict[str, object] = {
            "type": "user",
            "message": {"role": "user", "content": self._letter.text},
            "msg_id": self._letter.key,
            "priority": "later",
        }
        if self._letter.notices:
            message["from"] = f"uds:{self._letter.notices}"
        lines = [encoded({"type": "auth", "token": self._opening.secret})] if self._opening.secret else []
        return Said((*lines, encoded(message)), carries=True, outcome=Outcome.SAID)

    def heard(self, message: bytes) -> Said:
        del message
        return Said(outcome=Outcome.SAID)


_NEWS = {"held": News.HELD, "denied": News.DECLINED, "expired": News.EXPIRED, "dropped": News.DROPPED}
_PASSES = ("rate-limited", "queue-full")
"""Why a message was dropped that is let in some seconds later."""


def notice(line: bytes) -> Notice | None:
    told = parse_object(line)
    if told.get("action") != "peer_message_status":
        return None
    news = _NEWS.get(str(told.get("status")))
    if news is None:
        return None
    if told.get("status_detail") == "refused":
        news = News.REFUSED
    elif news is News.DROPPED and told.get("drop_reason") in _PASSES:
        news = News.CROWDED
    named = (told.get("orig_msg_id"), *as_list(told.get("dropped_msg_ids")))
    return Notice(tuple(dict.fromkeys(key for key in named if isinstance(key, str))), news)


_HELD = "Held peer message"
"""How a note in the transcript begins whose message waits for the person; it names none (2.1.332)."""


def held_back(store: str, session: str, since: float) -> bool:
    path = sessions.find(store, session)
    lines = tail.last_lines(path) if path is not None else ()
    notes = (parse_object(line) for line in lines if _HELD.encode() in line)
    return any(_is_hold(note) and moment(note) >= since for note in notes)


def _is_hold(note: dict[str, Any]) -> bool:
    return note.get("type") == "system" and str(note.get("content")).startswith(_HELD)


DOOR = Door(
    name="claude-inbox",
    look=look,
    give=Posting,
    notice=notice,
    held_back=held_back,
    went_to=sessions.with_message,
    child_secret="CLAUDE_CODE_MESSAGING_TOKEN",
    explains={
        News.HELD.value: f"a person is asked there whether it may be delivered. {_SETTING} set to `accept` would let messages of "
        "every local process in without asking, with whatever that session may do unasked",
        News.DECLINED.value: "the person at that session declined it",
        News.REFUSED.value: f"that session takes no messages from others: {_SETTING} says `refuse`, or its policy does",
        News.DROPPED.value: "Claude Code dropped it at its inbox, as a repetition or a part of a loop",
        News.EXPIRED.value: "it was held for the approval of the person at that session, and nobody gave it",
    },
)
