"""What the graph memory of one workspace consists of."""

from composable_memory.interfaces import BackendServices
from composable_memory_adapters.graphiti.fact_stores import FactStore
from composable_memory_adapters.graphiti.groups import GroupScope
from composable_memory_adapters.graphiti.outbox.adoption import Adoption
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.outbox.worker import Worker
from composable_memory_adapters.graphiti.settings import GraphitiSettings, IngestSettings
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphParts:
    """The open parts; `adoption` knows which groups are the workspace's."""

    settings: GraphitiSettings
    services: BackendServices
    store: FactStore
    outbox: Outbox
    worker: Worker
    adoption: Adoption

    @property
    def scope(self) -> GroupScope:
        """Return the groups that the workspace reads and writes."""
        return self.adoption.scope


def ingest_settings(settings: GraphitiSettings) -> IngestSettings:
    """Return how contents become facts; a service has no way to replace several episodes by one."""
    unmerged = {"merge_after_days": 0.0} if settings.service_url else {}
    return settings.ingest.model_copy(update=unmerged)
