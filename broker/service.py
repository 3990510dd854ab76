"""What clients may ask: the tools of an MCP session, and the operations of commands.

Owns the way from a call to the part that answers it. Who is calling is found out here once per call; everything else is
decided by `sends`, `status` and the book.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker import status
from broker.book import Book
from broker.callers import Caller, descent_of, identify_caller
from broker.clock import wall_clock
from broker.envelope import shown, shown_path
from broker.errors import Refusal
from broker.events import Events
from broker.logs import DEBUG, debugged
from broker.panels import Panels
from broker.paths import Home
from broker.pins import Pin, Pins
from broker.processes import ProcessId, ancestors
from broker.reader import Reader
from broker.resolve import Asked, Selected, resolve
from broker.routes.choice import Routes
from broker.sends import SendCall, Sends
from broker.settings import CallerSettings, Grants, caller_settings
from broker.sight import Sight
from broker.status import View
from broker.stopping import How, Stopping
from broker.wire import McpOpen
from broker.withdrawal import Withdrawal
from shims.agent import Agent, agents
from shims.presence import is_shim

log = logging.getLogger("broker.service")

_LONGEST_PATH = os.pathconf("/", "PC_PATH_MAX")
"""Bytes, with the zero at the end."""

_CALLER_PATIENCE = 2.0
"""Seconds that a call waits for the shim behind it to register: both may have just met a new broker."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, and what that call sees: ``cwd`` as it was given, ``place`` with its links resolved."""

    caller: Caller
    cwd: str
    place: str
    scope: str
    environment: Mapping[str, str]
    settings: CallerSettings


