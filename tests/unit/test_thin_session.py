"""The thin session without a process: what it answers itself, what it says again, and what it keeps from its client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server import handshake
from mcp_server.packing import LONGEST_JSON, LONGEST_TEXT, unpack
from mcp_server.session import CALL_DEADLINE, CANCELLED_FOR, VERSION_KEY, ThinSession

Json = dict[str, Any]

ANSWERS = handshake.read()
META = {VERSION_KEY: handshake.MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
WHY: Json = {"ok": False, "code": "no_broker", "error": "no broker is there", "next_step": "Start one.", "retry_safe": True}
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


def line(method: str, identifier: object = None, **parameters: object) -> bytes:
    message: Json = {"jsonrpc": "2.0", "method": method, "params": parameters}
    return json.dumps(message if identifier is None else {**message, "id": identifier}).encode()


def initialize(version: str = "2025-11-25", identifier: object = 0) -> bytes:
    return line("initialize", identifier, protocolVersion=version, capabilities={}, clientInfo={"name": "t", "version": "1"})


def call(identifier: object, tool: str = "send_to_codex", **more: object) -> bytes:
    return line("tools/call", identifier, name=tool, arguments={"message": "x"}, **more)


def cancel(identifier: object) -> bytes:
    return line("notifications/cancelled", requestId=identifier)


def listen(identifier: object) -> bytes:
    return line("subscriptions/listen", identifier, notifications={"toolsListChanged": True}, _meta=META)


def acknowledgement(identifier: object) -> bytes:
    return line("notifications/subscriptions/acknowledged", _meta={"io.modelcontextprotocol/subscriptionId": identifier})


def answer(identifier: object, text: str = "done") -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identifier, "result": {"text": text}}).encode()


class Client:
    """A session with its client's ears: ``heard`` is what the client got, ``passed`` what a broker got."""

    def __init__(self) -> None:
        self.session = ThinSession(ANSWERS)
        self.heard: list[Json] = []
        self.passed: list[bytes] = []

    def say(self, *lines: bytes, now: float = 0.0) -> None:
        for said in lines:
            answers, forward = self.session.from_client(said, now)
            self.heard += [json.loads(each) for each in answers]
            self.passed += forward

    def broker_comes(self, now: float = 0.0) -> list[bytes]:
        """What a new broker is told; the earlier one's mail is over."""
        self.passed = self.session.connected(now)
        return self.passed

    def broker_says(self, *lines: bytes) -> None:
        passed = [self.session.from_broker(said) for said in lines]
        self.heard += [json.loads(each) for each in passed if each is not None]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def shaken(client: Client) -> Client:
    """Its handshake is over and a broker serves it."""
    client.say(initialize(), INITIALIZED)
    client.broker_comes()
    client.broker_says(answer(0))
    client.heard.clear()
    client.passed.clear()
    return client


# answered beforehand


@pytest.mark.requirement("MC-06", "MC-08")
@pytest.mark.parametrize("version", handshake.HANDSHAKE_VERSIONS)
@pytest.mark.parametrize("identifier", [0, 7, "a", "7"])
def test_the_handshake_needs_no_broker(client: Client, version: str, identifier: object) -> None:
    client.say(initialize(version, identifier), INITIALIZED, line("ping", 8), line("tools/list", 9))
    assert client.heard == [
        {"jsonrpc": "2.0", "id": identifier, "result": ANSWERS["initialize"][version]},
        {"jsonrpc": "2.0", "id": 8, "result": {}},
        {"jsonrpc": "2.0", "id": 9, "result": ANSWERS["tools"][version]},
    ]
    assert client.session.next_deadline() is None


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize("asked", ["1999-01-01", "2999-01-01", "", handshake.MODERN])
def test_a_version_that_is_not_spoken_is_answered_with_the_newest_of_its_era(client: Client, asked: str) -> None:
    client.say(initialize(asked), line("tools/list", 2))
    newest = max(handshake.HANDSHAKE_VERSIONS)
    assert client.heard[0]["result"] == ANSWERS["initialize"][newest]
    assert client.heard[1]["result"] == ANSWERS["tools"][newest]


@pytest.mark.requirement("MC-06", "MC-08")
def test_discovery_and_tools_of_the_era_without_a_handshake(client: Client) -> None:
    client.say(line("server/discover", 1, _meta=META), line("tools/list", 2, _meta=META))
    assert [heard["result"] for heard in client.heard] == [ANSWERS["discover"], ANSWERS["tools"][handshake.MODERN]]


