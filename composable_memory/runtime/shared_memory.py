"""An open memory in the hands of several: whoever closes it closes it for all."""

from collections.abc import Callable, Coroutine, Sequence

from composable_memory.interfaces import Capability, ProgressCallback
from composable_memory.query.context_pack import DEFAULT_MAX_CHARS
from composable_memory.runtime.opening import Memory
from composable_memory.supervision.tasks import Once
from composable_memory.types import (
    ContextPack,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    QueryRequest,
    QueryResponse,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)

__all__ = ["SharedMemory"]


class SharedMemory:
    """The `MemorySearchManager`, `SupportsSync` and `QueryOrchestrator` over all backends of a memory."""

    def __init__(
        self, memory: Memory, release: Callable[["SharedMemory"], Coroutine[object, object, None]]
    ) -> None:
        """Share `memory`, which `release` closes."""
        self.memory = memory
        self._close = Once(lambda: release(self), name="close shared memory")

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what the backends can do."""
        return self.memory.manager.capabilities

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return the merged results, best first.

        Raises:
            BackendUnavailable: every backend failed, or it is closed.
        """
        return await self.memory.manager.search(query, options)

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and say what is missing from the answer."""
        return await self.memory.manager.answer(query, options)

    async def query(self, request: QueryRequest | str) -> QueryResponse:
        """Ask, and return the results with everything that explains them."""
        return await self.memory.query(request)

    async def context_pack(
        self,
        request: QueryRequest | str,
        *,
        max_chars: int = DEFAULT_MAX_CHARS,
        max_tokens: int | None = None,
    ) -> ContextPack:
        """Return the best results as one text of `max_chars` characters, or `max_tokens` tokens, at most."""
        return await self.memory.context_pack(request, max_chars=max_chars, max_tokens=max_tokens)

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Read a memory file, or `lines` lines of it from the 1-based `from_line` on.

        Raises:
            MemoryPathError: the path is not a memory file.
        """
        return await self.memory.read_file(rel_path, from_line=from_line, lines=lines)

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Bring every index up to date; `force` rebuilds them.

        Raises:
            BackendError: no index could be synced.
        """
        return await self.memory.manager.sync(reason=reason, force=force, progress=progress)

    def status(self) -> MemoryProviderStatus:
        """Return a snapshot of the primary, with what the composite adds under `custom`."""
        return self.memory.manager.status()

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Say whether any backend can embed."""
        return await self.memory.manager.probe_embedding_availability()

    async def probe_vector_availability(self) -> bool:
        """Say whether any backend can search vectors."""
        return await self.memory.manager.probe_vector_availability()

    async def close(self) -> None:
        """Close it for everybody; calling it again does nothing.

        A call that is cancelled waits no longer, but it is closed all the same.
        """
        await self._close()
