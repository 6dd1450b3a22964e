"""The PostgreSQL memory: notes of many machines on one server with pgvector, a tenant for each workspace."""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy import lazy_names

if TYPE_CHECKING:
    from composable_memory_adapters.postgres.plugin import spec
    from composable_memory_adapters.postgres.settings import PostgresSettings

__all__ = ["PostgresSettings", "spec"]

if not TYPE_CHECKING:  # `cmem --help` lists the commands of this package without its settings
    __getattr__, __dir__ = lazy_names(__name__, {"plugin": "PostgresSettings spec"})
