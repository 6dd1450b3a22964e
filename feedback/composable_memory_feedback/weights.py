"""Weights of the backends for each kind of question: a versioned table, named by every logged ranking."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from math import isfinite
from typing import Literal

from composable_memory_feedback.metrics import Interval
from composable_memory_ops_logs.quick_dataclass import dataclass


class IntentKind(StrEnum):
    """What a question is mostly about, by the words in it."""

    TIME = "time"
    """It mentions a time, such as "last week"."""
    TOPIC = "topic"
    """It names a topic, as in "about the greenhouse" or "#outage"."""
    ENTITY = "entity"
    """It names something: a person, a file, a product."""
    GENERAL = "general"
    """None of these."""


def intent_kind(*, entities: Sized, topics: Sized, time_hints: Sized) -> IntentKind:
    """Return the kind of a question; if several fit, time takes precedence over topic over entity."""
    if len(time_hints):
        return IntentKind.TIME
    if len(topics):
        return IntentKind.TOPIC
    return IntentKind.ENTITY if len(entities) else IntentKind.GENERAL


DEFAULT_WEIGHT = 1.0
SAME = 1e-9
"""Weights, and scores, that differ by less are equal; covers rounding errors."""


def is_weight(value: float) -> bool:
    """Return whether a number can be a weight: finite, and 0 or more."""
    return isfinite(value) and value >= 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTable:
    """One weight per backend, at least 0; a backend that is not listed has `DEFAULT_WEIGHT`.

    `by_intent` has what differs for questions of one kind; what it does not list is as in `weights`. A
    backend with weight 0 is asked and logged, but none of its results is returned. Only the proportions of
    weights matter to a ranking.
    """

    weights: Mapping[str, float]
    version: str
    made_at: datetime
    reason: str
    by_intent: Mapping[IntentKind, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in (self.weights, *self.by_intent.values()):
            for backend_id, weight in table.items():
                if not is_weight(weight):
                    raise ValueError(f"the weight of {backend_id!r} is {weight}; give a number of 0 or more")

    def __getitem__(self, backend_id: str) -> float:
        return self.weights.get(backend_id, DEFAULT_WEIGHT)

    def of(self, backend_id: str, kind: IntentKind | None = None) -> float:
        """Return the weight of a backend for questions of a kind."""
        own = self.by_intent.get(kind, {}) if kind is not None else {}
        # A float: a weight written as 1 and read back as 1.0 would not give the same bytes again.
        return float(own.get(backend_id, self[backend_id]))

    def proportions(self, backends: Sequence[str], kind: IntentKind | None = None) -> dict[str, float]:
        """Return the weights for questions of a kind with the heaviest of `backends` as 1; only that ranks.

        All are 0 if every weight is 0.
        """
        weights = {one: self.of(one, kind) for one in backends}
        heaviest = max(weights.values(), default=0.0) or 1.0
        return {one: weight / heaviest for one, weight in weights.items()}

    @classmethod
    def fixed(
        cls,
        weights: Mapping[str, float],
        *,
        by_intent: Mapping[IntentKind, Mapping[str, float]] | None = None,
        reason: str = "settings",
        made_at: datetime | None = None,
    ) -> "WeightTable":
        """Return a table of weights set by hand; equal weights have equal versions."""
        by_intent = by_intent or {}
        text = ";".join(f"{kind}:{_as_text(table)}" for kind, table in sorted(by_intent.items()))
        text = _as_text(weights) + (f";{text}" if text else "")
        return cls(
            weights=dict(weights),
            by_intent={kind: dict(table) for kind, table in by_intent.items()},
            version=f"fixed-{sha256(text.encode()).hexdigest()[:8]}",
            made_at=made_at or datetime.now(UTC),
            reason=reason,
        )


WeightAction = Literal["adopt", "rollback", "reset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChange:
    """One entry in the history of weights: `table` became active, None for the weights of the settings.

    `base` are the weights that the settings had then, and `replaced` is the version that was active before.
    """

    table: WeightTable | None
    at: datetime
    actor: str
    action: WeightAction
    reason: str
    base: Mapping[str, float]
    replaced: str | None = None
    gain: Interval | None = None

    @property
    def version(self) -> str | None:
        """Return the version of the table; None for the weights of the settings."""
        return None if self.table is None else self.table.version


def kinds_of(*tables: WeightTable) -> tuple[IntentKind, ...]:
    """Return the kinds of questions for which any of the tables has weights of its own."""
    named = {kind for table in tables for kind in table.by_intent}
    return tuple(kind for kind in IntentKind if kind in named)


def are_same(one: Mapping[str, float], other: Mapping[str, float], *, tolerance: float = SAME) -> bool:
    """Return whether the weights of two rows are equal; what a row does not list is 0."""
    names = one.keys() | other.keys()
    return all(abs(one.get(name, 0.0) - other.get(name, 0.0)) < tolerance for name in names)


def same_proportions(
    one: WeightTable, other: WeightTable, *, backends: Sequence[str], tolerance: float = SAME
) -> bool:
    """Return whether two tables rank alike: the same proportions of `backends` for every kind of question."""
    return all(
        are_same(one.proportions(backends, kind), other.proportions(backends, kind), tolerance=tolerance)
        for kind in (None, *kinds_of(one, other))
    )


def _as_text(weights: Mapping[str, float]) -> str:
    return ",".join(f"{one}={float(weights[one])!r}" for one in sorted(weights))
