"""What a caller may set by itself, and what only the person can grant."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.paths import Home
from broker.settings import (
    DEFAULT_EXCHANGE_WINDOW,
    DEFAULT_IDLE,
    DEFAULT_MAX_EXCHANGES,
    DEFAULT_MAX_HOPS,
    DEFAULT_PATIENCE,
    DEFAULT_TTL,
    CallerSettings,
    Grants,
    caller_settings,
    is_on,
    patience_of,
    read_grants,
    uses_doors,
)

NONE = Grants()


def config(path: Path, text: str | bytes) -> Grants:
    home = Home(str(path))
    Path(home.config).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_grants(home)


def hops(asked: str, granted: int = DEFAULT_MAX_HOPS) -> CallerSettings:
    return caller_settings({"CROSS_AGENT_MAX_HOPS": asked}, Grants(max_hops=granted))


@pytest.mark.requirement("DE-50", "DE-54")
@pytest.mark.parametrize(
    ("asked", "granted", "holds"),
    [
        ("", 4, 4), ("4", 4, 4), ("2", 4, 2), ("1", 4, 1), ("5", 4, 4), ("100", 4, 4), ("5", 5, 5), ("100", 5, 5), ("2", 100, 2),
        ("6", 100, 6), ("", 2, 2), ("4", 2, 2), ("9", 1, 1), ("1", 2, 1), ("3", 3, 3), ("", 0, 1), ("4", -7, 1),
    ],
)  # fmt: skip
def test_stricter_always_holds_and_looser_as_far_as_it_is_granted(asked: str, granted: int, holds: int) -> None:
    assert hops(asked, granted).max_hops == holds


@pytest.mark.requirement("DE-54")
def test_what_is_not_granted_is_said_with_the_way_to_grant_it() -> None:
    (note,) = hops("9").notes
    assert "CROSS_AGENT_MAX_HOPS=9" in note
    assert "4 holds" in note
    assert "`max_hops = 9` under [grants] in config.toml" in note


@pytest.mark.requirement("DE-54")
@pytest.mark.parametrize(("asked", "granted"), [("", 4), ("4", 4), ("1", 4), ("9", 9), ("", 2), ("2", 2), ("many", 2)])
def test_who_gets_what_it_asked_for_is_told_nothing(asked: str, granted: int) -> None:
    assert hops(asked, granted).notes == ()


@pytest.mark.requirement("DE-54")
@pytest.mark.parametrize("asked", ["many", "", " ", "nan", "inf", "-inf", "1e999", "4,5", "0x10", "٤x"])
def test_what_is_no_number_is_the_default(asked: str) -> None:
    assert hops(asked).max_hops == DEFAULT_MAX_HOPS
    assert patience_of({"CROSS_AGENT_PANEL_PATIENCE": asked}) == DEFAULT_PATIENCE


@pytest.mark.requirement("DE-54")
@pytest.mark.parametrize("asked", ["0", "-3", "0.2"])
def test_a_conversation_has_one_hop_at_least(asked: str) -> None:
    assert hops(asked).max_hops == 1


@pytest.mark.requirement("DE-54")
@given(
    st.dictionaries(
        st.sampled_from(("MAX_HOPS", "MAX_EXCHANGES", "EXCHANGE_WINDOW", "SCOPE", "UI_HOOK", "PANEL_PATIENCE", "X")).map(
            "CROSS_AGENT_{}".format
        ),
        st.text(),
    )
)
def test_whatever_a_registration_says_no_power_comes_of_it(values: dict[str, str]) -> None:
    settings = caller_settings(values, NONE)
    assert 1 <= settings.max_hops <= DEFAULT_MAX_HOPS
    assert 1 <= settings.max_exchanges <= DEFAULT_MAX_EXCHANGES
    assert DEFAULT_EXCHANGE_WINDOW <= settings.exchange_window < float("inf")
    assert 1.0 <= settings.patience < float("inf")


@pytest.mark.requirement("DE-54", "DE-55")
@pytest.mark.parametrize(
    ("asked", "granted", "holds"),
    [
        (None, 20, 20), ("20", 20, 20), ("3", 20, 3), ("0", 20, 1), ("-9", 20, 1), ("21", 20, 20), ("60", 40, 40), ("30", 40, 30),
        (None, 5, 5), ("many", 5, 5), ("1e300", 20, 20), ("inf", 20, 20), (None, 0, 1),
    ],
)  # fmt: skip
def test_how_many_exchanges(asked: str | None, granted: int, holds: int) -> None:
    values = {} if asked is None else {"CROSS_AGENT_MAX_EXCHANGES": asked}
    settings = caller_settings(values, Grants(max_exchanges=granted))
    assert settings.max_exchanges == holds
    if settings.notes:
        assert holds == granted
        assert "under [grants] in config.toml" in settings.notes[0]


@pytest.mark.requirement("DE-54", "DE-55")
@pytest.mark.parametrize(
    ("asked", "granted", "holds", "noted"),
    [
        (None, 120.0, 120.0, False),
        ("600", 120.0, 600.0, False),
        ("60", 120.0, 120.0, True),
        ("60", 60.0, 60.0, False),
        ("0", 0.0, 0.0, False),
        ("-1", 0.0, 0.0, False),
        (None, 60.0, 120.0, False),
        (None, 300.0, 300.0, False),
        ("soon", 300.0, 300.0, False),
        ("1", 300.0, 300.0, True),
    ],
)
def test_within_how_long_exchanges_are_counted(asked: str | None, granted: float, holds: float, noted: bool) -> None:
    """The longer the stricter."""
    values = {} if asked is None else {"CROSS_AGENT_EXCHANGE_WINDOW": asked}
    settings = caller_settings(values, Grants(exchange_window=granted))
    assert settings.exchange_window == holds
    assert bool(settings.notes) is noted
    if noted:
        assert f"`exchange_window = {asked}` under [grants]" in settings.notes[0]


@pytest.mark.requirement("LD-07", "DE-53")
@pytest.mark.parametrize(
    ("given", "used"),
    [
        (None, True), ("on", True), ("1", True), ("yes", True), ("TRUE", True), ("off", False), ("0", False), ("no", False),
        ("Off", False), ("false", False), ("", False), ("nonsense", True),
    ],
)  # fmt: skip
def test_live_doors_are_used_unless_somebody_says_no(given: str | None, used: bool) -> None:
    values = {} if given is None else {"CROSS_AGENT_LIVE_DOORS": given}
    assert uses_doors(values) is used
    settings = caller_settings(values, NONE)
    assert settings.use_doors is used
    assert settings.notes == (), "stricter needs nobody's leave"
    assert (settings.use_panels, settings.headless) == (True, caller_settings({}, NONE).headless), "nothing else is meant"


@pytest.mark.requirement("LD-07", "DE-53")
@pytest.mark.parametrize("doors", [None, "off"])
@pytest.mark.parametrize(
    ("hook", "panels", "required", "as_good"),
    [
        ("auto", True, False, False),
        ("off", False, False, False),
        ("require", True, True, False),
        ("require-live", True, True, True),
    ],
)
def test_how_doors_and_panels_meet(doors: str | None, hook: str, panels: bool, required: bool, as_good: bool) -> None:
    """Neither switch moves the other."""
    values = {"CROSS_AGENT_UI_HOOK": hook} | ({} if doors is None else {"CROSS_AGENT_LIVE_DOORS": doors})
    settings = caller_settings(values, NONE)
    assert (settings.use_panels, settings.require_panel, settings.doors_are_panels) == (panels, required, as_good)
    assert settings.use_doors is (doors is None)


@pytest.mark.requirement("DE-54")
def test_the_grants_are_what_the_file_says(tmp_path: Path) -> None:
    text = "[grants]\nmax_hops = 9\nmax_exchanges = 50\nexchange_window = 30.5\n[broker]\nidle_seconds = 5\ndelivery_ttl = 60.5\n"
    grants = config(tmp_path, text)
    assert grants == Grants(max_hops=9, max_exchanges=50, exchange_window=30.5, idle_seconds=5.0, delivery_ttl=60.5)


@pytest.mark.requirement("DE-54")
def test_without_a_file_nothing_is_granted_and_nothing_is_wrong(tmp_path: Path) -> None:
    assert read_grants(Home(str(tmp_path))) == NONE
    assert Grants(DEFAULT_MAX_HOPS, DEFAULT_MAX_EXCHANGES, DEFAULT_EXCHANGE_WINDOW, DEFAULT_IDLE, DEFAULT_TTL, {}, "") == NONE


@pytest.mark.requirement("DE-54")
@pytest.mark.parametrize(
    "text",
    [
        "[grants]\nmax_hops = 99\n[grants",
        "[grants]\nmax_hops = 99\nmax_hops = 98\n",
        b"[grants]\nmax_hops = 99\n# \xff\n",
        "[grants]\nmax_hops = 99\x00",
        "\ufeff[grants]\nmax_hops = 99\n",
        "[grants]\nmax_hops = 99\nx = " + "[" * 50_000,
    ],
    ids=["cut off", "said twice", "no UTF-8", "NUL", "byte order mark", "deeply nested"],
)
def test_a_broken_file_grants_nothing_and_says_so(tmp_path: Path, text: str | bytes) -> None:
    grants = config(tmp_path, text)
    assert grants == Grants(trouble=grants.trouble)
    assert "config.toml cannot be read" in grants.trouble
    assert "99" not in grants.trouble.replace(str(tmp_path), "")  # the path may have a number of its own


@pytest.mark.requirement("DE-54")
def test_a_file_that_is_none_grants_nothing(tmp_path: Path) -> None:
    home = Home(str(tmp_path))
    Path(home.config).mkdir()
    assert read_grants(home).trouble


@pytest.mark.requirement("DE-54")
@pytest.mark.parametrize("value", ['"99"', "true", "[99]", "{a = 99}", "nan", "inf", "-inf", "1979-05-27"])
@pytest.mark.parametrize(
    "place", ["[grants]\nmax_hops = {}", "[broker]\nidle_seconds = {}", "[broker]\ndelivery_ttl = {}", "grants = {}"]
)
def test_a_value_of_the_wrong_kind_is_as_good_as_none(tmp_path: Path, place: str, value: str) -> None:
    assert config(tmp_path, place.format(value)) == NONE


@pytest.mark.requirement("DE-54", "DE-30")
@pytest.mark.parametrize(("asked", "holds"), [("", 3600), ("60", 60), ("0", 1), ("-5", 1), ("0.5", 1), ("90000", 90000)])
def test_patience_is_the_callers_own_affair(asked: str, holds: float) -> None:
    assert caller_settings({"CROSS_AGENT_PANEL_PATIENCE": asked}, NONE).patience == holds


@pytest.mark.requirement("SE-29")
@pytest.mark.parametrize(
    ("value", "on"),
    [
        (None, False),
        ("", False),
        (" ", False),
        ("0", False),
        ("False", False),
        ("NO", False),
        (" off ", False),
        ("1", True),
        ("yes", True),
    ],
)
def test_a_truth_is_everything_but_the_four_words_for_no(value: str | None, on: bool) -> None:
    assert is_on(value) is on
    values = {} if value is None else {"CROSS_AGENT_REQUIRE_EXPLICIT_TARGET": value}
    assert caller_settings(values, NONE).require_explicit_target is on


@pytest.mark.requirement("DE-54")
@pytest.mark.parametrize(("value", "used"), [("", True), ("auto", True), ("require", True), ("off", False), (" OFF ", False)])
def test_a_registration_may_do_without_panels(value: str, used: bool) -> None:
    assert caller_settings({"CROSS_AGENT_UI_HOOK": value}, NONE).use_panels is used


@pytest.mark.requirement("EN-21", "SE-03")
def test_what_is_one_for_all_callers_is_said_to_who_sets_it_otherwise() -> None:
    name = "CROSS_AGENT_GROK_NAMES_DB"
    (note,) = caller_settings({name: "/mine.db"}, Grants(), {}).notes
    assert name in note
    assert caller_settings({name: "/mine.db"}, Grants(), {name: "/other.db"}).notes
    assert caller_settings({name: "/mine.db"}, Grants(), {name: "/mine.db"}).notes == ()
    assert caller_settings({}, Grants(), {name: "/other.db"}).notes == ()
