"""The status of the memory, and a deep probe of it."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, GetPydanticSchema, WithJsonSchema
from pydantic_core import core_schema

from composable_memory.errors import ComposableMemoryError
from composable_memory.json_documents import document
from composable_memory.tools.document import Document
from composable_memory.tools.search import why_unavailable
from composable_memory.types import (
    Degradation,
    MemoryEmbeddingProbeResult,
    MemoryProviderStatus,
)

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

PROBE_QUERY = "ping"

_AS_DOCUMENT = core_schema.plain_serializer_function_ser_schema(document)
Status = Annotated[
    MemoryProviderStatus,
    GetPydanticSchema(lambda one, _: core_schema.is_instance_schema(one, serialization=_AS_DOCUMENT)),
    WithJsonSchema({"type": "object"}),
]
"""A status as JSON, including the fields of its subclass."""


class MemoryStatusRequest(Document):
    """Whether to test what the status claims."""

    deep: bool = False


class SearchProbe(Document):
    """The outcome of a real search; `ok` says that a memory answered. `took_ms` is wall time."""

    ok: bool
    result_count: int = 0
    took_ms: float = 0.0
    trace_id: str | None = None
    degraded: tuple[Degradation, ...] = ()
    error: str | None = None


class DeepProbe(Document):
    """The outcome of the tests: an embedding, the vector engine, and a search like any other.

    `damage` lists for each backend, and the ops log, stored data that is damaged, and how to repair it.
    """

    embedding: MemoryEmbeddingProbeResult
    vector: bool
    search: SearchProbe
    damage: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class OpsLogTrouble(Document):
    """Counts of this process's events if the log could not write them all; the last error."""

    written: int
    dropped: int
    last_error: str


class MemoryStatusReply(Document):
    """The memory as a whole, each of its backends, those that could not be opened, and a deep probe.

    `ops_log` is set only if the log has had trouble since the memory was opened.
    """

    status: Status
    backends: dict[str, Status]
    unavailable: tuple[Degradation, ...] = ()
    ops_log: OpsLogTrouble | None = None
    probe: DeepProbe | None = None


async def memory_status(memory: "Memory", request: MemoryStatusRequest) -> MemoryStatusReply:
    """Report on the memory; `deep` embeds a word, searches, and checks stored data for damage."""
    probe = await _probe(memory) if request.deep else None
    return MemoryStatusReply(
        status=memory.status(),
        backends=dict(memory.backend_statuses()),
        unavailable=tuple(memory.unavailable()),
        ops_log=await _log_trouble(memory),
        probe=probe,
    )


async def _log_trouble(memory: "Memory") -> OpsLogTrouble | None:
    """Return what the log could not write of everything logged so far; None if it has written all."""
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
