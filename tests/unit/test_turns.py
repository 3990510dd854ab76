"""Started turns without a process: who may start one, with what, and what its end means."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.baseline import carries_credentials
from broker.deliveries import Attempt, Delivery, Event, State
from broker.turns import started, verdict
from broker.turns.allowed import allowed, find_program
from broker.turns.environment import bounded_path, child_environment, in_memory, kept
from broker.turns.files import DONE, FORBIDDEN, TOLD, Ended, Run, TurnFiles
from broker.turns.program import _quotes
from broker.turns.started import StartedTurns
from broker.turns.unwritten import Unwritten
from broker.turns.verdict import Fate
from shims.agent import Found, Record, agents
from shims.headless import Said
from tests.unit.engine import Engine, engine

RUN = Run("claude", "/s", "", "x", ("/bin/true", "-p"), False, "/", ("HOME",), 600.0)


@pytest.fixture
def files(tmp_path: Path) -> TurnFiles:
    made = TurnFiles(str(tmp_path / "att_1"))
    made.create(RUN, b"text")
    return made


# whether it is started


@pytest.mark.requirement("DE-22", "DE-24")
def test_a_turn_is_either_started_or_forbidden(files: TurnFiles) -> None:
    assert files.claim()
    assert not files.forbid()
    claimed = files.claimed()
    assert claimed is not None and claimed.pid == os.getpid()


@pytest.mark.requirement("DE-22", "DE-24")
def test_a_turn_that_was_forbidden_is_never_started(files: TurnFiles) -> None:
    assert files.forbid()
    assert not files.claim()
    assert files.claimed() is None
    assert not files.forbid(), "it has been decided"


@pytest.mark.requirement("DE-24")
def test_a_turn_of_which_nothing_was_written_can_be_forbidden(tmp_path: Path) -> None:
    files = TurnFiles(str(tmp_path / "turns" / "att_2"))
    assert files.forbid()
    files.remove()
    assert not os.path.exists(files.path)


@pytest.mark.requirement("DE-22", "DE-24")
def test_nothing_is_claimed_while_it_is_removed(files: TurnFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that was forbidden is given to another attempt: whoever comes late must not find it free again."""
    assert files.forbid()
    late: list[bool] = []
    rmdir = os.rmdir

    def at_the_last_moment(path: str) -> None:
        try:
            late.append(files.claim())
        except FileNotFoundError:
            late.append(False)
        rmdir(path)

    monkeypatch.setattr(os, "rmdir", at_the_last_moment)
    files.remove()
    assert late == [False]
    assert os.listdir(os.path.dirname(files.path)) == []


@pytest.mark.requirement("DE-23", "EN-24")
def test_the_text_is_for_us_alone_and_gone_when_the_agent_has_it(files: TurnFiles) -> None:
    for name in os.listdir(files.path):
        assert os.stat(os.path.join(files.path, name)).st_mode & 0o077 == 0, name
        if name != "prompt" and name != "bell":
            assert b"text" not in Path(files.path, name).read_bytes(), name
    assert files.begun() is None
    files.taken("s1")
    assert (files.begun(), os.path.exists(files.prompt)) == ("s1", False)


@given(
    st.builds(
        Said,
        session=st.text(max_size=9),
        begun=st.booleans(),
        ended=st.booleans(),
        text=st.text(),
        code=st.sampled_from(("", "turn_failed")),
        denied=st.lists(st.text(max_size=9)).map(tuple),
    ),
    st.none() | st.integers(-64, 255),
)
def test_what_came_of_a_turn_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, said: Said, status: int | None
) -> None:
    files = TurnFiles(str(tmp_path_factory.mktemp("t") / "att"))
    files.create(RUN, b"")
    assert files.ended() is None
    files.end(Ended(said, status, "inactive"))
    assert files.ended() == Ended(said, status, "inactive")
    assert files.order() == RUN


# what its end means


