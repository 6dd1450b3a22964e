"""How old a passage is taken to be, and what that leaves of its score."""

from datetime import date
from math import inf, nan

import pytest

from composable_memory_adapters.builtin.search.diversity import age_in_days, decay_factor, written_on

TODAY = date(2026, 3, 1)
MTIME_NS = 1_767_225_600 * 10**9  # 2026-01-01, midnight


@pytest.mark.parametrize(
    ("age", "factor"),
    [(0, 1.0), (7, 0.8507), (15, 0.7071), (30, 0.5), (60, 0.25), (90, 0.125)],
)
def test_a_score_is_halved_with_each_half_life(age: int, factor: float) -> None:
    assert decay_factor(age, 30) == pytest.approx(factor, abs=5e-5)


def test_the_future_is_not_better_than_today() -> None:
    assert decay_factor(-400, 30) == 1.0


@pytest.mark.parametrize("half_life", [0, -1, inf, nan])
def test_without_a_sound_half_life_nothing_ages(half_life: float) -> None:
    assert decay_factor(400, half_life) == 1.0


def test_a_very_old_note_is_worth_next_to_nothing_and_not_less() -> None:
    assert decay_factor(10**7, 1) == 0.0


@pytest.mark.parametrize(
    "path",
    [
        "memory/2026-01-16.md",
        "memory/2026-01-16-standup.md",
        "memory/2026-01-16 standup.md",
        "memory/2026-01-16T1030.md",
        "memory/work/2026-01-16.md",
        "memory/2026-01-16/plan.md",
        "../journal/2026-01-16.md",
    ],
)
def test_a_dated_note_is_from_the_day_of_its_name(path: str) -> None:
    assert written_on(path, source="memory", mtime_ns=MTIME_NS) == date(2026, 1, 16)


@pytest.mark.parametrize(
    "path",
    [
        "MEMORY.md",
        "memory.md",
        "memory/projects.md",
        "memory/people/ana.md",
        "memory/2026-02-30.md",
        "memory/2026-13-01-topic.md",
        "memory/2026-01-165.md",
        "memory/about-2026-01-16.md",
    ],
)
def test_other_memory_files_do_not_age(path: str) -> None:
    assert written_on(path, source="memory", mtime_ns=MTIME_NS) is None


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("docs/guide.md", "memory"),
        ("../elsewhere/notes.md", "memory"),
        ("sessions/a1b2.jsonl", "sessions"),
        ("memory/2020-01-01.jsonl", "sessions"),
    ],
)
def test_transcripts_and_notes_elsewhere_are_as_old_as_their_last_change(path: str, source: str) -> None:
    day = written_on(path, source="sessions" if source == "sessions" else "memory", mtime_ns=MTIME_NS)

    assert day == date(2026, 1, 1)


def test_what_has_no_known_time_does_not_age() -> None:
    assert written_on("docs/guide.md", source="memory", mtime_ns=None) is None
    assert age_in_days(None, TODAY) == 0


@pytest.mark.parametrize("mtime_ns", [-(2**63), -1, 2**63 - 1])
def test_any_time_that_a_file_can_bear_is_a_day(mtime_ns: int) -> None:
    assert written_on("docs/guide.md", source="memory", mtime_ns=mtime_ns) is not None


def test_ages_are_whole_days() -> None:
    assert age_in_days(date(2026, 2, 1), TODAY) == 28
    assert age_in_days(date(2026, 3, 2), TODAY) == -1
