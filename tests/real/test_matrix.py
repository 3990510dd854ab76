"""The version matrix: which versions are played, what is shown of them, and that the page which is kept explains itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix import page, versions
from tests.matrix.__main__ import keep, parsed
from tests.matrix.columns import COLUMNS
from tests.matrix.differences import DIFFERENCES, Difference
from tests.matrix.play import words
from tests.matrix.rows import ROOT, Cell, Row, Stage, play_row
from tests.real.binaries import AGENTS

ROW = 1500
"""Seconds for all columns of one version on a loaded machine."""

LISTED = ["0.99.1", "0.154.0", "0.160.0-alpha.1", "0.160.0", "0.160.0-linux-x64", "0.9.0"]


def row(agent: str, version: str, *cells: Cell) -> Row:
    return Row(agent, version, "2026-11-30", dict(zip((column.heading for column in COLUMNS), cells, strict=False)))


# Which versions


def test_finished_releases_are_taken_by_version_order() -> None:
    assert versions.finished(LISTED) == ["0.160.0", "0.154.0", "0.99.1", "0.9.0"]


def test_pinned_versions_are_played_beside_the_last_ones() -> None:
    pinned = {release.version for release in AGENTS.values() if release.kind == "codex"}
    chosen = versions.with_pinned("codex", ["0.999.0", *sorted(pinned)[:1]])
    assert chosen[0] == "0.999.0"
    assert set(chosen) == {"0.999.0", *pinned}
    assert len(chosen) == len(pinned) + 1


@pytest.mark.parametrize(
    "line", ["emacs", "--versions 1.2.3", "codex claude --versions 1.2.3", "--columns nothing", "codex --write --columns idle"]
)
def test_command_that_makes_no_sense_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(line.split())
    assert "error" in capsys.readouterr().err


# Differences


def test_difference_concerns_versions_from_one_to_another() -> None:
    known = Difference("codex", ("idle",), "why", since="0.150.0", before="0.154.0")
    assert [known.concerns("codex", version, "idle") for version in ("0.149.9", "0.150.0", "0.153.9", "0.154.0")] == [
        False,
        True,
        True,
        False,
    ]
    assert not known.concerns("claude", "0.150.0", "idle")
    assert not known.concerns("codex", "0.150.0", "stopped")


def test_differences_name_columns_that_exist() -> None:
    headings = {column.heading for column in COLUMNS}
    assert {name for known in DIFFERENCES for name in known.columns} <= headings


# The page


def test_what_is_written_is_read_again() -> None:
    rows = [
        row("claude", "2.1.332", Cell("✓"), Cell("✗", "TimeoutError: nothing matched"), Cell("✓", "waits in the bridge")),
        row("claude", "2.1.197", Cell("✓"), Cell("✓", "waits in the bridge"), Cell("–", "cannot be done")),
        row("grok", "1.0.5", Cell("✓")),
    ]
    text = page.text(rows, COLUMNS)
    assert page.rows_of(text) == rows
    assert len(re.findall(r"^\[\^\d+\]: ", text, re.MULTILINE)) == 3


def test_a_note_cannot_break_the_table() -> None:
    (read,) = page.rows_of(page.text([row("codex", "0.1.0", Cell("✗", "one | two\nthree"))], COLUMNS))
    assert read.cells["idle"] == Cell("✗", "one | two three")


def test_rows_of_other_versions_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PATH", tmp_path / "page.md")
    keep([row("codex", "0.99.0", Cell("✓")), row("codex", "0.154.0", Cell("✗", "broken")), row("grok", "1.0.5", Cell("✓"))], ())
    keep([row("codex", "0.154.0", Cell("✓"))], ())
    assert [(r.agent, r.version, r.kept) for r in page.read()] == [
        ("codex", "0.154.0", True),
        ("codex", "0.99.0", True),
        ("grok", "1.0.5", True),
    ]
    keep([row("codex", "0.171.0", Cell("✓"))], ("codex",))
    assert [(r.agent, r.version) for r in page.read()] == [("codex", "0.171.0"), ("grok", "1.0.5")]


def test_few_words_say_what_failed() -> None:
    try:
        assert [] == ["a turn"]
    except AssertionError as error:
        bare = AssertionError().with_traceback(error.__traceback__)
    assert words(bare) == '[] == ["a turn"]'
    assert words(AssertionError("left: 3\nall of them")) == "left: 3"
    assert words(TimeoutError("x" * 500)) == f"TimeoutError: {'x' * 146} …"


def test_the_page_that_is_kept_has_no_unexplained_failure() -> None:
    kept = page.read()
    assert {row.agent for row in kept} == set(page.TITLES)
    headings = [column.heading for column in COLUMNS]
    for played in kept:
        assert list(played.cells) == headings, (played.agent, played.version)
        assert played.kept, (played.agent, played.version)


# The command


def test_a_column_that_fails_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSS_AGENT_TEST_CACHE", str(tmp_path / "cache"))
    executable = tmp_path / "cache" / "grok-0.0.1" / "node_modules" / "@xai-official" / "grok-none" / "bin" / "grok"
    executable.parent.mkdir(parents=True)
    executable.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    executable.chmod(0o755)
    columns = [column for column in COLUMNS if column.heading in ("first word", "command line")]
    stage = Stage(columns, 60.0, tmp_path / "logs")
    cells = dict(play_row("grok", "0.0.1", stage))
    assert [(cell.mark, bool(cell.note)) for cell in cells.values()] == [("✗", True), ("✗", True)]
    assert cells["command line"].note == "the help of grok-0.0.1 cannot be read"
    logs = {log.name: log.read_text(encoding="utf-8") for log in stage.logs.iterdir()}
    assert set(logs) == {"grok-0.0.1, first word.log", "grok-0.0.1, command line.log"}
    assert all("Traceback" in log for log in logs.values())


@pytest.mark.full
@pytest.mark.timeout(ROW)
@pytest.mark.parametrize("agent", page.TITLES)
def test_newest_version_of_each_agent_does_all_that_matters(agent: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.matrix", agent, "--last", "1", "--logs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (played,) = page.rows_of(done.stdout)
    assert (played.agent, played.kept, len(played.cells)) == (agent, True, len(COLUMNS))