@pytest.mark.requirement("EN-14", "EN-15")
@pytest.mark.parametrize(
    ("ended", "fate", "code"),
    [
        (Ended(Said(begun=True, ended=True, text="yes"), 0), Fate.ANSWERED, ""),
        (Ended(Said(begun=True, ended=True, text="yes", denied=("Bash",)), 1), Fate.ANSWERED, ""),
        (Ended(Said(begun=True, ended=True, text="yes"), None, "inactive"), Fate.ANSWERED, ""),
        (Ended(Said(begun=True, ended=True, text=" \n"), 0), Fate.NO_ANSWER, "no_answer"),
        (Ended(Said(begun=True, text="yes"), 0), Fate.NO_ANSWER, "interrupted"),
        (Ended(Said(begun=True, ended=True, code="approval_needed"), 0), Fate.NO_ANSWER, "approval_needed"),
        (Ended(Said(code="unknown_session", untouched=True), 1), Fate.REFUSED, "unknown_session"),
        (Ended(Said(code="session_held", untouched=True), None), Fate.HELD, "session_held"),
        (Ended(Said(begun=True), -9, "inactive"), Fate.NO_ANSWER, verdict.KILLED),
        (Ended(Said(begun=True), -9, "the broker is stopped"), Fate.NO_ANSWER, "stopped"),
        (Ended(Said(begun=True), -9, TOLD), Fate.NO_ANSWER, "interrupted"),
        (Ended(Said(begun=True), -9, DONE), Fate.NO_ANSWER, "interrupted"),
        (Ended(Said(code=FORBIDDEN, untouched=True), None), Fate.NEVER, ""),
        (Ended(Said(), 0), Fate.NO_ANSWER, "interrupted"),
    ],
)
def test_a_turn_is_judged_by_its_end_record(ended: Ended, fate: Fate, code: str) -> None:
    judged = verdict.of_ended(ended)
    assert (judged.fate, judged.code) == (fate, code)
    assert judged.denied == ended.said.denied or fate is not Fate.ANSWERED


@pytest.mark.requirement("DE-22", "DE-34")
@pytest.mark.parametrize(
    ("said", "found", "keyed", "fate"),
    [
        (Said(begun=True, ended=True, text="yes"), Found.UNKNOWN, False, Fate.ANSWERED),
        (Said(), Found.ANSWERED, False, Fate.ANSWERED),
        (Said(begun=True), Found.ABSENT, True, Fate.NO_ANSWER),
        (Said(), Found.OPEN, True, Fate.NO_ANSWER),
        (Said(), Found.INTERRUPTED, True, Fate.NO_ANSWER),
        (Said(), Found.ABSENT, True, Fate.NEVER),
        (Said(), Found.ABSENT, False, Fate.UNKNOWN),
        (Said(), Found.UNKNOWN, True, Fate.UNKNOWN),
    ],
)
def test_a_turn_whose_runner_died_is_judged_by_what_is_left(said: Said, found: Found, keyed: bool, fate: Fate) -> None:
    record = Record(found, "from the records" if found is Found.ANSWERED else "")
    judged = verdict.by_records(said, record, decisive=keyed)
    assert judged.fate is fate
    assert bool(judged.recovered) == (judged.text == "from the records")


# what it gets of its caller


SECRETS = {
    "ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GITHUB_TOKEN": "t", "SSH_AUTH_SOCK": "/s", "AWS_SECRET_ACCESS_KEY": "a",
    "COPILOT_AGENT_SESSION_ID": "c", "CLAUDE_CODE_SESSION_ID": "s", "LD_PRELOAD": "/x", "MINE": "m",
}  # fmt: skip
BASELINE = {"PATH": "/usr/bin:/bin", "HOME": "/home/u", "LC_ALL": "C.UTF-8", "XDG_DATA_HOME": "/d", "CODEX_HOME": "/c"}


def environment(**settings: str) -> dict[str, str]:
    told = {**BASELINE, **SECRETS, "HTTPS_PROXY": "http://proxy:1"}
    return child_environment(
        kept(told), settings, in_memory(told, ("MINE",)), agent="codex", session="s1", conversation="conv_1", trusted_path=""
    )


@pytest.mark.requirement("EN-11", "EN-13")
def test_a_turn_gets_the_baseline_what_was_named_and_who_it_is() -> None:
    assert environment(CROSS_AGENT_SCOPE="any", CROSS_AGENT_SELF="claude", CROSS_AGENT_SELF_SESSION="claude:x") == {
        **BASELINE,
        "HTTPS_PROXY": "http://proxy:1",
        "MINE": "m",
        "CROSS_AGENT_SCOPE": "any",
        "CROSS_AGENT_SELF_SESSION": "codex:s1",
        "CROSS_AGENT_CONVERSATION_ID": "conv_1",
    }


@pytest.mark.requirement("EN-13", "DE-50")
def test_a_turn_whose_session_has_no_id_yet_is_told_that_it_was_started() -> None:
    new = child_environment({}, {}, {}, agent="codex", session="", conversation="conv_1", trusted_path="")
    assert new == {"CROSS_AGENT_SELF_SESSION": "codex:", "CROSS_AGENT_CONVERSATION_ID": "conv_1"}


@pytest.mark.requirement("EN-11")
@given(st.dictionaries(st.sampled_from([*SECRETS, *BASELINE, "HTTP_PROXY", "https_proxy"]), st.text(max_size=5)))
def test_what_may_not_be_written_down_is_not_kept(told: dict[str, str]) -> None:
    written, unwritten = kept(told), in_memory(told, ("MINE", "CROSS_AGENT_SELF"))
    assert not written.keys() & (SECRETS.keys() | {"HTTP_PROXY", "https_proxy"})
    assert not written.keys() & unwritten.keys()
    assert unwritten.keys() <= {"MINE", "HTTP_PROXY", "https_proxy"}


