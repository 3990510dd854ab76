"""What the real agent host does in a chat with a client that is not careful, each recorded for a stand-in to be held against.

No bridge takes part. A test that fails here says that the host of another release does something else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from tests.real.gates import Gate
from tests.real.host.client import turn_started
from tests.real.host.installation import HOW, installed
from tests.real.host.model import MODEL, OTHER_MODEL
from tests.real.host.protocol import ARCHIVED, IN_PROGRESS, INPUT_NEEDED, RefusedError
from tests.real.host.scene import mappings

if TYPE_CHECKING:
    from tests.real.host.scene import Scene

pytestmark = pytest.mark.skipif(installed() is None, reason=HOW)

VERSE: Final = "Answer in verse and in nothing else."


def test_a_turn_in_a_busy_chat_replaces_the_one_that_runs(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    # By time: nothing tells when the runtime has the second message in its queue, which takes it some milliseconds.
    first = window.say(chat, "[[slow 2 of the first, ]]")
    intruder = scene.second_window()
    second = intruder.say(intruder.open(chat.session), "[[say of the second]]")
    turn = window.wait_turn(chat, second)
    assert [each.id for each in window.turns(chat)] == [second]
    assert (turn.said, turn.text) == ("[[say of the second]]", "of the first,of the second")
    assert [action.kind for action in window.actions(chat.uri) if action.turn == first] == ["chat/turnStarted"]
    scene.recorder.keep()


def test_a_turn_that_comes_just_as_another_ends_is_ended_with_it(scene: Scene) -> None:
    window, chat, gate = scene.window, scene.chat, Gate(scene.directory)
    first = window.say(chat, f"[[slow {gate} of the first]]")
    gate.reached()
    second = window.say(chat, "[[say of the second]]")
    gate.release()
    turn = window.wait_turn(chat, second)
    answers = ("of the second", "of the firstof the second")
    if turn.text not in answers:  # the end of the first turn was taken for its end, and its answer belongs to no turn
        assert turn.text in ("", "of the first")
        stray = window.wait_action("chat/responsePart", channel=chat.uri, turn="")
        assert stray.action["part"]["content"] == "of the second"
    assert [each.id for each in window.turns(chat)] == [second]
    assert first not in {action.turn for action in window.actions(chat.uri) if action.kind != "chat/turnStarted"}
    scene.recorder.keep(compare=False)


def test_without_its_start_time_a_turn_wedges_the_chat_and_cannot_be_cancelled(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    before = len(window.frames)
    action = turn_started("[[say never]]", without=["startedAt"])
    window.dispatch(chat.uri, action)
    window.dispatch(chat.uri, {"type": "chat/turnCancelled", "turnId": action["turnId"], "duration": 0})
    window.settle()
    seen = window.look_at(chat.session, chat.uri)
    assert seen.active is not None
    assert seen.status & IN_PROGRESS
    assert window.actions(chat.uri, before) == []
    assert scene.said() == []
    # What frees it is what harms any other chat: a turn that takes its place.
    window.wait_turn(chat, window.say(chat, "[[say again]]"))
    assert [each.text for each in window.turns(chat)] == ["again"]
    scene.recorder.keep()


def test_without_an_origin_a_turn_wedges_the_chat_until_it_is_cancelled(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    action = turn_started("[[say never]]", without=["origin"])
    window.echo(window.dispatch(chat.uri, action))
    window.settle()
    assert window.look_at(chat.session, chat.uri).active is not None
    assert scene.said() == []
    window.cancel(chat, action["turnId"])
    assert window.wait_turn(chat, action["turnId"]).ended == "cancelled"
    assert window.wait_turn(chat, window.say(chat, "[[say again]]")).text == "again"
    scene.recorder.keep()


def test_what_the_host_does_not_take_it_drops_silently(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    window.settle()
    before = len(window.frames)
    window.dispatch(chat.uri, turn_started("", without=["message"]))
    window.dispatch(chat.session, turn_started("to the session"))
    window.dispatch("ahp-chat:/5f1b9d1e-0000-4000-8000-00000000000f", turn_started("to nobody"))
    window.settle()
    assert [action for action in window.actions(chat.uri, before) if action.client] == []
    assert window.look_at(chat.session, chat.uri).active is None
    with pytest.raises(RefusedError) as refused:
        window.session("copilotcli:/5f1b9d1e-0000-4000-8000-00000000000f")
    assert refused.value.code == -32001
    assert window.wait_turn(chat, window.say(chat, "[[say still here]]")).text == "still here"
    assert scene.said() == ["[[say still here]]"]
    scene.recorder.keep()


def test_an_action_that_the_host_does_not_know_is_echoed_all_the_same(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    echo = window.echo(window.dispatch(chat.uri, {"type": "chat/nothingOfThisName", "turnId": "x"}))
    assert echo.rejection is None
    assert window.look_at(chat.session, chat.uri).active is None
    assert window.wait_turn(chat, window.say(chat, "[[say still here]]")).text == "still here"
    scene.recorder.keep()


def test_a_turn_that_is_sent_twice_runs_twice(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    turn = window.say(chat, "[[say once]]")
    window.wait_turn(chat, turn)
    after = len(window.frames)
    window.echo(window.dispatch(chat.uri, turn_started("[[say once]]", turn=turn)))
    window.wait_turn(chat, turn, after)
    assert scene.said() == ["[[say once]]"] * 2
    assert [each.id for each in window.turns(chat)] == [turn, turn]
    scene.recorder.keep()


def test_a_number_that_is_used_twice_is_taken_twice(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    action = turn_started("[[say one]]")
    number = window.dispatch(chat.uri, action)
    window.wait_turn(chat, action["turnId"])
    after = len(window.frames)
    again = turn_started("[[say two]]")
    window.dispatch(chat.uri, again, number=number)
    assert window.echo(number, after).turn == again["turnId"]
    assert window.wait_turn(chat, again["turnId"]).text == "two"
    scene.recorder.keep()


def test_a_queued_message_waits_for_the_turn_that_runs(scene: Scene) -> None:
    window, chat, gate = scene.window, scene.chat, Gate(scene.directory)
    first = window.say(chat, f"[[slow {gate} of the first]]")
    gate.reached()
    pending = window.queue(chat, "[[say of the second]]")
    withdrawn = window.queue(chat, "[[say never]]")
    window.echo(window.dispatch(chat.uri, {"type": "chat/pendingMessageRemoved", "kind": "queued", "id": withdrawn}))
    assert [each["id"] for each in chat.queued] == [pending]
    after = len(window.frames)
    gate.release()
    assert window.wait_turn(chat, first).text == "of the first"
    begun = window.wait_action("chat/turnStarted", channel=chat.uri, after=after)
    assert (begun.action["queuedMessageId"], begun.client) == (pending, None)
    assert begun.turn not in (None, first, pending)
    assert window.wait_turn(chat, str(begun.turn)).text == "of the second"
    assert window.turns(chat)[-1].said == "[[say of the second]]"
    assert "[[say never]]" not in scene.said()
    scene.recorder.keep()


def test_a_queued_message_begins_at_once_in_an_idle_chat(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    window.wait_turn(chat, window.say(chat, "[[say one]]"))
    after = len(window.frames)
    pending = window.queue(chat, "[[say two]]")
    begun = window.wait_action("chat/turnStarted", channel=chat.uri, after=after)
    assert begun.action["queuedMessageId"] == pending
    assert window.wait_turn(chat, str(begun.turn)).text == "two"
    scene.recorder.keep()


def test_an_archived_session_takes_a_turn_and_fails_it(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    window.wait_turn(chat, window.say(chat, "[[say one]]"))
    window.archive(chat.session)
    assert window.session(chat.session)["status"] & ARCHIVED
    turn = window.wait_turn(chat, window.say(chat, "[[say never]]"))
    assert turn.error is not None
    assert (turn.ended, turn.error["errorType"]) == ("error", "archived")
    assert scene.said() == ["[[say one]]"]
    window.archive(chat.session, archived=False)
    assert window.wait_turn(chat, window.say(chat, "[[say back]]")).text == "back"
    scene.recorder.keep()


def test_the_chat_of_a_subagent_is_read_only(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    task = {"description": "look", "prompt": "[[say of the subagent]]", "agent_type": "general-purpose", "name": "look"}
    turn = window.say(chat, f"[[tool task {json.dumps({**task, 'mode': 'sync'})} ;; say of the parent]]")
    added = window.wait_action("session/chatAdded", channel=chat.session)
    assert window.wait_turn(chat, turn).text == "of the parent"
    summary = added.action["summary"] if "summary" in added.action else added.action["chat"]
    below = window.look_at(chat.session, summary["resource"])
    assert below.interactivity == "read-only"
    begun = window.say(below, "[[say never]]")
    ended = window.wait_turn(below, begun)
    assert ended.error is not None
    assert ended.error["errorType"] == "readOnly"
    scene.recorder.keep()


def test_a_side_chat_has_a_session_of_its_own_and_may_have_a_copy_of_the_default_chats_mapping(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    turn = window.say(chat, "[[say one]]")
    window.wait_turn(chat, turn)
    side = window.side_chat(chat, turn)
    assert window.wait_turn(side, window.say(side, "[[say aside]]")).text == "aside"
    assert [each["origin"]["kind"] for each in window.session(chat.session)["chats"]] == ["user", "sideChat"]
    (own,) = mappings(scene.host, chat.session.partition(":/")[2], "defaultChatProviderData")
    (its,) = mappings(scene.host, side.uri.partition("://")[2].replace("/", "-"), "agentHost.chatProviderData")
    assert its != own
    # It is written some time after the chat has begun, mostly before its first turn is over.
    assert mappings(scene.host, side.uri.partition("://")[2].replace("/", "-"), "defaultChatProviderData") in ([], [own])
    scene.recorder.happened("in the side chat's own database", defaultChatProviderData="of the default chat, or not yet")
    scene.recorder.keep()


def test_a_custom_agent_lasts_for_one_turn_a_model_and_its_options_stay(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    agents = scene.host.cwd / ".github" / "agents"
    agents.mkdir(parents=True)
    (agents / "poet.agent.md").write_text(f"---\nname: poet\ndescription: writes verse\n---\n{VERSE}\n", encoding="utf-8")
    options = {"id": MODEL, "config": {"thinkingLevel": "high"}}
    poet = {"uri": (agents / "poet.agent.md").as_uri()}
    window.wait_agent(chat.session, poet["uri"])
    for said in ({"model": options, "agent": poet}, {}, {"model": {"id": OTHER_MODEL}, "agent": poet}, {}):
        action = turn_started("what now", without=["model"])
        window.dispatch(chat.uri, {**action, "message": {**action["message"], **said}})
        window.wait_turn(chat, action["turnId"])
    asked = [(each.body["modelId"], each.body["reasoningEffort"], VERSE in str(each.body)) for each in scene.model.requests]
    assert asked == [("first", "high", True), ("first", "high", False), ("second", "high", True), ("second", "high", False)]
    draft = {"text": "half a", "origin": {"kind": "user"}, "model": options, "agent": poet}
    window.echo(window.dispatch(chat.uri, {"type": "chat/draftChanged", "draft": draft}))
    assert window.call("subscribe", {"channel": chat.uri})["snapshot"]["state"]["draft"] == draft
    scene.recorder.keep()


def test_a_tool_that_waits_for_the_persons_word_is_told_to_every_window(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    call = json.dumps({"command": "touch allowed", "description": "make a file"})
    turn = window.say(chat, f"[[tool bash {call} ;; tool bash {call.replace('allowed', 'denied')} ;; say done]]")
    request = window.wait_approval(chat)
    other = scene.second_window()
    seen = other.session(chat.session)
    assert seen["status"] & INPUT_NEEDED == INPUT_NEEDED
    assert [each["id"] for each in seen["inputNeeded"]] == [request["id"]]
    assert not (scene.host.cwd / "allowed").exists()
    after = len(window.frames)
    window.answer(chat, request, approved=True)
    window.answer(chat, window.wait_approval(chat, after), approved=False)
    assert window.wait_turn(chat, turn).text == "done"
    assert [(scene.host.cwd / name).exists() for name in ("allowed", "denied")] == [True, False]
    scene.recorder.keep()


def test_a_model_that_there_is_not_ends_the_turn(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    turn = window.wait_turn(chat, window.say(chat, "hello", model={"id": "nobodys/model"}))
    assert turn.error is not None
    assert turn.error["errorType"] == "modelSelectionFailed"
    assert scene.said() == []
    scene.recorder.keep()


@pytest.mark.full
def test_a_model_that_fails_is_asked_six_times(scene: Scene) -> None:
    window, chat = scene.window, scene.chat
    turn = window.wait_turn(chat, window.say(chat, "[[fail broken]]"))
    assert turn.error is not None
    assert turn.error["errorType"] == "query"
    assert "broken" in turn.error["message"]
    assert len(scene.model.requests) == 6
    scene.recorder.keep()
