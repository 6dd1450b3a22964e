"""What the graph memory offers as a backend."""

from collections.abc import Sequence
from pathlib import Path

from composable_memory.interfaces import BackendSpec, Capability, KeptStore
from composable_memory.supervision.resource import lazy_open
from composable_memory_adapters.graphiti.database.requirements import lacking
from composable_memory_adapters.graphiti.settings import GraphitiSettings


def _stored_sizes(state_dir: Path) -> Sequence[KeptStore]:
    from composable_memory_adapters.graphiti.outbox.storage import stored_sizes

    return stored_sizes(state_dir)


spec = BackendSpec(
    id="graphiti",
    summary="Facts and relations with the time in which they hold, in a graph",
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
    kept=_stored_sizes,
)