@pytest.mark.requirement("EN-11")
@pytest.mark.parametrize("proxy", ["http://u:p@h:1", "u:p@h", "socks5://u@h", "http://u%40x:p@h", "http://u:p%40h"])
def test_a_proxy_that_carries_credentials_is_known_in_any_form(proxy: str) -> None:
    assert carries_credentials(proxy)
    assert not carries_credentials("http://proxy.example:8080")


@pytest.mark.requirement("EN-11", "DE-54")
def test_no_directory_comes_onto_the_path_that_only_the_caller_has() -> None:
    assert bounded_path("/evil:/usr/bin:.:/bin", "/bin:/usr/bin") == "/usr/bin:/bin"
    assert bounded_path("/evil", "/bin:/usr/bin") == "/bin:/usr/bin"


@pytest.mark.requirement("EN-11")
def test_values_that_are_not_written_down_are_known_by_who_told_them() -> None:
    known = Unwritten()
    known.know("mcp_1", {"A": "1"})
    assert (known.of("mcp_1"), known.of("mcp_2")) == ({"A": "1"}, {})
    known.know("mcp_1", {"A": "2"})
    assert known.of("mcp_1") == {"A": "2"}
    for number in range(1000):
        known.know(f"other_{number}", {})
    assert known.of("mcp_1") == {}


# what a caller may ask for


@pytest.mark.requirement("DE-54", "EN-14")
def test_what_gives_power_needs_a_grant() -> None:
    for agent in agents().values():
        headless = agent.headless
        assert headless is not None
        loosest, name = headless.modes[-1], headless.mode_setting.removeprefix("CROSS_AGENT_").lower()
        binary = f"CROSS_AGENT_{agent.name.upper()}_BIN"
        asked = {headless.mode_setting: loosest, binary: "/evil", "CROSS_AGENT_CHILD_ENV": "A, B"}
        may = allowed(agent.name, headless, asked, {})
        assert (may.mode, may.binary, may.named) == (headless.default_mode, "", ())
        assert [setting in " ".join(may.notes) for setting in asked] == [True] * 3
        granted = {name: loosest, binary.removeprefix("CROSS_AGENT_").lower(): "/evil", "child_env": "B"}
        may = allowed(agent.name, headless, asked, granted)
        assert (may.mode, may.binary, may.named) == (loosest, "/evil", ("B",))
        assert len(may.notes) == 1 and "child_env" in may.notes[0]


@pytest.mark.requirement("DE-54")
def test_what_asks_for_every_approval_needs_none() -> None:
    for agent in agents().values():
        headless = agent.headless
        assert headless is not None
        free = headless.modes[: headless.modes.index("default") + 1] if "default" in headless.modes else headless.modes[:1]
        for mode in free:
            may = allowed(agent.name, headless, {headless.mode_setting: mode}, {})
            assert (may.mode, may.notes) == (mode, ())


@pytest.mark.requirement("DE-54")
def test_what_is_stricter_needs_none() -> None:
    for agent in agents().values():
        headless = agent.headless
        assert headless is not None
        may = allowed(agent.name, headless, {headless.mode_setting: headless.modes[0]}, {})
        assert (may.mode, may.notes) == (headless.modes[0], ())
        assert allowed(agent.name, headless, {headless.mode_setting: "nonsense"}, {}).mode == headless.default_mode


@pytest.mark.requirement("EN-11", "DE-54")
def test_a_proxy_with_a_password_is_passed_on_only_where_it_is_granted() -> None:
    told = {"HTTPS_PROXY": "http://u:secret@proxy:1", "HTTP_PROXY": "http://proxy:1"}
    assert in_memory(told, ()) == {"HTTP_PROXY": "http://proxy:1"}
    assert in_memory(told, ("HTTPS_PROXY",)) == told


@pytest.mark.requirement("DE-54")
def test_no_program_is_run_that_the_caller_alone_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a variable for shims, nor in a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    evil = tmp_path / ".grok" / "bin" / "grok"
    evil.parent.mkdir(parents=True)
    evil.write_text("#!/bin/sh\n")
    evil.chmod(0o755)
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path), "CROSS_AGENT_REAL_GROK": str(evil)}
    headless = agents()["grok"].headless
    assert headless is not None
    assert find_program(headless.product, "", environment) != str(evil)
    assert find_program(headless.product, str(evil), environment) == str(evil), "it was granted"
    assert find_program(headless.product, "", {**environment, "PATH": str(evil.parent)}) == str(evil)


