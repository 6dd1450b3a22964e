"""The graph memory: facts about people and things with the time in which they hold, kept by Graphiti."""

from composable_memory.interfaces import BackendSpec, Capability, OpenBackend
from composable_memory_adapters.graphiti.database.requirements import lacking
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.late_opening import opened_late

__all__ = ["GraphitiSettings", "spec"]


def _load() -> OpenBackend:
    from composable_memory_adapters.graphiti.backend import open_graphiti

    return open_graphiti


spec = BackendSpec(
    id="graphiti",
    summary="Facts and relations with the time in which they hold, in a graph",
    settings=GraphitiSettings,
    open=opened_late(_load),
    capabilities=frozenset(
        {
            Capability.ANSWER,
            Capability.CALIBRATED,
            Capability.FACTS,
            Capability.INGEST,
            Capability.READ_FILE,
            Capability.SYNC,
        }
    ),
    lacks=lacking,
)
