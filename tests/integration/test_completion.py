"""What a shell is offered at a press of Tab: searches by their questions, backends, notes."""

import os
import sys
from pathlib import Path

import pytest

from composable_memory.testing import SEED_NOTES
from tests.cli_process import run_cli
from tests.notes import write_notes

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the shells are those of Unix")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_notes(tmp_path / "notes", SEED_NOTES)
    return tmp_path


def run(place: Path, *words: str, **environ: str) -> str:
    settings = {
        "COMPOSABLE_MEMORY_STATE_DIR": str(place / "state"),
        "COMPOSABLE_MEMORY__EMBEDDING__PROVIDER": "none",
    }
    environ = {**os.environ, "HOME": str(place), **settings, **environ}
    done = run_cli(*words, folder=place / "notes", environ=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def offered(place: Path, line: str) -> list[str]:
    """Return what fish is offered after a line, without the descriptions."""
    asks = {"_CMEM_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    told = run(place, **asks, _TYPER_COMPLETE_ARGS=line)
    return [one.partition("\t")[0] for one in told.splitlines() if one]


def test_searches_are_offered_by_their_traces_with_the_latest_first(place: Path) -> None:
    run(place, "search", "harbour")
    run(place, "search", "ferry timetable")

    found = offered(place, "cmem explain ")

    assert found[0] == "last"
    assert [len(one) for one in found[1:]] == [8, 8]
    assert "ferry timetable" in run(place, "explain", found[1])
    assert offered(place, f"cmem logs show {found[2][:4]}") == [found[2]]


def test_backends_and_notes_are_offered_by_their_beginnings(place: Path) -> None:
    assert "builtin" in offered(place, "cmem search --backend ")
    assert offered(place, "cmem search --backend b") == ["builtin"]
    assert offered(place, "cmem get M") == ["MEMORY.md"]
    below = offered(place, "cmem get memory/")
    assert below
    assert all(one.startswith("memory/") for one in below)


def test_where_nothing_can_be_looked_at_nothing_is_offered(place: Path) -> None:
    assert offered(place, "cmem explain ") == ["last"]
    assert offered(place, "cmem get nowhere/at/all") == []