# starting, with files and a database


@pytest.mark.requirement("DE-24", "DE-20")
def test_a_stray_file_stops_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            turns = StartedTurns(str(tmp_path / "turns"), str(tmp_path), made.book, made.reader)
            (tmp_path / "turns").mkdir()
            (tmp_path / "turns" / ".DS_Store").write_text("x")
            (tmp_path / "turns" / "att_old").write_text("no directory")
            turns.attach(made.carrier)
            turns.recover()
            turns.close()
            assert (tmp_path / "turns" / ".DS_Store").read_text() == "x"

    asyncio.run(story())


async def over(made: Engine, handed: Delivery) -> Delivery:
    """The delivery, when its turn has come to an end."""
    for _ in range(1000):
        now = made.store.delivery(handed.id)
        if now is not None and now.state is not State.DELIVERING:
            return now
        await asyncio.sleep(0.01)
    raise AssertionError(f"{handed.id} is on its way for ever")


@pytest.mark.requirement("DE-20")
def test_a_disk_that_refuses_a_turn_costs_this_one_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            (tmp_path / "turns").write_text("no directory")
            turns = StartedTurns(str(tmp_path / "turns"), str(tmp_path), made.book, made.reader)
            turns.attach(made.carrier)
            queued = await made.queued(route="headless")
            attempt = Attempt("att_1", queued.id, "", "", "/h", "s1", 1, route="headless")
            await made.book.apply(queued, Event.HAND_OVER, attempt=attempt)
            await turns.start(attempt, RUN, b"text", {})
            after = await over(made, queued)
            assert (after.state, after.error_code, after.handed_over) == (State.FAILED, "cannot_start", False)
            assert made.book.open_attempts() == []
            turns.close()

    asyncio.run(story())


_REFUSED_BY = """
import sys
sys.path.insert(0, {root!r})
from broker.turns.files import Ended, TurnFiles
from shims.headless import Said
TurnFiles(sys.argv[1]).end(Ended(Said(code="session_held", reason="process 1 holds the session", untouched=True), None))
"""


@pytest.mark.requirement("DE-25", "DE-31")
def test_a_turn_is_begun_again_a_few_times_whose_session_somebody_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither given up at once nor tried for ever; there is time between one try and the next."""
    runner = tmp_path / "runner.py"
    runner.write_text(_REFUSED_BY.format(root=str(Path(__file__).parents[2])))
    monkeypatch.setattr(started, "_PROGRAM", str(runner))
    pauses: list[float] = []

    async def story() -> None:
        async with engine(tmp_path) as made:
            (tmp_path / "turns").mkdir()
            turns = StartedTurns(str(tmp_path / "turns"), str(tmp_path), made.book, made.reader)
            turns.attach(made.carrier)
            monkeypatch.setattr(made.carrier, "again_in", lambda seconds, _: pauses.append(seconds))
            found = await made.queued(route="headless")
            for number in range(4):
                assert (found.state, pauses) == (State.QUEUED, [10.0] * number)
                attempt = Attempt(f"att_{number}", found.id, "", "", "/h", "s1", 1, route="headless")
                await made.book.apply(found, Event.HAND_OVER, attempt=attempt)
                await turns.start(attempt, RUN, b"text", {})
                found = await over(made, found)
            assert (found.state, found.error_code, found.handed_over) == (State.FAILED, "session_held", False)
            assert "process 1 holds the session" in found.error
            assert (len(pauses), made.book.open_attempts()) == (3, [])
            turns.close()

    asyncio.run(story())


@pytest.mark.requirement("DE-04", "DE-53")
def test_a_conversation_whose_id_is_known_before_its_turn_begins_is_held_by_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with engine(tmp_path) as made:
            queued = await made.queued(session="", instance="dlv", route="headless")
            attempt = Attempt("att_1", queued.id, "", "", "/h", "new", 1, route="headless")
            await made.book.apply(queued, Event.HAND_OVER, attempt=attempt)
            assert made.book.open_attempt_at(("claude", "new", "")) == attempt
            assert made.book.open_attempt_at(("claude", "other", "")) is None
            assert made.book.started_turns() == {("claude", "new")}

    asyncio.run(story())


@pytest.mark.requirement("EN-24")
@pytest.mark.parametrize(
    ("words", "quotes"),
    [
        ("error: cannot parse `the quick  brown fox jumps over`", True),
        ("error: the quick brown", False),
        ("", False),
        ("Not logged in. Please run /login", False),
    ],
)
def test_an_agent_that_quotes_the_message_in_its_words_is_not_quoted(words: str, quotes: bool) -> None:
    assert _quotes(words, b"Look: the quick brown fox\njumps over the lazy dog") is quotes
