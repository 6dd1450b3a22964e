"""What the settings of a graph memory need on this machine, and how to get what is lacking."""

from importlib.util import find_spec
from urllib.parse import urlsplit

from composable_memory_adapters.graphiti.database import binaries
from composable_memory_adapters.graphiti.settings import GraphitiSettings

__all__ = ["is_neo4j", "lacking"]

NEO4J_SCHEMES = ("bolt", "neo4j")
LIBRARY = "graphiti_core", "graphiti-core"
FALKORDB = "falkordb", "falkordb"
NEO4J = "neo4j", "neo4j"
"""A module, and the package that brings it."""


def lacking(settings: GraphitiSettings) -> str | None:
    """Say what is not installed for the place that the settings name; None when nothing is lacking.

    Looks at the disk and imports nothing. A REST service needs nothing but this package.
    """
    if settings.service_url:
        return None
    for module, package in (LIBRARY, NEO4J if is_neo4j(settings) else FALKORDB):
        if find_spec(module) is None:
            return f"the package {package} is not installed; {binaries.INSTALL}"
    return None if settings.url else binaries.missing()


def is_neo4j(settings: GraphitiSettings) -> bool:
    """Say whether the settings name a Neo4j."""
    return urlsplit(settings.url or "").scheme.startswith(NEO4J_SCHEMES)