class Service:
    """Everything that can be asked of one broker.

    Args:
        gathered: set when the shims that live have had their chance to register (DE-25): before, a session that is open
            could be taken for unknown.
        facts: what is told of the broker process.
        late_watches: the requests whose answer may still come.
    """

    def __init__(
        self,
        home: Home,
        panels: Panels,
        book: Book,
        reader: Reader,
        events: Events,
        sends: Sends,
        sight: Sight,
        pins: Pins,
        withdrawal: Withdrawal,
        routes: Routes,
        *,
        stopping: Stopping,
        grants: Callable[[], Grants],
        gathered: asyncio.Event,
        facts: Callable[[], dict[str, Any]],
        late_watches: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._home = home
        self._panels = panels
        self._book = book
        self._reader = reader
        self._events = events
        self._sends = sends
        self._sight = sight
        self._pins = pins
        self._grants = grants
        self._withdrawal = withdrawal
        self._routes = routes
        self._gathered = gathered
        self._facts = facts
        self._stopping = stopping
        self._late_watches = late_watches

    def settings(self, values: Mapping[str, str]) -> CallerSettings:
        """What holds for a caller whose process has these ``CROSS_AGENT_*``."""
        return caller_settings(values, self._grants())

    async def caller(self, process: ProcessId, meta: Mapping[str, Any], opened: McpOpen) -> Caller:
        """Who is behind an MCP process; waits briefly for shims that are known to be on their way."""
        await self._gathered.wait()
        behind = [ancestor for ancestor in ancestors(process.pid) if is_shim(self._home.shims, ancestor)]
        deadline = asyncio.get_running_loop().time() + _CALLER_PATIENCE
        while behind and not any(self._panels.is_ready(shim) for shim in behind):
            if not await self._panels.change(deadline):
                break
        shims = frozenset(panel.process for panel in self._panels)
        descent = await asyncio.get_running_loop().run_in_executor(None, descent_of, process, shims)
        told = {**opened.environment, **opened.settings}
        return identify_caller(descent, meta, told, self._panels, self._book.started_turns(), opened.cwd)

    async def send(self, call: SendCall) -> dict[str, Any]:
        self._stopping.check_open()
        return await self._sends.send(call)

    def cancelled(self, key: str) -> None:
        self._sends.cancelled(key)

    async def sessions(self, asking: Asking, which: str, limit: int) -> dict[str, Any]:
        names = {"all": tuple(agents()), "both": ("claude", "codex")}.get(which, (which,))
        listed = status.list_sessions(await self._view(asking, names), limit=limit)
        return {"ok": True, "sessions": listed, "scope": asking.scope, "cwd": shown_path(asking.cwd)}

    async def status(self, asking: Asking, delivery: str, client: ProcessId) -> dict[str, Any]:
        if delivery:
            return {"ok": True, **await status.detail(self._book, self._panels, self._reader, self._routes, delivery)}
        view = await self._view(asking, tuple(agents()))
        targets = [await self._target(asking, agent) for agent in agents().values()]
        return {
            "ok": True,
            **status.overview(
                self._book, view, [selected for _, selected in targets if selected is not None], self._late_watches()
            ),
            "targets": [line for line, _ in targets],
            "pins": [status.pin_line(pin) for pin in self._pins.all()],
            "settings": status.settings_line(asking.settings, asking.scope),
            "server_process": {**self._facts(), "mcp_process": client.pid},
        }

    async def pin(self, asking: Asking, agent: str, session: str) -> dict[str, Any]:
        """Pins messages from a directory to a session, or takes the pin away (SE-27)."""
        target = agents()[agent]
        place = asking.place
        store = os.path.realpath(self._sight.store(target, asking.caller, asking.environment).path)
        if not session.strip():
            before = await self._pins.remove(agent, place, store)
            return {
                "ok": True,
                "agent": agent,
                "cwd": shown_path(place),
                "pinned": None,
                "was": before.session if before else None,
            }
        asked = Asked(target, asking.caller, session.strip(), place=place, scope=asking.scope, now=wall_clock())
        selected = resolve(asked, await self._sight.seen(asked, asking.environment))
        await self._pins.set(Pin(agent, place, store, selected.session, by_caller=True, set=wall_clock()))
        return {
            "ok": True,
            "agent": agent,
            "cwd": shown_path(place),
            "pinned": selected.session,
            "name": shown(selected.name) or None,
        }

    async def _view(self, asking: Asking, names: tuple[str, ...]) -> View:
        stores = await self._sight.stores([agents()[name] for name in names], asking.caller, asking.environment)
        held = {name: await self._sight.held(agents()[name], store) for name, store in stores.items()}
        settings = asking.settings
        return View(
            self._panels,
            asking.caller,
            asking.place,
            asking.scope,
            stores,
            held,
            settings.active,
            settings.headless,
            self._book.started_turns(),
            await self._sight.doors(stores, held) if settings.use_doors else {},
        )

    async def _target(self, asking: Asking, target: Agent) -> tuple[dict[str, Any], Selected | None]:
        """Whom a message to this agent would go to, if it named nobody."""
        settings = asking.settings
        asked = Asked(
            target,
            asking.caller,
            place=asking.place,
            scope=asking.scope,
            now=wall_clock(),
            active=settings.active,
            starts=settings.headless and target.headless is not None,
            panels_only=settings.require_panel,
            doors=settings.use_doors,
            doors_are_panels=settings.doors_are_panels,
        )
        seen = await self._sight.seen(asked, asking.environment)
        line: dict[str, Any] = {"agent": target.name, "pinned": seen.pin.session if seen.pin is not None else None}
        try:
            selected = resolve(asked, seen)
        except Refusal as refusal:
            return {**line, "session": None, "selected_by": None, "why_none": refusal.code}, None
        held = selected.session in seen.held and (target.name, selected.session) not in self._book.started_turns()
        reachable = selected.panel is not None or selected.session in seen.doors or (asked.starts and not held)
        return {**line, "session": selected.session or None, "selected_by": selected.by, "reachable": reachable}, selected

    async def operation(self, operation: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What a command asks. Raises CrossAgentError."""
        if operation == "status":
            return self._facts()
        if operation == "overview":
            view = await self._view(Asking(Caller(), "/", "/", "any", {}, CallerSettings()), tuple(agents()))
            return {**status.overview(self._book, view, (), self._late_watches()), "server_process": self._facts()}
        if operation == "delivery":
            return await status.detail(self._book, self._panels, self._reader, self._routes, str(parameters.get("id")))
        if operation == "withdraw":
            withdrawn = await self._withdrawal.withdraw(str(parameters.get("id")))
            return {"ok": True, "delivery": status.delivery_line(withdrawn)}
        if operation == "events":
            missed = self._events.since(int(parameters.get("after", 0)))
            return {"sequence": self._events.sequence, "events": missed}
        if operation == "next_event":
            after, patience = int(parameters.get("after", 0)), float(parameters.get("patience", 1.0))
            return {"sequence": await self._events.next(after, patience)}
        if operation == "stop":
            how = str(parameters.get("how", How.ASK.value))
            if how not in [known.value for known in How]:
                raise Refusal("bad_argument", f"a broker is not stopped by {how[:20]}", "Use ask, drain or force.")
            await self._stopping.stop(How(how))
            return self._facts()
        raise Refusal("unknown_operation", f"the broker does not know {operation[:40]}", "Update cross-agent.")


class Tools:
    """The tools of one MCP session."""

    def __init__(self, service: Service, process: ProcessId, opened: McpOpen) -> None:
        self._service = service
        self._process = process
        self._opened = opened

    async def call(self, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any], request_id: str) -> dict[str, Any]:
        opened = self._opened
        debugged.set(DEBUG in opened.settings)
        caller = await self._service.caller(self._process, meta, opened)
        log.debug("%s calls %s: %s %s (%s)", self._process, tool, caller.agent or "nobody", caller.session, caller.how)
        cwd = directory_below(opened.cwd, arguments["cwd"])
        settings = self._service.settings(opened.settings)
        scope = arguments.get("scope") or settings.scope
        asking = Asking(caller, cwd, os.path.realpath(cwd), scope, opened.environment, settings)
        if tool == "list_agent_sessions":
            return await self._service.sessions(asking, arguments["agent"], arguments["limit"])
        if tool == "bridge_status":
            return await self._service.status(asking, arguments["delivery_id"], self._process)
        if tool == "pin_agent_session":
            return await self._service.pin(asking, arguments["agent"], arguments["session_id"])
        return await self._service.send(
            SendCall(
                target=tool.removeprefix("send_to_"),
                message=arguments["message"],
                key=self._key(request_id),
                origin=opened.instance,
                caller=caller,
                cwd=cwd,
                scope=scope,
                session=arguments["session_id"],
                new_session=arguments["new_session"],
                conversation=arguments["conversation_id"].strip(),
                timeout=float(arguments["timeout"]),
                raw=arguments["raw"],
                allow_same_agent=arguments.get("allow_same_agent", False),
                settings=opened.settings,
                environment=opened.environment,
                withheld=opened.auth_names,
                umask=opened.umask,
            )
        )

    def cancelled(self, request_id: str) -> None:
        self._service.cancelled(self._key(request_id))

    def _key(self, request_id: str) -> str:
        """Names a call for ever: the MCP process and the id that its client gave."""
        return f"{self._opened.instance}/{request_id}"


def directory_below(cwd: str, wanted: str) -> str:
    """The directory that a call means which comes from ``cwd``.

    Raises:
        Refusal: no directory can be called so; the system is not asked, for it would take its time.
    """
    if "\0" not in wanted and len(os.fsencode(wanted)) < _LONGEST_PATH:
        found = os.path.join(cwd, os.path.expanduser(wanted))
        if len(os.fsencode(found)) < _LONGEST_PATH:
            return found
    raise Refusal(
        "bad_argument",
        f"cwd must be a directory's path: no zero byte in it, and less than {_LONGEST_PATH} bytes",
        "Call again with the argument corrected, or without it.",
    )
