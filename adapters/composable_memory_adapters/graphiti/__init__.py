"""The graph memory: facts about people and things, with the times in which they hold, stored by Graphiti."""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy import lazy_names

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.plugin import spec
    from composable_memory_adapters.graphiti.settings import GraphitiSettings

__all__ = ["GraphitiSettings", "spec"]

if not TYPE_CHECKING:  # lets `cmem --help` list the commands of this package without loading its settings
    __getattr__, __dir__ = lazy_names(__name__, {"plugin": "GraphitiSettings spec"})
