"""Weight tables, intervals and gains, as text and as JSON, for all commands that show some."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from pydantic import JsonValue

from composable_memory.cli.command import Target
from composable_memory.cli.output import warn
from composable_memory.json_documents import document
from composable_memory.learning import Learning, open_learning
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import WeightTable

HOW_TO_JUDGE = "run `cmem feedback evaluate`, or `cmem feedback add TRACE_ID 1 --relevance 1`"
ALL_QUESTIONS = "all"
"""What the weights without a kind of question are called."""
SETTINGS = "settings"
"""The version of the weights that no table was adopted over."""
BY_HAND = "fixed-"
"""How the versions of tables begin that were given as weights, and have no name."""
LEAST_PLAIN, OVER_PLAIN = 0.0005, 100_000.0
"""Between these, a weight is written with digits after the point."""


@asynccontextmanager
async def opened_learning(target: Target, of: str | None = None) -> AsyncIterator[Learning]:
    """Open what a memory has learnt, or that `of` another folder; remarks on its store are printed last."""
    async with open_learning(target.workspace, of=of, state_dir=target.state_dir) as learning:
        try:
            yield learning
        finally:
            if learning.context.remark:
                warn(learning.context.remark)


def table_document(table: WeightTable | None) -> dict[str, JsonValue] | None:
    """Return a table as JSON; `byIntent` holds what differs for questions of a kind."""
    if table is None:
        return None
    return document(version=table.version, weights=table.weights, by_intent=table.by_intent)


def format_table(table: WeightTable) -> str:
    """Return a table on one line: `v3 (builtin 1.00, graphiti 0.50; time: builtin 0.40)`."""
    rows = [format_weights(table.weights) or "each backend 1.00"]
    rows += [f"{kind}: {format_weights(weights)}" for kind, weights in sorted(table.by_intent.items())]
    text = "; ".join(rows)
    return text if table.version.startswith(BY_HAND) else f"{table.version} ({text})"


def format_weight(value: float) -> str:
    """Return a weight with two digits after the point, or three where it has them: `0.60`, `0.625`.

    One too large or too small for that is written as `1e+06` or `2e-05`, so that only 0 looks like 0.
    """
    if value and not LEAST_PLAIN <= value < OVER_PLAIN:
        return f"{value:.3g}"
    return f"{value:.3f}".removesuffix("0")


def format_weights(weights: Mapping[str, float], backends: Sequence[str] = ()) -> str:
    """Return `builtin 0.60, graphiti 0.30`: those of `backends` first, in their order."""
    order = [*(one for one in backends if one in weights), *sorted(weights.keys() - {*backends})]
    return ", ".join(f"{one} {format_weight(weights[one])}" for one in order)


def format_gain(gain: Interval) -> str:
    """Return a mean and its 95 % interval: `+0.012 (+0.004 .. +0.020)`."""
    return f"{gain.mean:+.3f} ({gain.low:+.3f} .. {gain.high:+.3f})"


def format_range(interval: Interval) -> str:
    """Return the ends of an interval of weights: `0.41 .. 0.63`."""
    return f"{format_weight(interval.low)} .. {format_weight(interval.high)}"


def format_time(moment: datetime) -> str:
    """Return a moment to the minute, in local time."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")
