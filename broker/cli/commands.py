"""The commands. Each says what it did, and ends with 0 only when it did it; errors are one sentence and what to do next.

Exit statuses: 0 done, 1 refused or failed, 2 wrong usage.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from broker import VERSION
from broker.cli.calls import bring_up, call, stop_broker
from broker.errors import CrossAgentError
from broker.paths import find_home

_STOPPING = 40.0
"""Seconds that a broker gets to end what it has started, and itself."""

_PATIENCE = 20.0
"""Seconds that a broker gets to come up or to end."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="cross-agent")
def cli() -> None:
    """Lets the coding-agent sessions that you have open talk to each other.

    \b
      cross-agent demo             a whole exchange between two panels, without any account
      cross-agent broker status    what is running
      cross-agent mcp              the MCP server, as agents start it
    """


@cli.command()
@click.option("--surface", default="cross-agent", show_default=True, help="Which tools to serve.")
def mcp(surface: str) -> None:
    """The MCP server that agents start; speaks JSON-RPC on stdin and stdout."""
    del surface  # started by `entry`, which never comes here: the command exists for its help


@cli.group()
def broker() -> None:
    """The one process per user that carries messages. It starts by itself; these are for people."""


@broker.command("run")
def broker_run() -> None:
    """Run the broker in the foreground until it is idle or interrupted."""
    from broker.daemon import run

    with _errors():
        sys.exit(run(find_home(), detached=False))


@broker.command("start")
def broker_start() -> None:
    """Start the broker if none is running; also after it died too often to start by itself."""
    home = find_home()
    with _errors():
        record, started, ended = bring_up(home, time.monotonic() + _PATIENCE, by_hand=True)
        if ended:
            click.echo(f"cross-agent: {ended}; see {home.logs}/broker.log", err=True)
        how = "started" if started else "is running, another one" if ended else "was running"
        click.echo(f"broker {how}: pid {record.pid}, generation {record.generation}")


@broker.command("stop")
@click.option("--drain", is_flag=True, help="Wait until nothing is open; nothing new is taken meanwhile.")
@click.option("--force", is_flag=True, help="Stop now: started turns are ended, what is in panels goes on with the next broker.")
@click.option("--timeout", default=3600.0, show_default=True, help="With --drain: seconds to wait.")
def broker_stop(drain: bool, force: bool, timeout: float) -> None:
    """Stop the broker, unless deliveries are open: they are listed then."""
    home = find_home()
    if drain and force:
        raise click.UsageError("--drain or --force, not both")
    with _errors():
        how = "drain" if drain else "force" if force else "ask"
        record = stop_broker(home, timeout if drain else _STOPPING if force else _PATIENCE, how=how)
        click.echo(f"broker stopped: pid {record.pid}" if record is not None else "no broker is running")


@broker.command("status")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def broker_status(as_json: bool) -> None:
    """Show whether a broker is running, and what is connected to it."""
    with _errors():
        facts = call(find_home(), "status")
        if as_json:
            click.echo(json.dumps(facts))
            return
        click.echo(
            f"broker running: pid {facts['pid']}, generation {facts['generation']}, version {facts['version']}, "
            f"up {facts['uptime_seconds']} s, {facts['panels']} panels, {facts['mcp_sessions']} MCP sessions"
        )


@cli.command()
@click.option("--real", is_flag=True, help="With the Claude Code and Codex installed here, and their accounts.")
@click.option("--yes", is_flag=True, help="With --real: do not ask before turns are spent.")
def demo(real: bool, yes: bool) -> None:
    """Show a whole exchange: a Claude Code panel asks a Codex panel, and the answer comes back.

    Real broker, real shims, real MCP server. Without --real the two agents are stand-ins that speak the agents' own
    protocols and follow a script, so that no account is needed.
    """
    from broker.cli.demo import run_demo

    if real and not yes:
        click.confirm("This spends 2 turns of your Claude Code account and 1 of your Codex account. Go on?", abort=True)
    with _errors():
        sys.exit(run_demo(real=real, show=click.echo))


@contextmanager
def _errors() -> Iterator[None]:
    """The one place where an error becomes what a person reads."""
    try:
        yield
    except CrossAgentError as error:
        click.echo(f"cross-agent: {error} [{error.code}]", err=True)
        if error.next_step:
            click.echo(f"  {error.next_step}", err=True)
        sys.exit(1)
