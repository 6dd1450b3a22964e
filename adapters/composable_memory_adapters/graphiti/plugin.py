"""Registers the graph memory as a backend."""

from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.supervision.resource import lazy_call, lazy_open
from composable_memory_adapters.graphiti.database.requirements import lacking
from composable_memory_adapters.graphiti.settings import GraphitiSettings

spec = BackendSpec(
    id="graphiti",
    summary="Facts and relations in a graph, with the time they were true",
    settings=GraphitiSettings,
    open=lazy_open("composable_memory_adapters.graphiti.backend:open_graphiti"),
    capabilities=frozenset(
        {
            Capability.ANSWER,
            Capability.BACKUP,
            Capability.CALIBRATED,
            Capability.FACTS,
            Capability.FORGET,
            Capability.INGEST,
            Capability.READ_FILE,
            Capability.REFRESH,
            Capability.SYNC,
        }
    ),
    lacks=lacking,
    kept=lazy_call("composable_memory_adapters.graphiti.outbox.storage:stored_sizes"),
)
