"""The graph memory: facts about people and things with the time in which they hold, kept by Graphiti."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.plugin import spec
    from composable_memory_adapters.graphiti.settings import GraphitiSettings

__all__ = ["GraphitiSettings", "spec"]

if not TYPE_CHECKING:  # a type checker would take this for a promise of any name

    def __getattr__(name: str) -> object:
        """Import what is asked for: `cmem --help` lists the commands of this package without its settings."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.plugin"), name)
