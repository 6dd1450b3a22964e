"""When QMD's index is updated and embedded, decided from what is known of earlier times."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from composable_memory_adapters.qmd.maintenance.index_commands import Counts, EmbedOutcome, UpdateOutcome
from composable_memory_adapters.qmd.maintenance.maintenance_state import (
    MaintenanceState,
    is_embedding_due,
    may_nudge,
    pause_s,
    wait_s,
)
from composable_memory_adapters.qmd.settings import UpdateSettings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def settings(**options: object) -> UpdateSettings:
    return UpdateSettings.model_validate(options)


# --- updates ---


def test_the_pause_is_the_interval_but_never_shorter_than_the_debounce_time() -> None:
    assert pause_s(settings(interval="5m")) == 300
    assert pause_s(settings(interval="10s", debounce_ms=15_000)) == 15
    assert pause_s(settings(interval=0, debounce_ms=15_000)) == 0


@pytest.mark.parametrize(
    ("last", "expected"),
    [(None, 300), (ago(0), 300), (ago(100), 200), (ago(300), 0), (ago(9999), 0), (ago(-9999), 300)],
    ids=["never", "just now", "a while", "due", "overdue", "clock set back"],
)
def test_the_clock_waits_for_what_is_left_of_the_pause(last: datetime | None, expected: float) -> None:
    assert wait_s(MaintenanceState(last_attempt=last), settings(interval="5m"), now=NOW) == expected


def test_a_search_may_ask_for_an_update_unless_one_has_just_ended() -> None:
    assert may_nudge(MaintenanceState(), now=NOW)
    assert not may_nudge(MaintenanceState(last_attempt=ago(1)), now=NOW)
    assert may_nudge(MaintenanceState(last_attempt=ago(2)), now=NOW)


def test_after_failures_a_search_asks_for_an_update_less_often() -> None:
    failing = MaintenanceState(last_attempt=ago(100), failures=2)

    assert not may_nudge(failing, now=NOW)
    assert may_nudge(replace(failing, last_attempt=ago(120)), now=NOW)


def test_a_clock_that_was_set_back_stops_nobody() -> None:
    ahead = MaintenanceState(last_attempt=ago(-9999), failures=9, last_embed=ago(-9999))

    assert may_nudge(ahead, now=NOW)
    assert is_embedding_due(ahead, settings(), model=None, now=NOW)


def test_the_back_off_doubles_up_to_an_hour() -> None:
    for failures, rest_s in [(1, 60), (2, 120), (6, 1920), (7, 3600), (999, 3600)]:
        assert not may_nudge(MaintenanceState(last_attempt=ago(rest_s - 1), failures=failures), now=NOW)
        assert may_nudge(MaintenanceState(last_attempt=ago(rest_s + 1), failures=failures), now=NOW)


def test_an_update_that_went_well_covers_what_changed_before_it_began() -> None:
    before = MaintenanceState(failures=3, problem="busy", pending=1)
    outcome = UpdateOutcome(counts={"notes": Counts(new=2, updated=1, unchanged=4, removed=9)})

    after = before.updated(outcome, began=ago(5), now=NOW)

    assert (after.last_update, after.last_attempt) == (ago(5), NOW)
    assert (after.counts, after.pending) == ({"notes": 7}, 4)
    assert (after.failures, after.problem) == (0, None)


def test_a_failed_update_leaves_what_was_known_of_the_index() -> None:
    before = MaintenanceState(last_update=ago(99), counts={"notes": 7}, failures=1)

    after = before.failed("busy", now=NOW)

    assert after == replace(before, last_attempt=NOW, failures=2, problem="busy")


# --- embeddings ---


def test_embedding_is_due_the_first_time_and_after_its_pause() -> None:
    hourly = settings(embed_interval="60m")

    assert is_embedding_due(MaintenanceState(), hourly, model=None, now=NOW)
    assert not is_embedding_due(MaintenanceState(last_embed=ago(3599)), hourly, model=None, now=NOW)
    assert is_embedding_due(MaintenanceState(last_embed=ago(3600)), hourly, model=None, now=NOW)


def test_embedding_is_due_with_every_update_where_there_is_no_pause() -> None:
    assert is_embedding_due(MaintenanceState(last_embed=NOW), settings(embed_interval=0), model=None, now=NOW)


def test_another_model_is_due_at_once() -> None:
    state = MaintenanceState(last_embed=ago(1), embed_model="old.gguf")

    assert is_embedding_due(state, settings(), model="new.gguf", now=NOW)


def test_after_a_failure_embedding_rests_but_for_force() -> None:
    failed = MaintenanceState().embedding_failed("no memory", now=ago(59))

    assert not is_embedding_due(failed, settings(), model=None, now=NOW)
    assert is_embedding_due(failed, settings(), model=None, now=NOW, force=True)
    assert is_embedding_due(failed, settings(), model=None, now=ago(-1))


def test_what_an_embedding_only_waits_for_costs_no_rest() -> None:
    waiting = MaintenanceState().embedding_blocked("the model is missing")

    assert waiting.embed_problem == "the model is missing"
    assert is_embedding_due(waiting, settings(), model=None, now=NOW)


def test_an_embedding_that_went_well_ends_a_row_of_failures() -> None:
    failed = MaintenanceState(pending=5).embedding_failed("x", now=ago(9)).embedding_failed("y", now=ago(8))

    after = failed.embedded(EmbedOutcome(chunks=5), model="a.gguf", now=NOW)

    assert (failed.embed_failures, after.embed_failures, after.embed_problem) == (2, 0, None)
    assert (after.last_embed, after.embed_model, after.pending) == (NOW, "a.gguf", 0)


def test_of_a_new_database_all_vectors_are_due_again() -> None:
    state = MaintenanceState(last_embed=ago(1))
    outcome = UpdateOutcome(set_aside=Path("index.sqlite.damaged"))

    assert is_embedding_due(state.updated(outcome, began=NOW, now=NOW), settings(), model=None, now=NOW)
    assert is_embedding_due(state.without_index(), settings(), model=None, now=NOW)


# --- between processes ---


def test_a_state_comes_back_as_it_was_written() -> None:
    state = MaintenanceState(
        last_update=ago(3),
        last_attempt=NOW,
        counts={"notes": 7},
        pending=2,
        failures=1,
        problem="busy",
        last_embed=ago(1),
        embed_model="m",
        embed_failures=4,
        embed_attempt=ago(1),
        embed_problem="p",
    )

    assert MaintenanceState.from_json(state.to_json()) == state


@pytest.mark.parametrize("written", ["", "{", "[]", '{"failures": "many"}', "\0", '{"last_update": 1e999}'])
def test_a_state_that_cannot_be_read_is_a_new_one(written: str) -> None:
    assert MaintenanceState.from_json(written) == MaintenanceState()


def test_a_state_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert MaintenanceState.from_json('{"failures": 2, "moon": "full"}') == MaintenanceState(failures=2)


def test_of_two_states_the_one_that_knows_of_more_counts() -> None:
    older, newer = (
        MaintenanceState(last_attempt=ago(9)),
        MaintenanceState(last_attempt=ago(9), embed_attempt=ago(1)),
    )

    assert older.newer_of(newer) == newer.newer_of(older) == newer
