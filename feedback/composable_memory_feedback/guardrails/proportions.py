"""Weights as a ranking sees them: in proportion to the heaviest, for each kind of question (pure)."""

from collections.abc import Sequence
from typing import TypeAlias

from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.weights import WeightTable

__all__ = ["TOLERANCE", "Row", "close", "kinds_of", "peak", "proportions", "same_proportions"]

TOLERANCE = 1e-9
"""Proportions that differ by less are equal; it covers what floating point loses."""

Row: TypeAlias = dict[str, float]
"""A weight per backend, for questions of one kind or for all."""


def peak(table: WeightTable, kind: IntentKind | None, backends: Sequence[str]) -> float:
    """Return the heaviest weight for questions of a kind; 0 without backends."""
    return max((table.of(one, kind) for one in backends), default=0.0)


def proportions(table: WeightTable, kind: IntentKind | None, backends: Sequence[str]) -> Row:
    """Return the weights for questions of a kind with the heaviest as 1; all 0 where every weight is 0."""
    heaviest = peak(table, kind, backends)
    return {one: table.of(one, kind) / heaviest if heaviest > 0.0 else 0.0 for one in backends}


def close(one: Row, other: Row, *, tolerance: float = TOLERANCE) -> bool:
    """Say whether two rows are equal; what a row does not list is 0."""
    return all(
        abs(one.get(name, 0.0) - other.get(name, 0.0)) < tolerance for name in one.keys() | other.keys()
    )


def kinds_of(*tables: WeightTable) -> list[IntentKind]:
    """Return the kinds that any of the tables has weights of their own for, in a fixed order."""
    return sorted({kind for table in tables for kind in table.by_intent})


def same_proportions(
    one: WeightTable, other: WeightTable, *, backends: Sequence[str], tolerance: float = TOLERANCE
) -> bool:
    """Say whether two tables rank alike: the same proportions of `backends` for every kind of question."""
    return all(
        close(proportions(one, kind, backends), proportions(other, kind, backends), tolerance=tolerance)
        for kind in (None, *kinds_of(one, other))
    )
