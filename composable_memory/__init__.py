"""Search all of an agent's memories at once: one routed, weighted, cited and traced answer."""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy import lazy_names

if TYPE_CHECKING:
    from composable_memory.config.aliases import ResolvedMemoryBackendConfig
    from composable_memory.content import IngestReport, MemoryContentObject
    from composable_memory.errors import (
        BackendError,
        BackendTimeout,
        BackendUnavailable,
        ComposableMemoryError,
        ConfigError,
        MemoryPathError,
    )
    from composable_memory.facts import Fact
    from composable_memory.interfaces import (
        BackendServices,
        BackendSpec,
        Capability,
        EmbedderAdapter,
        MemorySearchManager,
    )
    from composable_memory.query.calibration import Calibration
    from composable_memory.query.fusion import Dedup, Fusion
    from composable_memory.query.intent import parse_query_intent
    from composable_memory.query.manager import ComposableMemoryManager
    from composable_memory.query.ranking import MergePolicy
    from composable_memory.query.routing import ComposableBackendEntry
    from composable_memory.runtime.blocking import BlockingMemory, open_memory_sync
    from composable_memory.runtime.factory import (
        MemorySearchManagers,
        SearchManagerResult,
        close_all_memory_search_managers,
        get_memory_search_manager,
        resolve_memory_backend_config,
    )
    from composable_memory.runtime.failover import FailoverMember, FallbackMemoryManager
    from composable_memory.runtime.memory import Memory
    from composable_memory.runtime.opening import open_memory
    from composable_memory.supervision.breaker import Breaker
    from composable_memory.types import (
        MemorySearchResult,
        QueryIntent,
        QueryRequest,
        QueryResponse,
        SearchOptions,
    )
    from composable_memory_feedback.weights import WeightTable

    __version__: str

__all__ = [
    "BackendError",
    "BackendServices",
    "BackendSpec",
    "BackendTimeout",
    "BackendUnavailable",
    "BlockingMemory",
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
    "FailoverMember",
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
    "open_memory_sync",
    "parse_query_intent",
    "resolve_memory_backend_config",
]

_MODULES = {
    "supervision.breaker": "Breaker",
    "query.calibration": "Calibration",
    "content": "IngestReport MemoryContentObject",
    "query.routing": "ComposableBackendEntry",
    "errors": (
        "BackendError BackendTimeout BackendUnavailable ComposableMemoryError ConfigError MemoryPathError"
    ),
    "config.aliases": "ResolvedMemoryBackendConfig",
    "runtime.factory": (
        "MemorySearchManagers SearchManagerResult "
        "close_all_memory_search_managers get_memory_search_manager resolve_memory_backend_config"
    ),
    "runtime.blocking": "BlockingMemory open_memory_sync",
    "facts": "Fact",
    "runtime.failover": "FailoverMember FallbackMemoryManager",
    "query.intent": "parse_query_intent",
    "interfaces": "BackendServices BackendSpec Capability EmbedderAdapter MemorySearchManager",
    "query.manager": "ComposableMemoryManager",
    "query.fusion": "Dedup Fusion",
    "query.ranking": "MergePolicy WeightTable",
    "runtime.memory": "Memory",
    "runtime.opening": "open_memory",
    "types": "MemorySearchResult QueryIntent QueryRequest QueryResponse SearchOptions",
}
"""Imported on demand: importing everything takes twice as long as all else that `cmem --help` does."""

if not TYPE_CHECKING:
    _imported, __dir__ = lazy_names(__name__, _MODULES)

    def __getattr__(name: str) -> object:
        return _installed_version() if name == "__version__" else _imported(name)


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("composable-memory")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0+unknown"
