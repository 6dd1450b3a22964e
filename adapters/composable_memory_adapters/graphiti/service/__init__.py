"""A Graphiti REST service, as a client and as a fact store."""

from composable_memory_adapters.graphiti.service.client import GraphitiClient
from composable_memory_adapters.graphiti.service.store import open_service

__all__ = ["GraphitiClient", "open_service"]
