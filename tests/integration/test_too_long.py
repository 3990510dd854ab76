"""Texts that an agent does not take: an answer is cut and says where all of it is, a message is refused (DE-05)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.wire import Inject, SessionState, StageName
from shims.agent import agent
from tests.integration.panels import CodexPanel
from tests.integration.scripted_shim import ScriptedShim, Step
from tests.integration.world import World

LONGEST = agent("codex").longest or 0


@pytest.fixture
def talkative(world: World, tmp_path: Path) -> Iterator[ScriptedShim]:
    """A Claude session that answers with more than Codex takes."""

    def script(number: int, order: Inject) -> list[Step]:
        del number
        answer = f"It begins here. {'words ' * 200_000}{order.token}"
        finished = {"status": "completed", "text": answer}
        return [(StageName.WRITTEN, {}), (StageName.TAKEN, {"session": "s"}), (StageName.FINISHED, finished)]

    world.mcp().shake_hands()
    world.broker()
    shim = ScriptedShim(world.home, tmp_path, SessionState("s", opened=1.0), script, agent="claude")
    shim.wait_welcome()
    yield shim
    shim.close()


@pytest.mark.requirement("DE-05", "DE-11", "DE-41")
def test_an_answer_that_codex_would_refuse_comes_cut(world: World, talkative: ScriptedShim) -> None:
    sender = world.codex()
    assert isinstance(sender, CodexPanel)
    sender.registered()
    sender.send_to(talkative, "tell me everything")
    receipt = sender.wait_receipt()
    reply = sender.wait_reply("It begins here.")
    assert LONGEST - 10 < len(reply) <= LONGEST
    assert "CUT: the answer has 1,200," in reply
    assert f'bridge_status with delivery_id "{receipt["delivery_id"]}"' in reply
    assert reply.splitlines()[-1].startswith("[bridge] Nobody waits for this turn.")


@pytest.mark.requirement("DE-05")
def test_a_message_that_is_too_long_with_what_is_quoted_in_it_is_refused(world: World) -> None:
    target = world.codex()
    target.registered()
    client = world.mcp()
    client.shake_hands()
    refused = client.call("send_to_codex", message="request:\n" * 110_000, session_id=target.session)
    assert (refused["code"], refused["retry_safe"]) == ("message_too_long", True)
    assert "1,210,000 characters, and Codex takes 1,044,480" in refused["error"]
    assert world.deliveries() == []
    assert client.call("send_to_codex", message="requests\n" * 110_000, session_id=target.session)["ok"]
    world.finished()
    assert target.handed_over("requests") == 1
