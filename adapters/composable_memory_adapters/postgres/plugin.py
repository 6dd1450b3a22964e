"""What the PostgreSQL memory offers as a backend."""

from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from composable_memory.config.trust import anything, only, paths_inside
from composable_memory.interfaces import (
    BackendSpec,
    Capability,
    FeedbackServices,
    LogServices,
    LogStore,
)
from composable_memory.supervision.resource import lazy_open
from composable_memory_adapters.postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from composable_memory_feedback.store.store import FeedbackStore


def _missing() -> str | None:
    if find_spec("asyncpg") is None:
        return "asyncpg is not installed; pip install 'composable-memory[postgres]'"
    return None


def _open_feedback(settings: PostgresSettings, services: FeedbackServices) -> "FeedbackStore":
    from composable_memory_adapters.postgres.feedback import PostgresFeedbackStore

    return PostgresFeedbackStore(settings, services)


def _open_log_store(
    settings: PostgresSettings, services: LogServices
) -> AbstractAsyncContextManager[LogStore]:
    from composable_memory_adapters.postgres.log_lines import open_log_store

    return open_log_store(settings, services)


spec = BackendSpec(
    id="postgres",
    summary="Notes of many machines in a PostgreSQL server with pgvector, searched by words and by meaning",
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
    open_feedback=_open_feedback,
    open_log_store=_open_log_store,
    trust={
        **dict.fromkeys(("scope", "chunking.*", "sync.*", "query.*"), anything),
        "query.rerank": only("auto", "off", "late-interaction"),  # another one may send texts to a service
        "sources": only(["memory"], []),
        "extra_paths": paths_inside,
    },
)