@pytest.mark.requirement("MC-06")
@pytest.mark.parametrize(
    "question",
    [
        line("tools/list", 5),
        line("server/discover", 5),
        line("server/discover", 5, _meta={VERSION_KEY: "2999-01-01"}),
        line("ping", 5, _meta=META),
        line("initialize", 5, _meta=META),
        line("prompts/list", 5),
    ],
    ids=["list before the handshake", "bare discover", "future discover", "modern ping", "modern initialize", "prompts"],
)
def test_what_only_the_sdk_can_answer_goes_to_the_broker(client: Client, question: bytes) -> None:
    client.broker_comes()
    client.say(question)
    assert (client.heard, client.passed) == ([], [question])
    client.broker_says(answer(5))
    assert client.heard == [json.loads(answer(5))]


# said again to a new broker


@pytest.mark.requirement("MC-01", "MC-30")
def test_a_new_broker_hears_the_handshake_and_what_is_open_in_order(client: Client) -> None:
    client.say(initialize(), INITIALIZED, listen("s"), call(1), call(2))
    told = [initialize(), INITIALIZED, listen("s"), call(1), call(2)]
    assert client.passed == []
    assert client.broker_comes() == told
    client.broker_says(answer(0), answer(1))
    client.session.disconnected()
    assert client.broker_comes() == [*told[:3], call(2)]


@pytest.mark.requirement("MC-30")
def test_nothing_is_said_twice_to_one_broker(shaken: Client) -> None:
    shaken.say(call(1))
    shaken.say(call(2))
    assert shaken.passed == [call(1), call(2)]


@pytest.mark.requirement("MC-30")
def test_answers_to_what_was_answered_already_are_swallowed_at_every_broker(client: Client) -> None:
    client.say(initialize(), INITIALIZED)
    assert len(client.heard) == 1
    for _ in range(3):
        client.broker_comes()
        client.broker_says(answer(0))
        client.session.disconnected()
    assert len(client.heard) == 1


@pytest.mark.requirement("MC-30")
def test_a_broker_that_died_before_it_answered_the_handshake_leaves_nothing_to_swallow_but_the_next_ones(client: Client) -> None:
    client.say(initialize(), INITIALIZED, call(1))
    client.broker_comes()
    client.session.disconnected()
    client.broker_comes()
    client.broker_says(answer(0), answer(1))
    assert [heard["id"] for heard in client.heard] == [0, 1]


@pytest.mark.requirement("MC-30")
def test_a_call_has_one_answer_whichever_broker_gives_it(shaken: Client) -> None:
    shaken.say(call(1))
    shaken.session.disconnected()
    shaken.broker_comes()
    shaken.broker_says(answer(0), answer(1, "first"), answer(1, "second"))
    assert [heard["result"]["text"] for heard in shaken.heard] == ["first"]


@pytest.mark.requirement("MC-06", "MC-30")
def test_a_subscription_is_acknowledged_once_and_stays(client: Client) -> None:
    client.say(listen("s"))
    for _ in range(3):
        assert client.broker_comes() == [listen("s")]
        client.broker_says(acknowledgement("s"))
        client.session.disconnected()
    assert client.heard == [json.loads(acknowledgement("s"))]


@pytest.mark.requirement("MC-30")
def test_an_acknowledgement_that_the_first_broker_owed_comes_from_the_second(client: Client) -> None:
    client.say(listen(3))
    client.broker_comes()
    client.session.disconnected()
    client.broker_comes()
    client.broker_says(acknowledgement(3))
    assert client.heard == [json.loads(acknowledgement(3))]


@pytest.mark.requirement("MC-30")
def test_a_subscription_that_was_cancelled_may_be_opened_anew_with_its_id(client: Client) -> None:
    client.broker_comes()
    client.say(listen("s"))
    client.broker_says(acknowledgement("s"))
    client.say(cancel("s"))
    client.session.disconnected()
    assert client.broker_comes() == []
    client.say(listen("s"))
    client.session.disconnected()
    client.broker_comes()
    client.broker_says(acknowledgement("s"))
    assert client.heard == [json.loads(acknowledgement("s"))] * 2


