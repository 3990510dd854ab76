"""Fixtures of the tests with real processes: an installation, both shims, scripted children, an editor."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.brokers import Brokers
from tests.integration.command_lines import Turns
from tests.integration.editor import Editor
from tests.integration.installation import LAUNCHERS, Installation, Shim, install, make_child
from tests.integration.processes import appears
from tests.integration.world import World

pytest.register_assert_rewrite("tests.integration.exchanges")

OpenPanel = Callable[..., Editor]
Attended = Callable[[Editor], None]

HEAVY = pytest.mark.parametrize("shim", ["claude", "codex", pytest.param("grok", marks=pytest.mark.full)], indirect=True)
"""For what takes seconds and concerns the byte path alone, which is one code for all agents."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a table about the byte path Grok has its first row in every run, and the rest in a full one."""
    seen = set()
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec") or item.callspec.params.get("shim") != "grok":
            continue
        table = (item.path, item.originalname)
        if table in seen:
            item.add_marker(pytest.mark.full)
        seen.add(table)


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("installation") / "root")


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    made = Brokers()
    yield made
    made.close()


@pytest.fixture
def world(request: pytest.FixtureRequest, home: Path) -> Iterator[World]:
    """A world whose broker is there; for a test that is marked as cold, one without."""
    cold = request.node.get_closest_marker("cold") is not None
    built = World(home, None if cold else request.getfixturevalue("brokers"))
    try:
        yield built
    finally:
        built.close()


@pytest.fixture
def turns(home: Path, brokers: Brokers) -> Iterator[Turns]:
    """A world in which turns may be started, and of which none is left behind."""
    built = Turns(home, brokers)
    try:
        yield built
        assert built.left() == []
    finally:
        built.close()


@pytest.fixture(params=LAUNCHERS)
def shim(request: pytest.FixtureRequest, installation: Installation, home: Path) -> Shim:
    """Each shim in turn, without a broker and with a state directory of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CROSS_AGENT_REAL_")}
    environment |= {"CROSS_AGENT_AUTOSTART": "off", "CROSS_AGENT_HOME": str(home)}
    return Shim(request.param, installation, environment)


@pytest.fixture
def open_panel(shim: Shim, tmp_path: Path) -> Iterator[OpenPanel]:
    """Starts ``children/<name>.py`` behind the shim; ``variables`` are added to its environment."""
    opened: list[Editor] = []

    def start(child: str, *, stdio: str = "sockets", **variables: str) -> Editor:
        command, environment = shim.panel(make_child(child, tmp_path))
        opened.append(Editor(command, environment | variables, stdio=stdio))
        return opened[-1]

    yield start
    for editor in opened:
        editor.close()


@pytest.fixture
def attended(home: Path) -> Callable[[Editor], None]:
    """Waits until a shim has loaded everything and observes: its bell for a broker hangs then."""

    def wait(editor: Editor) -> None:
        appears(home, f"run/wake/{editor.pid}@*")

    return wait
