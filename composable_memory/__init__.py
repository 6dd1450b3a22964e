"""Ask all memories of an agent at once: one routed, weighted, cited and traced answer."""

from importlib.metadata import PackageNotFoundError, version

from composable_memory.breaker import Breaker
from composable_memory.calibration import Calibration
from composable_memory.entries import ComposableBackendEntry
from composable_memory.errors import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    ComposableMemoryError,
    ConfigError,
    MemoryPathError,
)
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

try:
    __version__ = version("composable-memory")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"

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
    "Fusion",
    "Memory",
    "MemoryPathError",
    "MemorySearchManager",
    "MemorySearchResult",
    "MergePolicy",
    "QueryIntent",
    "QueryRequest",
    "QueryResponse",
    "SearchOptions",
    "WeightTable",
    "__version__",
    "open_memory",
    "parse_query_intent",
]
