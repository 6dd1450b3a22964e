"""Weights in the feedback store: versions, history, going back."""

from dataclasses import replace

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import WeightChange, WeightTable
from tests.unit.feedback.store_makers import HOUR, NOON, table

BASE = {"builtin": 0.7, "graphiti": 0.3}
GAIN = Interval(mean=0.02, low=0.01, high=0.1 + 0.2)


def adopt(store: FeedbackStore, one: WeightTable) -> WeightTable:
    return store.adopt(one, base=BASE, actor="cli", at=NOON)


def test_an_adopted_table_is_in_force_under_the_next_version(store: FeedbackStore) -> None:
    assert store.current() is None

    first = adopt(store, table())
    second = store.adopt(table(0.1 + 0.2), base=BASE, actor="loop", at=NOON + HOUR, gain=GAIN)

    assert (first.version, second.version) == ("v1", "v2")
    assert second == replace(table(0.1 + 0.2), version="v2")
    current = store.current()
    assert current is not None
    assert (current.table, current.base, current.at) == (second, BASE, NOON + HOUR)
    assert (store.table("v1"), store.table("v2")) == (first, second)


def test_the_history_tells_what_replaced_what(store: FeedbackStore) -> None:
    first = adopt(store, table())
    second = store.adopt(table(0.5), base=BASE, actor="loop", at=NOON + HOUR, gain=GAIN)
    store.rollback(None, actor="Ada", at=NOON + 2 * HOUR)

    back, adopted, _ = store.history()
    assert adopted == WeightChange(
        table=second,
        at=NOON + HOUR,
        actor="loop",
        action="adopt",
        reason="it answers better",
        base=BASE,
        replaced="v1",
        gain=GAIN,
    )
    assert back == WeightChange(
        table=first,
        at=NOON + 2 * HOUR,
        actor="Ada",
        action="rollback",
        reason="back from v2 to v1",
        base=BASE,
        replaced="v2",
    )
    assert store.history(1) == [back]


def test_going_back_twice_goes_back_by_two_and_ends_at_the_settings(store: FeedbackStore) -> None:
    for weight in (0.9, 0.8, 0.7):
        adopt(store, table(weight))

    back = [store.rollback(None, actor="cli", at=NOON) for _ in range(3)]

    assert [one.version if one else None for one in back] == ["v2", "v1", None]
    assert store.current() is None
    assert (store.history(1)[0].action, store.history(1)[0].version) == ("reset", None)
    with pytest.raises(FeedbackError, match="nothing to roll back to"):
        store.rollback(None, actor="cli", at=NOON)


def test_versions_are_never_used_again(store: FeedbackStore) -> None:
    adopt(store, table())
    store.rollback("settings", actor="cli", at=NOON)

    again = adopt(store, table())

    assert again.version == "v2"
    assert store.rollback(None, actor="cli", at=NOON) is None, "it was adopted over the settings"


def test_going_to_a_version_works_from_anywhere(store: FeedbackStore) -> None:
    for weight in (0.9, 0.8):
        adopt(store, table(weight))
    store.rollback("settings", actor="cli", at=NOON)

    assert store.rollback("v2", actor="cli", at=NOON, base={"builtin": 1.0}) == store.table("v2")
    current = store.current()
    assert current is not None
    assert (current.version, current.base) == ("v2", {"builtin": 1.0})


def test_an_unknown_version_is_refused_with_those_that_there_are(store: FeedbackStore) -> None:
    adopt(store, table())
    adopt(store, table(0.5))

    with pytest.raises(FeedbackError, match="no such version of the weights: v9; known versions: v2, v1"):
        store.rollback("v9", actor="cli", at=NOON)
    with pytest.raises(FeedbackError, match="known versions: v2, v1"):
        store.table("v9")


def test_what_is_in_force_cannot_be_gone_back_to(store: FeedbackStore) -> None:
    adopt(store, table())

    with pytest.raises(FeedbackError, match="already active: v1"):
        store.rollback("v1", actor="cli", at=NOON)
    assert len(store.history()) == 1


def test_the_version_in_force_can_be_put_over_settings_that_changed(store: FeedbackStore) -> None:
    adopted = adopt(store, table())

    assert store.rollback("v1", actor="cli", at=NOON + HOUR, base={"builtin": 1.0}) == adopted
    current = store.current()
    assert current is not None
    assert (current.table, current.base, current.at) == (adopted, {"builtin": 1.0}, NOON + HOUR)
    assert store.history(1)[0].reason == "v1 over changed settings"
    with pytest.raises(FeedbackError, match="already active: v1"):
        store.rollback("v1", actor="cli", at=NOON, base={"builtin": 1.0})


def test_the_mark_of_changes_grows_with_changes_only(store: FeedbackStore) -> None:
    before = store.change_mark()
    store.current()
    assert store.change_mark() == before

    adopt(store, table())

    assert store.change_mark() > before
