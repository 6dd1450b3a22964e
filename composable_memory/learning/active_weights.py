"""Says which weights are in force, by the settings and the store, and hands them to a running manager."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from composable_memory.learning.context import LearningContext
from composable_memory.query.weights import LiveWeights, WeightsInForce, WeightTable

if TYPE_CHECKING:
    from composable_memory_feedback.experiments.values import ExperimentRecord

__all__ = ["WeightsReport", "activate", "active_weights"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsReport:
    """The weights in force, and those of the settings.

    `since` is when an adopted table came into force; None where the settings' own are. `set_aside` says why
    an adopted table is not in force.
    """

    table: WeightTable
    base: WeightTable
    since: datetime | None = None
    set_aside: str | None = None
    experiment: "ExperimentRecord | None" = None


async def active_weights(context: LearningContext) -> WeightsReport:
    """Return the weights in force, and why an adopted table is not, if so.

    An adopted table counts as long as the settings say of the weights what they said when it was adopted.

    Raises:
        FeedbackError: the store cannot be read.
    """
    found = await context.stored_if_any(
        lambda store: (store.current(), store.running_experiment(context.mark))
    )
    stored, experiment = found or (None, None)
    base = context.base
    if stored is None:
        return WeightsReport(table=base, base=base, experiment=experiment)
    if dict(stored.base) != dict(base.weights):
        problem = (
            f"{stored.table.version} is set aside: the weights or the backends of the settings changed "
            f"after it was adopted; `cmem weights rollback {stored.table.version}` puts it in force again"
        )
        return WeightsReport(table=base, base=base, set_aside=problem, experiment=experiment)
    return WeightsReport(table=stored.table, base=base, since=stored.since, experiment=experiment)


async def activate(context: LearningContext, live: LiveWeights | None) -> WeightsReport:
    """Put in force what the store says, for the next query, and return it.

    Raises:
        FeedbackError: the store cannot be read; what was in force stays.
    """
    report = await active_weights(context)
    if live is not None:
        live.put(WeightsInForce(table=report.table, experiment=report.experiment, set_aside=report.set_aside))
    return report
