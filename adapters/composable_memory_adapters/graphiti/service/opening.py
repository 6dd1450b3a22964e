"""Opens the place for facts behind a Graphiti REST service, from the settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from composable_memory.interfaces import BackendServices
from composable_memory_adapters.graphiti.groups import default_group, group_of
from composable_memory_adapters.graphiti.service.client import GraphitiClient
from composable_memory_adapters.graphiti.service.store import ServiceStore
from composable_memory_adapters.graphiti.settings import GraphitiSettings

__all__ = ["open_service"]

TIMEOUT_MS = 60_000
"""Longest wait for one reply; a search is given less, by the deadline of the backend."""


@asynccontextmanager
async def open_service(settings: GraphitiSettings, services: BackendServices) -> AsyncIterator[ServiceStore]:
    """Yield the service that the settings name; it is reached when it is first needed.

    What it is asked is not logged here: whoever asks the store does that.
    """
    client = GraphitiClient(
        base_url=settings.service_url,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        timeout_ms=TIMEOUT_MS,
        clock=services.clock,
    )
    store = ServiceStore(
        client,
        group=group_of(settings, default_group(services.agent_id, services.workspace_id), None),
        search=settings.search,
        clock=services.clock,
        stalled_after_s=settings.ingest.timeout_ms / 1000,
    )
    try:
        yield store
    finally:
        await store.close()
