"""The ``thread/*`` methods of the Codex stub, but for the queue: start, resume, read, list, name, archive.

Owns how a thread comes into the process and leaves it, and what is told of threads that only the disk knows.
"""

from __future__ import annotations

from shims.codex.stub import rollout as store
from shims.codex.stub.checks import check_id
from shims.codex.stub.thread import Thread
from shims.codex.stub.tools import ThreadServers
from shims.codex.stub.wire import INTERNAL, NOT_SUPPORTED, RpcError
from shims.stub_values import uuid7

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from shims.codex.stub.server import AppServer

INTERACTIVE: Final = ("cli", "vscode")
SANDBOXES: Final = {
    "workspace-write": "workspaceWrite",
    "read-only": "readOnly",
    "danger-full-access": "dangerFullAccess",
}
PAGE: Final = 25  # threads or turns of one answer, unless asked for more
DEPRECATED: Final = (
    "Full-history hydration is deprecated for paginated threads; use `excludeTurns: true`, then page with "
    "`thread/turns/list` and `thread/items/list`."
)


class ThreadMethods:
    """Handlers of one server; each takes the request's id and its params."""

    def __init__(self, server: AppServer) -> None:
        self._server = server

    # into the process

    def start(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = Thread(self._server, uuid7(), cwd=params.get("cwd") or self._server.options.cwd)
        thread.thread_source = params.get("threadSource")
        self._apply(thread, params)
        self._server.loop.start(self._load(request_id, thread, params, fresh=True))

    def resume(self, request_id: Any, params: dict[str, Any]) -> None:
        server = self._server
        thread_id = params["threadId"]
        check_id(thread_id)
        loaded = server.threads.get(thread_id)
        path = store.find(server.options, thread_id)
        if path is None and (loaded is None or not server.options.has_queue):
            raise RpcError(self._missing(thread_id))
        hydrates = params.get("excludeTurns") is not True
        if hydrates and server.options.has_queue:
            server.wire.notify("deprecationNotice", {"summary": DEPRECATED, "details": None})
            if path is None:
                raise RpcError("list_turns is not supported yet", NOT_SUPPORTED)
        if loaded is not None:
            loaded.subscribed = True
            server.wire.respond(request_id, self._opened(loaded, turns=hydrates))
            server.wire.notify("thread/goal/cleared", {"threadId": thread_id})
            return
        assert path is not None
        thread = Thread.read(server, path, store.read_names(server.options).get(thread_id))
        thread.cwd = params.get("cwd") or thread.cwd
        self._apply(thread, params)
        server.loop.start(self._load(request_id, thread, params, fresh=False))

    def _missing(self, thread_id: str) -> str:
        archived = store.all_paths(self._server.options, archived=True)
        if thread_id in map(store.thread_id_of, archived):
            return f"session {thread_id} is archived. Run `codex unarchive {thread_id}` to unarchive it first."
        return f"no rollout found for thread id {thread_id}"

    def _apply(self, thread: Thread, params: dict[str, Any]) -> None:
        thread.approval_policy = params.get("approvalPolicy") or thread.approval_policy
        thread.sandbox_mode = params.get("sandbox") or thread.sandbox_mode

    async def _load(self, request_id: Any, thread: Thread, params: dict[str, Any], *, fresh: bool) -> None:
        """Takes the writer lock, starts the MCP servers, answers. Only required servers are waited for."""
        server = self._server
        if not thread.lock.acquire():
            server.wire.refuse(request_id, RpcError(f"thread {thread.thread_id} already has an active writer"))
            return
        server.threads[thread.thread_id] = thread
        thread.servers = ThreadServers(thread)
        for entry, running in thread.servers.required():
            await server.loop.first(running.ready)
            if running.ready.error is not None:
                reason = f"required MCP servers failed to initialize: {entry.name}: {running.ready.error}"
                thread.unload()
                del server.threads[thread.thread_id]
                server.wire.refuse(request_id, RpcError(reason, INTERNAL))
                return
        if fresh:
            thread.status = {"type": "idle"}
            server.wire.respond(request_id, self._opened(thread, turns=False))
            server.wire.notify("thread/started", {"thread": thread.shown()})
            thread.servers.announce()
            return
        thread.servers.announce()
        thread.set_status("idle")
        server.wire.respond(request_id, self._opened(thread, turns=params.get("excludeTurns") is not True))
        server.wire.notify("thread/goal/cleared", {"threadId": thread.thread_id})
        thread.drain()

    def _opened(self, thread: Thread, *, turns: bool) -> dict[str, Any]:
        return {
            "thread": thread.shown(turns=turns),
            "model": "scripted",
            "modelProvider": "mock",
            "serviceTier": None,
            "cwd": thread.cwd,
            "runtimeWorkspaceRoots": [thread.cwd],
            "instructionSources": [],
            "approvalPolicy": thread.approval_policy,
            "approvalsReviewer": "user",
            "sandbox": {"type": SANDBOXES.get(thread.sandbox_mode, "workspaceWrite")},
            "reasoningEffort": None,
        }

    # read

    def read(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = self._readable(params["threadId"])
        turns = params.get("includeTurns") is True
        if turns:
            self._refuse_unwritten(thread, "includeTurns")
        state = {"readState": None} if self._server.options.preempts else {}
        self._server.wire.respond(request_id, {"thread": thread.shown(turns=turns), **state})

    def turns(self, request_id: Any, params: dict[str, Any]) -> None:
        thread = self._readable(params["threadId"])
        self._refuse_unwritten(thread, "thread/turns/list")
        ordered = thread.turns if params.get("sortDirection") == "asc" else thread.turns[::-1]
        page, cursor = cut(ordered, params)
        options = self._server.options
        data = [turn.shown(options, turn.summary()) for turn in page]
        self._server.wire.respond(request_id, {"data": data, "nextCursor": cursor, "backwardsCursor": None})

    def loaded(self, request_id: Any, _params: dict[str, Any]) -> None:
        self._server.wire.respond(request_id, {"data": sorted(self._server.threads), "nextCursor": None})

    def list(self, request_id: Any, params: dict[str, Any]) -> None:
        """What the disk holds, newest first: a thread without a turn or a name isn't there yet."""
        server = self._server
        names = store.read_names(server.options)
        sources = params.get("sourceKinds") or INTERACTIVE
        wanted = params.get("cwd")
        folders = [wanted] if isinstance(wanted, str) else wanted
        term = params.get("searchTerm")
        found = []
        for path in store.all_paths(server.options, archived=params.get("archived") is True):
            thread_id = store.thread_id_of(path)
            thread = server.threads.get(thread_id) or Thread.read(server, path, names.get(thread_id))
            shown = thread.shown()
            if shown["source"] not in sources or (folders and shown["cwd"] not in folders):
                continue
            if term and term not in shown["preview"] and term not in (shown["name"] or ""):
                continue
            found.append(shown)
        found.sort(key=lambda shown: (shown["updatedAt"], shown["id"]), reverse=True)
        page, cursor = cut(found, params)
        self._server.wire.respond(request_id, {"data": page, "nextCursor": cursor, "backwardsCursor": None})

    def _readable(self, thread_id: Any) -> Thread:
        check_id(thread_id)
        server = self._server
        if thread_id in server.threads:
            return server.threads[thread_id]
        path = store.find(server.options, thread_id)
        if path is None:
            raise RpcError(f"thread not loaded: {thread_id}")
        return Thread.read(server, path, store.read_names(server.options).get(thread_id))

    def _refuse_unwritten(self, thread: Thread, what: str) -> None:
        if thread.rollout.exists or thread.is_child:
            return
        if self._server.options.has_queue:
            raise RpcError("list_turns is not supported yet", NOT_SUPPORTED)
        raise RpcError(f"thread {thread.thread_id} is not materialized yet; {what} is unavailable before first user message")

    # change

    def name(self, request_id: Any, params: dict[str, Any]) -> None:
        if not str(params["name"]).strip():
            raise RpcError("thread name must not be empty")
        thread = self._readable(params["threadId"])
        thread.set_name(params["name"])
        self._server.wire.respond(request_id, {})
        changed = {"threadId": thread.thread_id, "threadName": thread.name}
        self._server.wire.notify("thread/name/updated", changed)

    def archive(self, request_id: Any, params: dict[str, Any]) -> None:
        server = self._server
        thread_id = params["threadId"]
        check_id(thread_id)
        path = store.find(server.options, thread_id)
        if path is None:
            raise RpcError(f"no rollout found for thread id {thread_id}")
        thread = server.threads.pop(thread_id, None)
        if thread is not None:
            thread.unload()
            thread.set_status("notLoaded")
        store.Rollout(server.options, thread_id, path).archive()
        server.wire.respond(request_id, {})
        server.wire.notify("thread/archived", {"threadId": thread_id})

    def unsubscribe(self, request_id: Any, params: dict[str, Any]) -> None:
        """The thread stays loaded, and its lock stays held."""
        thread = self._server.threads.get(params["threadId"])
        status = "notLoaded" if thread is None else "unsubscribed" if thread.subscribed else "notSubscribed"
        if thread is not None:
            thread.subscribed = False
        self._server.wire.respond(request_id, {"status": status})


def cut(entries: list[Any], params: dict[str, Any]) -> tuple[list[Any], str | None]:
    """One page, and where the next one begins."""
    cursor = params.get("cursor") or "0"
    if not cursor.isdecimal():
        raise RpcError(f"invalid cursor: {cursor}")
    start = int(cursor)
    end = start + int(params.get("limit") or PAGE)
    return entries[start:end], str(end) if end < len(entries) else None
