"""How weights, intervals and gains are told to people, and columns of them (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import WeightTable

__all__ = [
    "ALL_QUESTIONS",
    "SETTINGS",
    "columns",
    "kinds_of",
    "proportions",
    "told_gain",
    "told_moment",
    "told_range",
    "told_weight",
    "told_weights",
]

ALL_QUESTIONS = "all"
"""What the weights without a kind of question are told as."""

SETTINGS = "settings"
"""The version of the weights that no table was adopted over."""

LEAST_PLAIN, OVER_PLAIN = 0.0005, 100_000.0
"""Between these, a weight is told with digits after the point."""


def told_weight(value: float) -> str:
    """Return a weight with two digits after the point, or three where it has them: `0.60`, `0.625`.

    One too large or too small for that is told as `1e+06` or `2e-05`, so that only 0 looks like 0.
    """
    if value and not LEAST_PLAIN <= value < OVER_PLAIN:
        return f"{value:.3g}"
    return f"{value:.3f}".removesuffix("0")


def told_weights(weights: Mapping[str, float], backends: Sequence[str] = ()) -> str:
    """Return `builtin 0.60, graphiti 0.30`: those of `backends` first, in their order."""
    order = [*(one for one in backends if one in weights), *sorted(weights.keys() - {*backends})]
    return ", ".join(f"{one} {told_weight(weights[one])}" for one in order)


def told_gain(gain: Interval) -> str:
    """Return a mean and its 95 % interval: `+0.012 (+0.004 .. +0.020)`."""
    return f"{gain.mean:+.3f} ({gain.low:+.3f} .. {gain.high:+.3f})"


def told_range(interval: Interval) -> str:
    """Return the ends of an interval of weights: `0.41 .. 0.63`."""
    return f"{told_weight(interval.low)} .. {told_weight(interval.high)}"


def told_moment(moment: datetime) -> str:
    """Return a moment to the minute, as the clock on the wall had it."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def kinds_of(*tables: WeightTable) -> tuple[IntentKind, ...]:
    """Return the kinds of questions for which any of the tables has weights of its own."""
    named = {kind for table in tables for kind in table.by_intent}
    return tuple(kind for kind in IntentKind if kind in named)


def proportions(table: WeightTable, kind: IntentKind | None, backends: Sequence[str]) -> dict[str, float]:
    """Return the weights for questions of a kind with the heaviest of `backends` as 1; only that ranks."""
    weights = {one: table.of(one, kind) for one in backends}
    peak = max(weights.values(), default=0.0) or 1.0
    return {one: weight / peak for one, weight in weights.items()}


def columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Iterator[str]:
    """Yield a line for each row, its cells under those of the others; the numbers in `right` end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()
