"""The broker process: one event loop in which everything meets.

Owns the order of start and end: lock, database, generation, sockets, record (EN-08, EN-10); and who gets which message.
Knows no agent by name, and decides nothing that one of its parts could decide.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from broker import VERSION
from broker.baseline import CHILD_ENV, listed_names
from broker.book import Book
from broker.carrier import Carrier
from broker.claims import Claims
from broker.clock import wall_clock
from broker.doors.child import Children
from broker.errors import CrossAgentError, Fenced, InternalError
from broker.events import Events
from broker.failpoints import fail_point
from broker.focus import Focus
from broker.gaps import Gaps
from broker.index.catalogue import Catalogue, Known
from broker.index.catalogue import Store as IndexedStore
from broker.index.indexer import Indexer
from broker.late import Late
from broker.logs import DEBUG
from broker.panels import KnownName, Panel, Panels
from broker.paths import Home
from broker.peers import Peer, Peers
from broker.pins import Pins
from broker.processes import identify
from broker.reader import Reader
from broker.rendezvous import (
    BrokerRecord,
    clean_end,
    publish_record,
    withdraw_record,
)
from broker.routes.choice import Routes
from broker.routes.door import DoorRoute
from broker.routes.headless import HeadlessRoute
from broker.routes.panel import PanelRoute
from broker.sends import Sends
from broker.service import Service, Tools
from broker.settings import Grants, read_grants
from broker.settlement import Settlement
from broker.sight import Sight
from broker.stopping import Stopping
from broker.store import Store
from broker.tasks import Tasks
from broker.turns.environment import in_memory
from broker.turns.started import StartedTurns
from broker.turns.unwritten import Unwritten
from broker.wire import (
    PROTOCOL,
    Failure,
    McpLine,
    McpOpen,
    McpPosted,
    McpReady,
    Message,
    Register,
    Reply,
    Request,
    StageReport,
    StageSeen,
    State,
    Welcome,
)
from broker.withdrawal import Withdrawal
from mcp_server.served import McpSessions
from shims.agent import agents
from shims.presence import living

log = logging.getLogger("broker.app")

_FIRST_HAND_OVER = 3.0
"""Seconds that living shims get to register with a new broker before anything is handed over (DE-25)."""

_DAY = 24 * 3600.0

_LAST_STEPS = 2.0
"""Seconds that an ending broker's own processes get."""


