"""The JSON documents of the command line, beyond those of the tools and of the log."""

from collections.abc import Iterator, Mapping
from typing import Literal

from composable_memory.tools import Document, ProviderStatus, SearchHit
from composable_memory.tools.documents import AnyJson
from composable_memory.types import (
    Attribution,
    BackendAnswer,
    Degradation,
    DropReason,
    MemorySearchResult,
    QueryIntent,
    QueryResponse,
    SkipReason,
    SyncReport,
)

__all__ = [
    "AskedBackend",
    "BackendDocument",
    "BackendsDocument",
    "DroppedHit",
    "EmbedderDocument",
    "EmbeddersDocument",
    "Explanation",
    "IndexDocument",
    "SearchDocument",
    "SettingDocument",
    "SettingsDocument",
]


class AskedBackend(Document):
    """What one backend said; `took_ms` is wall time."""

    id: str
    result_count: int
    took_ms: float
    engines: Mapping[str, str]
    skipped: SkipReason | None = None
    error: str | None = None

    @classmethod
    def of(cls, answer: BackendAnswer) -> "AskedBackend":
        """Return the document of an answer."""
        return cls(
            id=answer.backend_id,
            result_count=len(answer.results),
            took_ms=round(answer.took_ms, 3),
            engines=answer.engines,
            skipped=answer.skipped,
            error=str(answer.error) if answer.error else None,
        )


class DroppedHit(Document):
    """A candidate that was found and not returned: ruled out, or further down than was asked for."""

    backend_id: str
    path: str
    start_line: int
    end_line: int
    score: float
    reason: DropReason | Literal["max-results"]
    detail: str

    @classmethod
    def of(
        cls,
        backend_id: str,
        result: MemorySearchResult,
        reason: DropReason | Literal["max-results"],
        detail: str,
    ) -> "DroppedHit":
        """Return the document of a candidate."""
        return cls(
            backend_id=backend_id,
            path=result.path,
            start_line=result.start_line,
            end_line=result.end_line,
            score=result.score,
            reason=reason,
            detail=detail,
        )

    @classmethod
    def all_of(cls, response: QueryResponse) -> Iterator["DroppedHit"]:
        """Yield those that came too late, in order, then those that were ruled out."""
        total = len(response.results) + len(response.overflow)
        for place, (backend_id, result) in enumerate(response.overflow, len(response.results) + 1):
            yield cls.of(backend_id, result, "max-results", f"place {place} of {total}")
        for one in response.dropped:
            yield cls.of(one.backend_id, one.result, one.reason, one.detail)


class Explanation(Document):
    """How each result came to its place, in the order of the results, and what was dropped."""

    weights_version: str
    results: tuple[Attribution, ...]
    dropped: tuple[DroppedHit, ...]

    @classmethod
    def of(cls, response: QueryResponse) -> "Explanation":
        """Return the explanation of a response."""
        return cls(
            weights_version=response.weights_version,
            results=response.attributions,
            dropped=tuple(DroppedHit.all_of(response)),
        )


class SearchDocument(Document):
    """`cmem search`: the answer, who gave it, and what is missing from it."""

    trace_id: str
    results: tuple[SearchHit, ...]
    backends: tuple[AskedBackend, ...]
    degraded: tuple[Degradation, ...]
    intent: QueryIntent
    took_ms: float
    explain: Explanation | None = None

    @classmethod
    def of(cls, response: QueryResponse, *, explain: bool = False) -> "SearchDocument":
        """Return the document of a response."""
        return cls(
            trace_id=response.trace_id,
            results=tuple(map(SearchHit.of, response.results)),
            backends=tuple(map(AskedBackend.of, response.answers)),
            degraded=response.degraded,
            intent=response.intent or QueryIntent(),
            took_ms=round(response.latency_ms, 3),
            explain=Explanation.of(response) if explain else None,
        )


class IndexDocument(Document):
    """`cmem index`: what the sync did; `took_ms` is wall time."""

    reason: str
    files_indexed: int
    files_unchanged: int
    files_removed: int
    chunks_written: int
    embedded: int
    embeddings_pending: int
    problems: tuple[str, ...]
    took_ms: float

    @classmethod
    def of(cls, report: SyncReport, took_ms: float) -> "IndexDocument":
        """Return the document of a report."""
        given = {name: getattr(report, name) for name in SyncReport.__dataclass_fields__}
        return cls(**given, took_ms=round(took_ms, 3))


class BackendDocument(Document):
    """A kind of backend; `missing` is what it lacks on this machine with the settings in force.

    `problem` is why it cannot be loaded, or which of its settings cannot be used. `stands_in_for` is the one
    that it answers for where that one cannot; it is not enabled by itself then. `status` is what it says of
    itself if it could be opened.
    """

    id: str
    origin: str
    enabled: bool
    stands_in_for: str | None = None
    summary: str | None = None
    capabilities: tuple[str, ...] = ()
    missing: str | None = None
    problem: str | None = None
    status: ProviderStatus | None = None


class BackendsDocument(Document):
    """`cmem backends list`."""

    backends: tuple[BackendDocument, ...]


class EmbedderDocument(Document):
    """A kind of embedding provider; `lacks` is what keeps it from being chosen automatically.

    `missing` is what it lacks on this machine, `problem` why it cannot be loaded.
    """

    id: str
    origin: str
    chosen: bool
    local: bool = False
    summary: str | None = None
    lacks: str | None = None
    missing: str | None = None
    problem: str | None = None


class EmbeddersDocument(Document):
    """`cmem embedders list`: what the settings ask for, who is taken, and all who are there."""

    provider: str
    fallback: str
    chosen: str | None = None
    reason: str | None = None
    embedders: tuple[EmbedderDocument, ...]


class SettingDocument(Document):
    """One setting by its dotted key."""

    key: str
    value: AnyJson
    origin: str


class SettingsDocument(Document):
    """`cmem config show`."""

    settings: tuple[SettingDocument, ...]
    notes: tuple[str, ...]