@pytest.mark.requirement("MC-06")
def test_a_subscription_that_the_broker_ends_is_over(client: Client) -> None:
    client.broker_comes()
    client.say(listen("s"))
    client.broker_says(acknowledgement("s"), answer("s"))
    assert client.heard[-1]["id"] == "s"
    client.session.disconnected()
    assert client.broker_comes() == []


@pytest.mark.requirement("MC-06")
def test_a_subscription_has_no_deadline(client: Client) -> None:
    client.say(listen("s"))
    assert client.session.next_deadline() is None
    assert client.session.unavailable(WHY) == []


# cancelled


@pytest.mark.requirement("MC-06", "MC-33")
def test_a_cancelled_call_is_owed_nothing(shaken: Client) -> None:
    shaken.say(call(1), cancel(1))
    assert shaken.passed == [call(1), cancel(1)]
    assert shaken.session.next_deadline() is None
    shaken.broker_says(answer(1))
    shaken.session.disconnected()
    assert call(1) not in shaken.broker_comes()
    assert shaken.session.overdue(CALL_DEADLINE * 2, WHY) == []
    assert shaken.heard == []


@pytest.mark.requirement("MC-09")
@pytest.mark.parametrize("told", [True, False], ids=["to a broker that died", "to nobody"])
def test_every_broker_hears_of_a_cancellation_before_the_call_that_may_repeat_it(shaken: Client, told: bool) -> None:
    shaken.say(call(1), now=10)
    if told:
        shaken.say(cancel(1), now=20)
        assert shaken.passed == [call(1), cancel(1)]
    shaken.session.disconnected()
    if not told:
        shaken.say(cancel(1), now=20)
    shaken.say(call(2), now=30)
    expected = [initialize(), INITIALIZED, cancel(1), call(2)]
    assert shaken.broker_comes(now=30) == expected
    assert shaken.broker_comes(now=20 + CANCELLED_FOR - 0.1) == expected
    assert shaken.broker_comes(now=20 + CANCELLED_FOR) == [initialize(), INITIALIZED, call(2)]


@pytest.mark.requirement("MC-06")
def test_ids_that_look_alike_are_two(shaken: Client) -> None:
    shaken.say(call(1), call("1"), cancel("1"))
    shaken.broker_says(answer("1"), answer(1))
    assert [heard["id"] for heard in shaken.heard] == [1]


# overdue and unavailable


def result_of(raw: bytes) -> Json:
    result: Json = json.loads(raw)["result"]
    assert result["isError"] is True
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return result


@pytest.mark.requirement("MC-05", "MC-31")
def test_only_what_is_overdue_is_given_up(shaken: Client) -> None:
    shaken.say(call(1), now=10)
    shaken.say(call(2), now=20)
    assert shaken.session.next_deadline() == 10 + CALL_DEADLINE
    assert shaken.session.overdue(10 + CALL_DEADLINE - 0.1, WHY) == []
    (given,) = shaken.session.overdue(10 + CALL_DEADLINE, WHY)
    assert json.loads(given)["id"] == 1
    shaken.broker_says(answer(1), answer(2))
    assert [heard["id"] for heard in shaken.heard] == [2]


@pytest.mark.requirement("MC-05", "MC-08")
@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
def test_what_no_broker_had_may_be_repeated(client: Client, modern: bool) -> None:
    if not modern:
        client.say(initialize(), INITIALIZED)
    client.say(call(1, _meta=META) if modern else call(1))
    (given,) = client.session.unavailable(WHY)
    result = result_of(given)
    assert result["structuredContent"] == WHY
    assert result.get("resultType") == ("complete" if modern else None)
    assert client.session.next_deadline() is None


@pytest.mark.requirement("MC-05", "MC-31")
@pytest.mark.parametrize("again", [False, True], ids=["at once", "to a later broker"])
def test_what_a_broker_may_have_done_is_not_safe_to_repeat(client: Client, again: bool) -> None:
    client.say(initialize(), INITIALIZED)
    if again:
        client.say(call(1))
        client.broker_comes()
    else:
        client.broker_comes()
        client.say(call(1))
    client.session.disconnected()
    (given,) = client.session.unavailable(WHY)
    told = result_of(given)["structuredContent"]
    assert (told["code"], told["retry_safe"]) == ("no_broker", False)
    assert told["error"].startswith("no broker is there; ")
    assert told["next_step"].startswith("Start one. ")
    assert "bridge_status" in told["next_step"]


