"""Finished turns of a thread, as the client is shown them and as a rollout gives them back.

Owns the shape of a turn and the reading of rollout records; writes nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shims.codex.stub.options import Options


class TurnRecord:
    """What is known of one turn."""

    __slots__ = ("completed_at", "error", "items", "started_at", "status", "turn_id")

    def __init__(self, turn_id: str, started_at: int | None) -> None:
        self.turn_id = turn_id
        self.started_at = started_at
        self.completed_at: int | None = None
        self.status = "inProgress"
        self.error: dict[str, Any] | None = None
        self.items: list[dict[str, Any]] = []

    def final_message(self) -> dict[str, Any] | None:
        """The last finished answer; commentary is none."""
        finals = [item for item in self.items if item.get("phase") == "final_answer"]
        return finals[-1] if finals else None

    def summary(self) -> list[dict[str, Any]]:
        """The first user message and the final answer."""
        first = next((item for item in self.items if item["type"] == "userMessage"), None)
        return [item for item in (first, self.final_message()) if item is not None]

    def shown(self, options: Options, items: list[dict[str, Any]]) -> dict[str, Any]:
        """The turn object of the protocol, with the given items."""
        root = {"rootTurnId": self.turn_id} if options.preempts else {}
        seconds = None
        if self.completed_at is not None and self.started_at is not None:
            seconds = self.completed_at - self.started_at
        return {
            "id": self.turn_id,
            **root,
            "items": items,
            "itemsView": "summary" if items else "notLoaded",
            "status": self.status,
            "error": self.error,
            "startedAt": self.started_at,
            "completedAt": self.completed_at,
            "durationMs": None if seconds is None else seconds * 1000,
        }


def user_message(item_id: str, client_id: str | None, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "userMessage", "id": item_id, "clientId": client_id, "content": content}


def agent_message(item_id: str, text: str, phase: str) -> dict[str, Any]:
    return {"type": "agentMessage", "id": item_id, "text": text, "phase": phase, "memoryCitation": None}


def read_turns(records: list[dict[str, Any]]) -> list[TurnRecord]:
    """The turns of a rollout, oldest first. One without an end was cut off by the death of its process."""
    turns: dict[str, TurnRecord] = {}
    current: TurnRecord | None = None
    for record in records:
        if record["type"] != "event_msg":
            continue
        event = record["payload"]
        kind = event["type"]
        if kind == "task_started":
            current = turns[event["turn_id"]] = TurnRecord(event["turn_id"], event.get("started_at"))
        elif kind in ("task_complete", "turn_aborted") and event["turn_id"] in turns:
            turn = turns[event["turn_id"]]
            turn.completed_at = event.get("completed_at")
            turn.status = "interrupted" if kind == "turn_aborted" else "failed" if event.get("error") else "completed"
            if event.get("error"):
                turn.error = {"message": event["error"]["message"], "codexErrorInfo": "other"}
        elif current is not None:
            item = read_item(event, len(current.items))
            if item is not None:
                current.items.append(item)
    for turn in turns.values():
        if turn.status == "inProgress":
            turn.status = "interrupted"
    return list(turns.values())


def read_item(event: dict[str, Any], number: int) -> dict[str, Any] | None:
    """A message of either format; None for any other event."""
    kind = event["type"]
    if kind == "user_message":
        content = [{"type": "text", "text": event["message"], "text_elements": []}]
        return user_message(f"item-{number}", event.get("client_id"), content)
    if kind == "agent_message":
        return agent_message(f"item-{number}", event["message"], event["phase"])
    if kind != "item_completed":
        return None
    item = event["item"]
    if item["type"] == "UserMessage":
        return user_message(item["id"], item.get("client_id"), item["content"])
    if item["type"] == "AgentMessage":
        return agent_message(item["id"], "".join(part["text"] for part in item["content"]), item["phase"])
    return None
