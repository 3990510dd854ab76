"""Claude Code's transcript records: what became of a message, what a turn answered. No I/O.

Measured with 2.1.197 and 2.1.332 (protocols: claude.md, sections 2, 3 and 6). A message that ran has a ``user`` record with
its uuid, one that folded into a running turn a ``queued_command`` attachment that names it; ``queue-operation`` records
are no evidence. What came by the inbox (2.1.332) has a uuid of its own and names ours as ``origin.msg_id``. An interruption may
be noted behind the message that waited for it: it is of the turn that its ``parentUuid`` leads to. SDK and panel sessions
write no end of a turn: the last assistant record tells, by its stop reason. A prompt that begins a turn has a `promptSource`; a
command that runs without the model, a note or a summary of the agent's has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from shims.agent import Found, Latest, Record
from shims.jsonline import as_object, parse_object
from shims.latest import Fold
from shims.moved import moment
from shims.stream import closes_with


def record_of(lines: Iterable[bytes], key: str) -> Record:
    """What the records from the first mention of ``key`` on say of that message."""
    taken = False
    before: set[str] = set()
    """Records behind the message that belong to the turn before it."""
    words, ended, failed = "", False, False
    for line in lines:
        entry = parse_object(line)
        if entry.get("isSidechain") is True:
            continue
        if not taken:
            taken = _is_message(entry, key)
            before = {str(entry["parentUuid"])} if entry.get("parentUuid") else set()
            continue
        if _is_prompt(entry):
            if _interrupts(entry):
                if str(entry.get("parentUuid")) in before:
                    continue
                return Record(Found.INTERRUPTED)
            if ended or "promptSource" in entry:  # the next turn began, whether or not this one ever ended
                break
        elif entry.get("type") == "assistant":
            message = as_object(entry.get("message"))
            words = _text(message) or words
            ended, failed = _ends(message), _fails(entry)
        elif str(entry.get("parentUuid")) in before:
            before.add(str(entry.get("uuid")))
    if not taken:
        return Record(Found.ABSENT)
    if failed:
        return Record(Found.INTERRUPTED)
    return Record(Found.ANSWERED, words) if ended else Record(Found.OPEN)


def answer_naming(lines: Iterable[bytes], token: str) -> Record:
    """The finished turn whose closing line names ``token``."""
    for line in lines:
        entry = parse_object(line)
        if entry.get("type") != "assistant" or entry.get("isSidechain") is True:
            continue
        message = as_object(entry.get("message"))
        text = _text(message)
        if _ends(message) and closes_with(text, token):
            return Record(Found.ANSWERED, text)
    return Record(Found.ABSENT)


def latest(lines: Iterable[bytes], after: float) -> Latest:
    """The last finished turn, whether one is open, and what was said ``after`` that instant."""
    fold = Fold(after)
    for line in lines:
        entry = parse_object(line)
        if entry.get("isSidechain") is True:
            continue
        if entry.get("type") == "assistant":
            _tell_words(fold, entry)
        elif entry.get("type") == "user":
            _tell_input(fold, entry)
    return fold.latest()


def _tell_words(fold: Fold, entry: dict[str, Any]) -> None:
    if _fails(entry):
        fold.breaks()
        return
    message = as_object(entry.get("message"))
    text = _text(message)
    if text:
        fold.says(text, moment(entry))
    if _ends(message):
        fold.ends(moment(entry))
    else:
        fold.works()


def _tell_input(fold: Fold, entry: dict[str, Any]) -> None:
    if not _is_prompt(entry):
        fold.works()
    elif _interrupts(entry):
        fold.breaks()
    elif "promptSource" in entry and not _is_note(entry):
        fold.begins()


def mode(lines: Iterable[bytes]) -> str:
    """The permission mode of the last prompt in ``lines``; empty when they do not say."""
    found = ""
    for line in lines:
        if b'"promptSource"' in line and (entry := parse_object(line)).get("type") == "user":
            found = str(entry.get("permissionMode") or "") if entry.get("isSidechain") is not True else found
    return found


def last_of_others(lines: Iterable[bytes], ours: Collection[str]) -> float:
    """When the last record of a turn was written that no message of ours began; ``ours`` are the uuids of our messages.

    Whose turn it is that stands before the first prompt in sight, nobody knows: it does not count.
    """
    theirs, last = False, 0.0
    for line in lines:
        entry = parse_object(line)
        if entry.get("isSidechain") is True or entry.get("type") not in ("user", "assistant", "attachment"):
            continue  # what is noted beside the conversation, also when a message is queued or a session ends
        theirs = _is_theirs(entry, theirs, ours)
        if theirs:
            last = max(last, moment(entry))
    return last


def _is_theirs(entry: dict[str, Any], before: bool, ours: Collection[str]) -> bool:
    """Whether the turn is not ours from ``entry`` on; a word of the person's into a turn of ours makes it theirs."""
    attachment = as_object(entry.get("attachment"))
    if attachment.get("type") == "queued_command":
        source = attachment.get("source_uuid")
        return before or (isinstance(source, str) and source not in ours)
    if not _is_prompt(entry) or _interrupts(entry) or _is_note(entry):
        return before
    return str(entry.get("uuid")) not in ours


def _ends(message: dict[str, Any]) -> bool:
    """Whether a message of the assistant's is the last of its turn."""
    return message.get("stop_reason") not in (None, "tool_use")


def _fails(entry: dict[str, Any]) -> bool:
    """Whether they are the agent's own words on a request to the model that failed; they end the turn."""
    return entry.get("isApiErrorMessage") is True


def _is_message(entry: dict[str, Any], key: str) -> bool:
    if entry.get("type") == "user":
        return key in (entry.get("uuid"), as_object(entry.get("origin")).get("msg_id"))
    attachment = as_object(entry.get("attachment"))
    named = (attachment.get("source_uuid"), as_object(attachment.get("origin")).get("msg_id"))
    return attachment.get("type") == "queued_command" and key in named


def _is_prompt(entry: dict[str, Any]) -> bool:
    """A user record that is no tool result."""
    if entry.get("type") != "user":
        return False
    content = as_object(entry.get("message")).get("content")
    return not (isinstance(content, list) and any(as_object(block).get("type") == "tool_result" for block in content))


def _is_note(entry: dict[str, Any]) -> bool:
    """A user record of the agent's own: a note, or what a compaction has left."""
    return entry.get("isMeta") is True or entry.get("isCompactSummary") is True


def _interrupts(entry: dict[str, Any]) -> bool:
    content = as_object(entry.get("message")).get("content")
    text = content if isinstance(content, str) else _text(as_object(entry.get("message")))
    return text.startswith("[Request interrupted by user")


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = [as_object(block) for block in content] if isinstance(content, list) else []
    return "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