@pytest.mark.requirement("MC-05")
@pytest.mark.parametrize("tool", ["bridge_status", "list_agent_sessions"])
def test_a_question_may_always_be_repeated(shaken: Client, tool: str) -> None:
    shaken.say(call(1, tool))
    (given,) = shaken.session.overdue(CALL_DEADLINE, WHY)
    assert result_of(given)["structuredContent"] == WHY


@pytest.mark.requirement("MC-05")
def test_a_request_that_is_no_call_gets_an_error(client: Client) -> None:
    client.say(line("prompts/list", "p"))
    (given,) = client.session.unavailable(WHY)
    assert json.loads(given) == {"jsonrpc": "2.0", "id": "p", "error": {"code": -32603, "message": WHY["error"]}}


# long lines (EN-25)


@pytest.mark.requirement("DE-05", "EN-25")
@pytest.mark.parametrize(
    "character", ["x", "\u6f22", "\U0001f600", "\x01", '"'], ids=["ascii", "cjk", "emoji", "control", "quote"]
)
@pytest.mark.parametrize("escaped", [False, True])
def test_a_message_of_the_greatest_size_goes_behind_its_line(shaken: Client, character: str, escaped: bool) -> None:
    arguments = {"message": character * 1_000_000}
    message: Json = {"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": {"name": "x", "arguments": arguments}}
    shaken.say(json.dumps(message, ensure_ascii=escaped).encode())
    head, text = unpack(shaken.passed[0])
    assert text == character * 1_000_000
    message["params"]["arguments"]["message"] = ""
    assert json.loads(head) == message
    assert shaken.broker_comes()[-1:] == [b"\n".join((head, text.encode()))], "it is said again as it was"
    shaken.broker_says(answer(1))
    assert [heard["id"] for heard in shaken.heard] == [1]


@pytest.mark.requirement("EN-25", "MC-07")
def test_half_a_character_in_a_long_message_is_replaced(shaken: Client) -> None:
    shaken.say(line("tools/call", 1, name="x", arguments={"message": "x" * LONGEST_JSON + "\ud83d"}))
    assert unpack(shaken.passed[0])[1] == "x" * LONGEST_JSON + "?"


@pytest.mark.requirement("MC-05", "MC-07", "DE-05", "EN-25")
@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "modern"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"message": "x" * (LONGEST_TEXT + 1)}, "message_too_long"),
        ({"message": "x", "session_id": "x" * LONGEST_JSON}, "bad_argument"),
        ({"message": ["x"] * LONGEST_JSON}, "bad_argument"),
        ([[]] * LONGEST_JSON, "bad_argument"),
    ],
    ids=["text", "another argument", "no text", "no arguments"],
)
def test_a_call_over_the_bound_is_refused_here(client: Client, modern: bool, arguments: object, code: str) -> None:
    if not modern:
        client.say(initialize(), INITIALIZED)
    client.broker_comes()
    client.passed.clear()
    client.heard.clear()
    client.say(line("tools/call", 1, name="send_to_codex", arguments=arguments))
    assert client.passed == []
    result = client.heard[0]["result"]
    assert (result["structuredContent"]["code"], result["structuredContent"]["retry_safe"]) == (code, True)
    assert result.get("resultType") == ("complete" if modern else None)
    assert client.session.next_deadline() is None
    client.say(call(2))
    assert client.passed == [call(2)]


@pytest.mark.requirement("EN-25")
def test_what_is_over_the_bound_and_no_call_goes_no_further(shaken: Client) -> None:
    long = "x" * LONGEST_JSON
    shaken.say(line("prompts/list", 1, cursor=long), initialize(long, 2), answer(3, long), line("notifications/x", a=long))
    shaken.say(b"x" + long.encode())
    assert [(heard["id"], heard["error"]["code"]) for heard in shaken.heard] == [(1, -32600), (2, -32600)]
    assert shaken.passed == []
    assert shaken.session.next_deadline() is None


# what is no request