class Broker:
    """One generation."""

    def __init__(self, home: Home) -> None:
        agents()  # loaded before anybody waits for the loop
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._idle: asyncio.TimerHandle | None = None
        self._store = Store(home.database, self._failed)
        self.generation = self._store.begin_generation()
        home.sweep_sockets()
        endpoint = home.endpoint(self.generation)
        self._peers = Peers(endpoint, self.generation, received=self._received, gone=self._gone)
        events = home.events_endpoint(self.generation)
        self._events = Events(self._peers.context, events, self.generation)
        self._panels = Panels(self._panel_changed)
        self._claims = Claims(self._panels, self._stores, self._session_proven)
        self._reader = Reader()
        self._grants = read_grants(home)
        self._unwritten = Unwritten()
        self._book = Book(self._store, self._events)
        self._pins = Pins(self._store)
        self._turns = StartedTurns(home.turns, home.root, self._book, self._reader)
        panel = PanelRoute(home, self._panels, self._peers, self.generation)
        self._children = Children(self._peers.send)
        self._door = DoorRoute(home.root, self._book, self._children, self._reader)
        headless = HeadlessRoute(self._turns, panel.holds, self._current_grants, self._unwritten)
        self._route = Routes(panel, self._door, headless)
        self._carrier = Carrier(self._book, self._pins, self._route, self._reader, self.generation)
        self._turns.attach(self._carrier)
        self._settlement = Settlement(self._book, self._carrier, panel, self._panels, self._reader)
        self._door.attach(self._carrier, self._settlement)
        self._mcp = McpSessions()
        self._gathered = asyncio.Event()
        self._tasks = Tasks(log)
        self._catalogue = Catalogue(self._sessions_changed, self._records_moved)
        self._indexer = Indexer(home.session_index, self._catalogue, self._tasks, self._stores_in_use)
        self._busy: dict[tuple[str, str], bool] = {}
        self._late = Late(self._book, self._reader, self._carrier.replies, self._indexer.open, self._runs_turn)
        sight = Sight(self._panels, self._indexer, self._pins, Focus(self._book, self._panels, self._reader), self._route.look)
        startable = partial(headless.reach, waited=0.0)
        sends = Sends(self._book, self._carrier, sight, self._current_grants, self._route, startable)
        self._service = Service(
            home,
            self._panels,
            self._book,
            self._reader,
            self._events,
            sends,
            sight,
            self._pins,
            Withdrawal(self._book, self._carrier, self._route, self._events),
            self._route,
            stopping=Stopping(self._book, self._turns, self._events, lambda: len(self._late.shown()), self._stop_soon),
            grants=self._current_grants,
            gathered=self._gathered,
            facts=self._facts,
            late_watches=self._late.shown,
        )
        self._gaps = Gaps() if DEBUG in os.environ else None
        me = identify(os.getpid())
        assert me is not None
        self._record = BrokerRecord(endpoint, events, me.pid, me.start, self.generation, PROTOCOL, VERSION)
        self._started = wall_clock()
        self._sound = True
        """Whether this broker ends because it should, and not because something is broken (MC-32)."""

    async def run(self, published: Callable[[], None]) -> None:
        """Until it is idle, stopped or replaced; ``published`` is called when clients can find this broker."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._end, "stopped by a signal")
        self._book.load()
        self._late.load()
        self._pins.load()
        publish_record(self._home, self._record)
        published()
        log.info("generation %d at %s, version %s", self.generation, self._record.endpoint, VERSION)
        self._mcp.load()
        self._tasks.spawn(self._begin_hand_overs())
        self._watch_idle()
        try:
            reason = await self._over
        finally:
            self._close()
            await self._tasks.gone(_LAST_STEPS)
        log.info("ended: %s", reason)

    async def _begin_hand_overs(self) -> None:
        try:
            await self._gather_shims()
        finally:  # whatever is wrong with one shim's record, the others are served
            self._gathered.set()
            self._turns.recover()
            self._door.recover()
            self._settlement.recover()
            self._carrier.begin()
        for described in agents().values():
            self._indexer.open(described.name, os.path.join(os.path.expanduser("~"), described.default_store))
        await self._mcp.loaded()  # unless somebody asks before: loading has the processor, and the interpreter
        self._indexer.begin()
        await self._forget_old()

    async def _gather_shims(self) -> None:
        """Waits for the shims that live, within a bound (DE-25)."""
        expected = {presence.process for presence in living(self._home.shims)}
        deadline = self._loop.time() + _FIRST_HAND_OVER
        while any(not self._panels.is_ready(process) and process.alive() for process in expected):
            if not await self._panels.change(deadline):
                break

    async def _forget_old(self) -> None:
        """Once a day: finished records are kept for a while and no longer (DE-23)."""
        while True:
            await self._store.write(lambda transaction: transaction.expire(wall_clock() - self._grants.delivery_ttl))
            await asyncio.sleep(_DAY)

    # messages

    def _received(self, peer: Peer, message: Message) -> None:
        if isinstance(message, StageReport):
            self._stage(peer, message)
        elif isinstance(message, State):
            panel = self._panels.update(peer, message.sessions, message.closing)
            if panel is not None:
                self._claims.check(panel)
        elif isinstance(message, McpLine):
            self._mcp.line(peer, message.line)
        elif isinstance(message, Register):
            self._register(peer, message)
        elif isinstance(message, McpOpen):
            self._peers.supersede(peer, "mcp")
            self._unwritten.know(
                message.instance, in_memory(message.environment, listed_names(message.settings.get(CHILD_ENV, "")))
            )
            self._mcp.open(peer, Tools(self._service, peer.process, message), lambda line: self._peers.send(peer, McpLine(line)))
            self._peers.send(peer, McpReady(self.generation))
            if message.posts:
                self._children.opened(peer)
        elif isinstance(message, McpPosted):
            self._children.posted(peer, message)
        elif isinstance(message, Request):
            self._tasks.spawn(self._request(peer, message))
        self._watch_idle()

    def _register(self, peer: Peer, message: Register) -> None:
        if message.agent not in agents():
            self._peers.drop(peer, f"no agent is called {message.agent[:20]}")
            return
        panel = self._panels.register(peer, message)
        self._peers.supersede(peer, "shim")
        self._peers.send(peer, Welcome(self.generation, VERSION))
        self._settlement.registered(panel)
        for report in message.reports:
            self._stage(peer, report)
        self._events.publish("panel", agent=panel.agent, pid=panel.process.pid, state="registered")
        self._claims.check(panel)
        if not panel.claimed:
            self._session_proven(panel)

    def _session_proven(self, panel: Panel) -> None:
        """A panel can be reckoned with."""
        store = self._indexer.open(panel.agent, panel.store)
        self._sessions_changed(panel.agent, [known for s in panel.sessions if (known := store.session(s.id)) is not None])

    def _sessions_changed(self, agent_name: str, sessions: Iterable[Known]) -> None:
        """Panels are named as their files say where their streams say nothing: a session resumed under a name given before."""
        for known in sessions:
            for panel in self._panels.hosting(agent_name, known.id):
                if panel.store == known.store:
                    name = KnownName(known.name, known.title, agents()[agent_name].named_by_files)
                    self._panels.name(panel.process, known.id, name)

    def _records_moved(self, store: IndexedStore, sessions: Collection[str]) -> None:
        self._carrier.records_moved(store.agent, sessions)
        self._late.records_moved(store, sessions)

    def _runs_turn(self, agent_name: str, session: str) -> bool:
        """Whether a panel runs a turn there."""
        return self._busy.get((agent_name, session), False)

    def _stores_in_use(self) -> set[tuple[str, str]]:
        """Those of panels, which are named by them."""
        return {(panel.agent, panel.store) for panel in self._panels}

    def _stores(self, agent_name: str) -> set[str]:
        """The data directories that panels of this agent use, and its usual one."""
        used = {panel.store for panel in self._panels if panel.agent == agent_name}
        return used | {os.path.join(os.path.expanduser("~"), agents()[agent_name].default_store)}

    def _stage(self, peer: Peer, report: StageReport) -> None:
        """Acknowledged when it is in the database, so that no crash between the two loses it."""

        def acknowledge(_: asyncio.Future[None]) -> None:
            fail_point("broker.stage-seen.before")
            self._peers.send(peer, StageSeen(report.number))
            fail_point("broker.stage-seen.after")

        seen: asyncio.Future[None] = self._loop.create_future()
        seen.add_done_callback(acknowledge)
        attempt = self._book.attempt(report.attempt)
        if attempt is not None and attempt.instance != str(peer.process):
            log.warning("%s reports on an attempt of %s", peer.process, attempt.instance)
            seen.set_result(None)
            return
        self._carrier.staged(report, seen)

    def _panel_changed(self, panel: Panel) -> None:
        for state in panel.sessions:
            key = (panel.agent, state.id)
            busy = bool(state.turn_since)
            if not busy and self._busy.get(key) is not False:  # also when first seen: what it ran before is over
                self._carrier.session_idle(*key)
                self._late.turn_ended(*key)
            self._busy[key] = busy
            self._carrier.drive((panel.agent, state.id, ""))
        self._carrier.drive((panel.agent, "", str(panel.process)))
        waiting = sum(state.approval is not None for state in panel.sessions)
        self._events.publish(
            "sessions",
            agent=panel.agent,
            pid=panel.process.pid,
            sessions=len(panel.sessions),
            awaiting_approval=waiting,
            closing=panel.closing,
        )

    def _gone(self, peer: Peer) -> None:
        self._mcp.close(peer)
        self._children.closed(peer)
        panel = self._panels.remove(peer)
        if panel is not None:
            self._events.publish("panel", agent=panel.agent, pid=panel.process.pid, state="gone")
            for state in panel.sessions:
                self._busy.pop((panel.agent, state.id), None)
            self._settlement.instance_gone(panel.process)
            for state in panel.sessions:
                self._carrier.drive((panel.agent, state.id, ""))
        self._watch_idle()

    async def _request(self, peer: Peer, request: Request) -> None:
        """A client that is no agent."""
        try:
            self._peers.send(peer, Reply(request.key, await self._service.operation(request.operation, request.parameters)))
        except CrossAgentError as error:
            self._refuse(peer, request, error)
        except Exception as error:  # whoever asked must not wait for what never comes
            log.error("%.40s failed by %s", request.operation, type(error).__name__, exc_info=error)
            self._refuse(peer, request, InternalError())

    def _refuse(self, peer: Peer, request: Request, error: CrossAgentError) -> None:
        self._peers.send(peer, Failure(request.key, error.code, str(error), error.next_step, error.retry_safe))

    # life

    def _facts(self) -> dict[str, Any]:
        """What is told of this process."""
        return {
            "pid": os.getpid(),
            "version": VERSION,
            "generation": self.generation,
            "uptime_seconds": int(wall_clock() - self._started),
            "panels": len(self._panels),
            "mcp_sessions": len(self._mcp),
            "event_sequence": self._events.sequence,
        }

    def _stop_soon(self) -> None:
        self._loop.call_soon(self._end, "stopped by hand")

    def _current_grants(self) -> Grants:
        """Read at each call: a grant holds from the moment it is written."""
        self._grants = read_grants(self._home)
        if self._grants.trouble:
            log.warning("%s", self._grants.trouble)
        return self._grants

    def _watch_idle(self) -> None:
        """The clock of idleness runs only while nobody is connected and nothing is under way."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if len(self._peers) == 0:
            self._idle = self._loop.call_later(self._grants.idle_seconds, self._idle_over)

    def _idle_over(self) -> None:
        self._idle = None
        if len(self._late) or any(delivery.open for delivery in self._book.deliveries()):
            self._watch_idle()
        else:
            self._end("idle")

    def _failed(self, error: BaseException) -> None:
        """The store can't go on, so nothing can: what is not durable must not be seen."""
        log.error("the store failed: %s", type(error).__name__, exc_info=error)
        self._sound = isinstance(error, Fenced)
        self._end("replaced by a newer broker" if self._sound else "the database failed")

    def _end(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    def _close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        withdraw_record(self._home, self._record)
        if self._gaps is not None:
            self._gaps.close()
        self._mcp.close_all()
        self._claims.close()
        self._indexer.close()
        self._late.close()
        self._carrier.close()
        self._turns.close()
        self._door.close()
        self._settlement.close()
        self._tasks.cancel()
        self._events.close()
        self._peers.close(self._over.result() if self._over.done() and not self._over.cancelled() else "ended")
        self._store.close()
        if self._sound:
            clean_end(self._home)
