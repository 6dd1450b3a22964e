"""Experiments in the feedback store."""

from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import (
    Experiment,
    ExperimentState,
    Outcome,
    Side,
)
from composable_memory_feedback.store.store import FeedbackStore
from tests.unit.feedback.store_makers import HOUR, NOON, table


def experiment(name: str = "e1", memory: str | None = None) -> Experiment:
    return Experiment(id=name, a=table(), b=table(0.1 + 0.2), started_at=NOON, memory=memory)


def outcome(query: str, a: float, b: float) -> Outcome:
    return Outcome(experiment_id="e1", trace_id="t1", query_id=query, at=NOON, a=a, b=b)


def test_a_running_experiment_is_found_by_its_memory(store: FeedbackStore) -> None:
    store.start_experiment(experiment())
    store.start_experiment(experiment("e2", memory="work"))

    assert store.running_experiment() == experiment()
    assert store.running_experiment("work") == experiment("e2", memory="work")
    assert store.running_experiment("home") is None


def test_a_memory_runs_one_experiment_at_a_time(store: FeedbackStore) -> None:
    store.start_experiment(experiment())

    with pytest.raises(FeedbackError, match="another experiment is running: e1"):
        store.start_experiment(experiment("e2"))
    store.end_experiment("e1", NOON, "enough", None)
    store.start_experiment(experiment("e2"))
    with pytest.raises(FeedbackError, match="an experiment with this id exists: e1"):
        store.start_experiment(experiment("e1", memory="work"))


@pytest.mark.parametrize(("winner", "state"), [("b", "decided"), (None, "stopped")])
def test_an_experiment_ends_with_or_without_a_winner(
    store: FeedbackStore, winner: Side | None, state: ExperimentState
) -> None:
    store.start_experiment(experiment())

    ended = store.end_experiment("e1", NOON + HOUR, "enough seen", winner)

    assert ended == replace(
        experiment(), state=state, ended_at=NOON + HOUR, reason="enough seen", winner=winner
    )
    assert (store.experiments(), store.running_experiment()) == ([ended], None)


def test_an_experiment_ends_once(store: FeedbackStore) -> None:
    store.start_experiment(experiment())
    store.end_experiment("e1", NOON, "enough", "a")

    with pytest.raises(FeedbackError, match="has ended already: e1"):
        store.end_experiment("e1", NOON, "again", "b")
    with pytest.raises(FeedbackError, match="no such experiment: e9"):
        store.end_experiment("e9", NOON, "enough", None)


def test_a_query_that_tells_more_later_keeps_its_place(store: FeedbackStore) -> None:
    store.start_experiment(experiment())
    store.record_outcomes([outcome("q1", 0.0, 1.0)])
    store.record_outcomes([outcome("q2", 1.0, 0.0)])

    assert store.record_outcomes([replace(outcome("q1", 2.0, 1 / 3), at=NOON + HOUR)])
    assert store.outcomes("e1") == [outcome("q1", 2.0, 1 / 3), outcome("q2", 1.0, 0.0)]


def test_what_comes_after_the_end_changes_no_evidence(store: FeedbackStore) -> None:
    store.start_experiment(experiment())
    store.record_outcomes([outcome("q1", 0.0, 1.0)])
    store.end_experiment("e1", NOON, "decided", "b")

    assert not store.record_outcomes([outcome("q1", 5.0, 0.0)])
    assert store.outcomes("e1") == [outcome("q1", 0.0, 1.0)]


def test_credit_that_is_no_number_is_refused(store: FeedbackStore) -> None:
    store.start_experiment(experiment())

    with pytest.raises(ValueError, match="credit is a number"):
        store.record_outcomes([outcome("q1", float("nan"), 1.0)])
    with pytest.raises(FeedbackError, match="no such experiment: e9"):
        store.record_outcomes([replace(outcome("q1", 0.0, 1.0), experiment_id="e9")])
    assert store.outcomes("e1") == []


def test_an_import_and_a_restore_leave_one_experiment_running(store: FeedbackStore, tmp_path: Path) -> None:
    lines: list[bytes] = []
    store.start_experiment(experiment("e1", memory="home"))
    store.start_experiment(experiment("e2", memory="work"))
    store.copy_into(tmp_path / "copy.db")
    store.export(lines.append, memory="home")

    with FeedbackStore.open(tmp_path / "imported.db") as other:
        found = other.import_(lines, memory="work")
        assert (found.added, len(found.left_out)) == ({"experiments": 1}, 1)
        assert "e2" in found.left_out[0]
        assert [one.id for one in other.experiments()] == ["e1"]
    with FeedbackStore.open(tmp_path / "restored.db") as other:
        other.restore_from(tmp_path / "copy.db", memory="work", was="home")
        assert [(one.id, one.memory) for one in other.experiments()] == [("e1", "home"), ("e2", "work")]
