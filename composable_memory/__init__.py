"""Ask all memories of an agent at once: one routed, weighted, cited and traced answer."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composable_memory.breaker import Breaker
    from composable_memory.calibration import Calibration
    from composable_memory.content import IngestReport, MemoryContentObject
    from composable_memory.entries import ComposableBackendEntry
    from composable_memory.errors import (
        BackendError,
        BackendTimeout,
        BackendUnavailable,
        ComposableMemoryError,
        ConfigError,
        MemoryPathError,
    )
    from composable_memory.factory import (
        MemorySearchManagers,
        ResolvedMemoryBackendConfig,
        SearchManagerResult,
        close_all_memory_search_managers,
        get_memory_search_manager,
        resolve_memory_backend_config,
    )
    from composable_memory.facts import Fact
    from composable_memory.fallback import FallbackMemoryManager
    from composable_memory.intent import parse_query_intent
    from composable_memory.interfaces import (
        BackendServices,
        BackendSpec,
        Capability,
        EmbedderAdapter,
        MemorySearchManager,
    )
    from composable_memory.manager import ComposableMemoryManager
    from composable_memory.merge import Dedup, Fusion
    from composable_memory.ranking import MergePolicy
    from composable_memory.runtime import Memory, open_memory
    from composable_memory.types import (
        MemorySearchResult,
        QueryIntent,
        QueryRequest,
        QueryResponse,
        SearchOptions,
    )
    from composable_memory.weights import WeightTable

    __version__: str

__all__ = [
    "BackendError",
    "BackendServices",
    "BackendSpec",
    "BackendTimeout",
    "BackendUnavailable",
    "Breaker",
    "Calibration",
    "Capability",
    "ComposableBackendEntry",
    "ComposableMemoryError",
    "ComposableMemoryManager",
    "ConfigError",
    "Dedup",
    "EmbedderAdapter",
    "Fact",
    "FallbackMemoryManager",
    "Fusion",
    "IngestReport",
    "Memory",
    "MemoryContentObject",
    "MemoryPathError",
    "MemorySearchManager",
    "MemorySearchManagers",
    "MemorySearchResult",
    "MergePolicy",
    "QueryIntent",
    "QueryRequest",
    "QueryResponse",
    "ResolvedMemoryBackendConfig",
    "SearchManagerResult",
    "SearchOptions",
    "WeightTable",
    "__version__",
    "close_all_memory_search_managers",
    "get_memory_search_manager",
    "open_memory",
    "parse_query_intent",
    "resolve_memory_backend_config",
]

_ROOMS = {
    "breaker": "Breaker",
    "calibration": "Calibration",
    "content": "IngestReport MemoryContentObject",
    "entries": "ComposableBackendEntry",
    "errors": (
        "BackendError BackendTimeout BackendUnavailable ComposableMemoryError ConfigError MemoryPathError"
    ),
    "factory": (
        "MemorySearchManagers ResolvedMemoryBackendConfig SearchManagerResult "
        "close_all_memory_search_managers get_memory_search_manager resolve_memory_backend_config"
    ),
    "facts": "Fact",
    "fallback": "FallbackMemoryManager",
    "intent": "parse_query_intent",
    "interfaces": "BackendServices BackendSpec Capability EmbedderAdapter MemorySearchManager",
    "manager": "ComposableMemoryManager",
    "merge": "Dedup Fusion",
    "ranking": "MergePolicy",
    "runtime": "Memory open_memory",
    "types": "MemorySearchResult QueryIntent QueryRequest QueryResponse SearchOptions",
    "weights": "WeightTable",
}

if not TYPE_CHECKING:  # a type checker would take this for a promise of any name

    def __getattr__(name: str) -> object:
        """Import what is asked for: all of it takes twice as long as all else that `cmem --help` does."""
        if name == "__version__":
            value = _installed_version()
        elif room := next((room for room, names in _ROOMS.items() if name in names.split()), None):
            value = getattr(import_module(f"composable_memory.{room}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("composable-memory")
    except PackageNotFoundError:  # a checkout that was never installed
        return "0+unknown"
