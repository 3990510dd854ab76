"""How connections to the real agent host begin and end: hosts that die, two of them, tokens, versions; each recorded.

No bridge takes part. A test that fails here says that the host of another release does something else.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from websockets.exceptions import InvalidStatus

from tests.real.gates import Gate
from tests.real.host.client import HostWindow
from tests.real.host.installation import HOW, installed
from tests.real.host.process import Endpoint
from tests.real.host.protocol import RefusedError
from tests.real.host.scene import events_of_turns

if TYPE_CHECKING:
    from pathlib import Path

    from tests.real.host.process import AgentHost
    from tests.real.host.scene import Scene

pytestmark = pytest.mark.skipif(installed() is None, reason=HOW)


def test_two_hosts_on_one_directory_both_take_the_session(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    window.wait_turn(chat, window.say(chat, "[[say of the first host]]"))
    other = scene.second_host()
    assert len(list(scene.host.entries.glob("*.json"))) == 2
    elsewhere = scene.second_window(other.endpoint)
    elsewhere.wait_models()
    there = elsewhere.open(chat.session)
    assert there.uri == chat.uri
    assert [each.text for each in there.turns] == ["of the first host"]
    assert there.turns[0].id == events_of_turns(scene.host, chat.session)[chat.turns[0].id]
    assert elsewhere.wait_turn(there, elsewhere.say(there, "[[say of the second host]]")).text == "of the second host"
    window.settle()
    assert [each.text for each in window.turns(chat)] == ["of the first host"]
    holders = sorted(psutil.Process(pid).ppid() for pid in runtimes(scene.host))
    assert holders == sorted([scene.host.process.pid, other.process.pid])
    scene.recorder.happened("the session is held by", runtimes=len(holders))
    scene.recorder.keep()


def test_entries_of_hosts_that_have_ended_stay(scene: Scene) -> None:
    window = scene.window
    killed = scene.host.entry_file
    scene.host.kill()
    window.wait_end()
    assert killed.exists()
    second = scene.second_host()
    second.terminate()
    assert second.entry_file.exists()
    third = scene.second_host()
    entries = sorted(scene.host.entries.glob("*.json"))
    assert entries == sorted([killed, second.entry_file, third.entry_file])
    assert [file.stat().st_mode & 0o777 for file in [*entries, scene.host.entries]] == [0o600] * 3 + [0o700]
    assert not psutil.pid_exists(Endpoint.read(killed).pid) or psutil.Process(Endpoint.read(killed).pid).status() == "zombie"
    with pytest.raises(OSError, match=r"refused|No such file"):
        HostWindow(Endpoint.read(killed))
    scene.recorder.happened("entries", of_killed="stays", of_terminated="stays", entry=shape(third.entry_file))
    scene.recorder.keep()


def test_a_turn_whose_host_is_killed_is_interrupted_or_was_never_there(scene: Scene) -> None:
    window, chat, gate = scene.window, scene.chat, Gate(scene.directory)
    window.wait_turn(chat, window.say(chat, "[[say one]]"))
    turn = window.say(chat, f"[[slow {gate} two]]")
    gate.reached()
    scene.host.kill()
    window.wait_end()
    scene.recorder.happened("the host is killed, and another one started")
    again = scene.second_window(scene.second_host().endpoint)
    again.wait_models()
    there = again.open(chat.session)
    # Whatever a host reads back has the ids of the runtime's events; which was which stands in the session's own database.
    begun = events_of_turns(scene.host, chat.session)
    assert (there.turns[0].ended, there.turns[0].id) == ("complete", begun[chat.turns[0].id])
    assert turn not in {each.id for each in there.turns}
    assert again.wait_turn(there, again.say(there, "[[say three]]")).text == "three"
    interrupted = there.turns[1:-1]
    # The echo has come and the model was asked, and all the same there may be no trace of the turn: the runtime writes late.
    if interrupted:
        (found,) = interrupted
        assert found.error is not None
        assert (found.ended, found.error["errorType"]) == ("error", "executionInterrupted")
        assert found.said == f"[[slow {gate} two]]"
        assert begun[turn] in (None, found.id)
        scene.recorder.keep(compare=False)


def test_a_queued_message_is_gone_with_its_host(scene: Scene) -> None:
    window, chat, gate = scene.window, scene.chat, Gate(scene.directory)
    window.wait_turn(chat, window.say(chat, "[[say one]]"))
    window.say(chat, f"[[slow {gate} two]]")
    gate.reached()
    window.queue(chat, "[[say never]]")
    scene.host.terminate()
    window.wait_end()
    scene.recorder.happened("the host is told to end, and another one started")
    again = scene.second_window(scene.second_host().endpoint)
    again.wait_models()
    there = again.open(chat.session)
    assert (there.queued, there.active) == ([], None)
    assert again.wait_turn(there, again.say(there, "[[say three]]")).text == "three"
    assert "[[say never]]" not in scene.said()
    scene.recorder.keep(compare=False)  # whether the turn that ran is still there is chance


def test_only_a_window_that_shows_a_session_is_its_client(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    observer = scene.second_window()
    observer.open(chat.session)
    assert observer.session(chat.session)["activeClients"] == []
    window.attach(chat.session)
    assert [each["clientId"] for each in observer.session(chat.session)["activeClients"]] == [window.client]
    window.leave(chat.session)
    window.settle()
    assert observer.session(chat.session)["activeClients"] == []
    scene.recorder.keep()


@pytest.mark.full
def test_a_window_that_is_gone_stays_a_client_for_half_a_minute(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    observer = scene.second_window()
    window.attach(chat.session)
    observer.open(chat.session)
    began, after = time.monotonic(), len(observer.frames)
    window.close()
    assert observer.session(chat.session)["activeClients"]
    observer.wait_action("session/activeClientRemoved", channel=chat.session, after=after, timeout=60)
    assert time.monotonic() - began > 25
    assert observer.session(chat.session)["activeClients"] == []
    scene.recorder.keep()


def test_a_wrong_token_is_forbidden(scene: Scene) -> None:
    for token in ("", "wrong"):
        with pytest.raises(InvalidStatus) as refused:
            HostWindow(scene.host.endpoint, token=token)
        response = refused.value.response
        body = bytes(response.body or b"").decode()
        assert (response.status_code, body) == (403, "Forbidden")
        scene.recorder.happened("refused", token=token or "empty", status=response.status_code, body=body)
    scene.recorder.keep()


def test_another_version_is_refused_by_naming_its_own(scene: Scene) -> None:
    for versions in (("0.10.0",), ("1.0.0", "0.10.0"), ("0.8.0",)):
        with pytest.raises(RefusedError, match=re.escape("server accepts ^0.9.0")) as refused:
            HostWindow(scene.host.endpoint, versions=versions)
        scene.recorder.happened("refused", offered=versions, code=refused.value.code, message=refused.value.message)
    with HostWindow(scene.host.endpoint, versions=("0.10.0", "0.9.0")) as window:
        assert window.initialized["protocolVersion"] == "0.9.0"
    scene.recorder.keep()


def runtimes(host: AgentHost) -> list[int]:
    """The pids of the runtimes that say that they have a session open."""
    return [int(file.name.split(".")[1]) for file in host.home.glob(".copilot/session-state/*/inuse.*.lock")]


def shape(file: Path) -> dict[str, str]:
    """The fields of an entry, without what they hold."""
    return {name: type(value).__name__ for name, value in json.loads(file.read_text(encoding="utf-8")).items()}
