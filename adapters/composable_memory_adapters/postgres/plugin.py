"""The plugin for the PostgreSQL memory as a backend."""

from importlib.util import find_spec

from composable_memory.config.trust import anything, only, paths_inside
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.supervision.resource import lazy_call, lazy_open
from composable_memory_adapters.postgres.settings import PostgresSettings


def _missing() -> str | None:
    if find_spec("asyncpg") is None:
        return "asyncpg is not installed; pip install 'composable-memory[postgres]'"
    return None


spec = BackendSpec(
    id="postgres",
    summary="Notes from many machines in a PostgreSQL server with pgvector, searched by words and by meaning",
    settings=PostgresSettings,
    open=lazy_open("composable_memory_adapters.postgres.backend:open_postgres"),
    capabilities=frozenset(
        {
            Capability.ANSWER,
            Capability.CALIBRATED,
            Capability.FORGET,
            Capability.READ_FILE,
            Capability.SYNC,
        }
    ),
    missing=_missing,
    open_feedback=lazy_call("composable_memory_adapters.postgres.feedback:PostgresFeedbackStore"),
    open_log_store=lazy_open("composable_memory_adapters.postgres.log_lines:open_log_store"),
    trust={
        **dict.fromkeys(("scope", "chunking.*", "sync.*", "query.*"), anything),
        "query.rerank": only("auto", "off", "late-interaction"),  # another one may send texts to a service
        "sources": only(["memory"], []),
        "extra_paths": paths_inside,
    },
)