@pytest.mark.requirement("MC-07")
@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"  \r",
        b"garbage",
        b"\xff\xfe\x00",
        b"null",
        b"7",
        b"[]",
        b"[" * 100_000,
        b"1" * 10_000,
        b'{"jsonrpc":"2.0","id":' + b"1" * 10_000 + b',"method":"ping"}',
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"bridge_status"}}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":[]}}}',
        b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    ],
    ids=lambda said: said[:60].decode(errors="replace") if isinstance(said, bytes) else str(said),
)
def test_what_is_no_request_is_owed_nothing(client: Client, said: bytes, connected: bool) -> None:
    if connected:
        client.broker_comes()
    client.say(said)
    assert client.heard == []
    assert client.session.next_deadline() is None
    client.say(initialize())
    assert client.heard[0]["id"] == 0


MALFORMED: dict[bytes, int] = {
    b'{"id":5,"method":"tools/call","params":{"name":"bridge_status"}}': -32600,
    b'{"jsonrpc":"1.0","id":5,"method":"tools/call","params":{"name":"bridge_status"}}': -32600,
    b'{"jsonrpc":2.0,"id":5,"method":"tools/call","params":{"name":"bridge_status"}}': -32600,
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[]}': -32600,
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":"x"}': -32600,
    b'{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":7}': -32600,
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{},"result":{}}': -32600,
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{},"error":{"code":1,"message":"x"}}': -32600,
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"send_to_codex","arguments":{"message":"\xe4"}}}': -32700,
}
"""Requests that are none, as clients get them wrong."""


@pytest.mark.requirement("MC-07")
@pytest.mark.parametrize("connected", [False, True])
@pytest.mark.parametrize(("said", "code"), MALFORMED.items(), ids=lambda value: str(value)[-50:])
def test_a_malformed_request_is_refused_at_once_and_goes_no_further(
    client: Client, said: bytes, code: int, connected: bool
) -> None:
    if connected:
        client.broker_comes()
    client.say(said)
    (heard,) = client.heard
    assert (heard["jsonrpc"], heard["id"], heard["error"]["code"]) == ("2.0", 5, code)
    assert client.session.next_deadline() is None
    assert said not in (client.passed or client.broker_comes())


@pytest.mark.requirement("MC-06", "MC-07")
@pytest.mark.parametrize("method", ["initialize", "ping", "tools/list"])
def test_empty_parameters_that_are_a_list_are_let_pass_where_nothing_is_read_of_them(shaken: Client, method: str) -> None:
    shaken.say(f'{{"jsonrpc":"2.0","id":5,"method":"{method}","params":[]}}'.encode())
    assert "result" in shaken.heard[0]


@pytest.mark.requirement("MC-07")
@pytest.mark.parametrize("version", [{"a": 1}, [1], 7, True], ids=str)
@pytest.mark.parametrize("method", ["initialize", "ping", "tools/list", "server/discover", "tools/call"])
def test_a_version_that_is_no_string_is_the_sdks_to_refuse(shaken: Client, method: str, version: object) -> None:
    said = line(method, 5, _meta={VERSION_KEY: version})
    shaken.say(said)
    assert (shaken.heard, shaken.passed) == ([], [said])


@pytest.mark.requirement("MC-07")
def test_half_a_surrogate_pair_goes_back_as_it_came(client: Client) -> None:
    client.say(rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}', rb'{"jsonrpc":"2.0","id":"\ud801","method":"tools/call"}')
    (given,) = client.session.unavailable(WHY)
    assert [heard["id"] for heard in client.heard] == ["\ud800"]
    assert rb'"\ud801"' in given


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_METHODS = st.sampled_from(
    ["initialize", "ping", "tools/list", "tools/call", "server/discover", "subscriptions/listen", "notifications/cancelled"]
)
_PARAMETERS = _JSON | st.fixed_dictionaries(
    {}, optional={"_meta": _JSON | st.fixed_dictionaries({VERSION_KEY: _JSON}), "protocolVersion": _JSON, "requestId": _JSON}
)
_MESSAGES = st.fixed_dictionaries({"method": _METHODS | _JSON}, optional={"id": _JSON, "params": _PARAMETERS, "jsonrpc": _JSON})


@pytest.mark.requirement("MC-07")
@given(st.lists(_MESSAGES | _JSON, max_size=8), st.booleans())
def test_no_client_ends_a_session(messages: list[object], connected: bool) -> None:
    client = Client()
    if connected:
        client.broker_comes()
    client.say(*(json.dumps(message).encode() for message in messages))
    client.session.disconnected()
    client.broker_comes()
    for given_up in client.session.unavailable(WHY):
        json.loads(given_up)
    assert client.session.next_deadline() is None
