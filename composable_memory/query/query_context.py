"""What holds for one query from its beginning to its end, whatever changes meanwhile."""

from collections.abc import Mapping
from dataclasses import field

from composable_memory.query.live_weights import ActiveWeights, WeightTable
from composable_memory.query.near_duplicates import NearTexts
from composable_memory.query.ranking import CalibrationRule, MergePolicy
from composable_memory_feedback.intents import IntentKind
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryContext:
    """What holds for one query of one composite from its beginning to its end.

    `kind` is that of the question, and `weights` are those of each backend for it. `memory` is the mark of
    the memory, where several share one log. `texts` compares what is found.
    """

    query_id: str
    manager_id: str
    active_weights: ActiveWeights
    kind: IntentKind
    weights: Mapping[str, float]
    rules: Mapping[str, CalibrationRule]
    policy: MergePolicy
    memory: str | None = None
    texts: NearTexts = field(default_factory=NearTexts)

    def weights_of(self, table: WeightTable) -> dict[str, float]:
        """Return the weight that a table gives each backend for this kind of question."""
        return {backend_id: table.of(backend_id, self.kind) for backend_id in self.weights}
