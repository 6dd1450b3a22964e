"""The status of the memory, and a deep probe of it."""

from typing import TYPE_CHECKING

from pydantic import Field
from pydantic import JsonValue as AnyJson

from composable_memory.errors import ComposableMemoryError
from composable_memory.tools.document import Document
from composable_memory.tools.search import why_unavailable
from composable_memory.types import (
    BatchStatus,
    CacheStatus,
    Degradation,
    FallbackStatus,
    FtsStatus,
    MemoryEmbeddingProbeResult,
    MemoryProviderStatus,
    MemorySource,
    SourceCount,
    VectorStatus,
)

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

PROBE_QUERY = "ping"


class MemoryStatusRequest(Document):
    """Whether to try out what the status claims."""

    deep: bool = False


class ProviderStatus(Document):
    """The status of one memory: the fields of `MemoryProviderStatus`."""

    backend: str
    provider: str
    model: str | None = None
    requested_provider: str | None = None
    files: int | None = None
    chunks: int | None = None
    dirty: bool | None = None
    workspace_dir: str | None = None
    db_path: str | None = None
    extra_paths: tuple[str, ...] = ()
    sources: tuple[MemorySource, ...] = ()
    source_counts: tuple[SourceCount, ...] = ()
    cache: CacheStatus | None = None
    fts: FtsStatus | None = None
    fallback: FallbackStatus | None = None
    vector: VectorStatus | None = None
    batch: BatchStatus | None = None
    custom: dict[str, AnyJson] = Field(default_factory=dict)

    @classmethod
    def of(cls, status: MemoryProviderStatus) -> "ProviderStatus":
        """Return the document of a status."""
        return cls.model_validate(status, from_attributes=True)


class SearchProbe(Document):
    """How a real search went; `ok` says that a memory answered. `took_ms` is wall time."""

    ok: bool
    result_count: int = 0
    took_ms: float = 0.0
    trace_id: str | None = None
    degraded: tuple[Degradation, ...] = ()
    error: str | None = None


class DeepProbe(Document):
    """What came of trying: an embedding, the vector engine, and a search on the path of every search.

    `damage` says for each backend what it stores that is no longer what was written, and what mends it.
    """

    embedding: MemoryEmbeddingProbeResult
    vector: bool
    search: SearchProbe
    damage: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class OpsLogTrouble(Document):
    """What became of the events of this process in a log that could not take them all; the last error."""

    written: int
    dropped: int
    last_error: str


class MemoryStatusReply(Document):
    """The memory as a whole, each of its backends, those that could not be opened, and a deep probe.

    `ops_log` is there only if the log had trouble since the memory was opened.
    """

    status: ProviderStatus
    backends: dict[str, ProviderStatus]
    unavailable: tuple[Degradation, ...] = ()
    ops_log: OpsLogTrouble | None = None
    probe: DeepProbe | None = None


async def memory_status(memory: "Memory", request: MemoryStatusRequest) -> MemoryStatusReply:
    """Report on the memory; `deep` embeds a word, searches, and looks for damage in what is stored."""
    probe = await _probe(memory) if request.deep else None
    return MemoryStatusReply(
        status=ProviderStatus.of(memory.status()),
        backends={name: ProviderStatus.of(status) for name, status in memory.backend_statuses().items()},
        unavailable=tuple(memory.unavailable()),
        ops_log=await _log_trouble(memory),
        probe=probe,
    )


async def _log_trouble(memory: "Memory") -> OpsLogTrouble | None:
    """Return what the log could not write, with all that was logged until now; None where it wrote all."""
    await memory.ops_log.flush()
    stats = memory.ops_log.stats
    if stats.last_error is None:
        return None
    return OpsLogTrouble(written=stats.written, dropped=stats.dropped, last_error=stats.last_error)


async def _probe(memory: "Memory") -> DeepProbe:
    return DeepProbe(
        embedding=await memory.probe_embedding_availability(),
        vector=await memory.probe_vector_availability(),
        search=await _probe_search(memory),
        damage={backend_id: tuple(found) for backend_id, found in (await memory.check()).items()},
    )


async def _probe_search(memory: "Memory") -> SearchProbe:
    try:
        response = await memory.query(PROBE_QUERY)
    except ComposableMemoryError as error:
        return SearchProbe(ok=False, error=str(error))
    failure = why_unavailable(response)
    return SearchProbe(
        ok=failure is None,
        result_count=len(response.results),
        took_ms=round(response.latency_ms, 3),
        trace_id=response.trace_id,
        degraded=response.degraded,
        error=failure,
    )
