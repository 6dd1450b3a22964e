"""Which weights are in force: a running manager asks for every query, and others may change them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from composable_memory_feedback.weights import DEFAULT_WEIGHT, WeightTable, is_weight
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory_feedback.experiments.experiment_status import Experiment


__all__ = ["DEFAULT_WEIGHT", "ActiveWeights", "LiveWeights", "WeightTable", "is_weight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveWeights:
    """What ranks a query: a table, or for the time of an experiment the two tables that are compared.

    `set_aside` says why an adopted table is not in force.
    """

    table: WeightTable
    experiment: "Experiment | None" = None
    set_aside: str | None = None

    @property
    def version(self) -> str:
        """Return the version of the table."""
        return self.table.version


class LiveWeights:
    """Holds the weights in force; a query that is under way keeps those that it began with."""

    def __init__(self, table: WeightTable | Mapping[str, float]) -> None:
        fixed = table if isinstance(table, WeightTable) else WeightTable.fixed(table)
        self._now = ActiveWeights(table=fixed)
        self.lost: str | None = None
        """Why what was learnt could not be read yet, so that other weights are in force."""

    @property
    def now(self) -> ActiveWeights:
        """Return what is in force at this moment."""
        return self._now

    def put(self, weights: ActiveWeights) -> None:
        """Put other weights in force for all queries that begin from now on."""
        self._now = weights
        self.lost = None
