"""Puts together what the builtin memory says of itself, from what is at hand."""

from datetime import UTC, datetime
from pathlib import Path

from composable_memory.interfaces import BackendServices
from composable_memory.types import (
    BatchStatus,
    CacheStatus,
    FtsStatus,
    JsonValue,
    MemoryProviderStatus,
    SourceCount,
    VectorStatus,
)
from composable_memory_adapters.builtin.books import IndexSnapshot
from composable_memory_adapters.builtin.flight import Flight
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.sync import CacheCounters

__all__ = ["describe"]


def describe(
    settings: BuiltinSettings,
    services: BackendServices,
    *,
    db_path: Path,
    snapshot: IndexSnapshot,
    counters: CacheCounters,
    vector: VectorStatus,
    running: Flight | None,
    sync_error: str | None,
) -> MemoryProviderStatus:
    """Return the status. `dirty` is None as long as nobody has compared the index with the notes."""
    embedder = services.embedder
    cache = settings.cache
    keywords = settings.store.fts.enabled
    return MemoryProviderStatus(
        backend="builtin",
        provider=embedder.id if embedder else "none",
        model=embedder.model if embedder else None,
        requested_provider=services.requested_embedder,
        files=snapshot.files,
        chunks=snapshot.chunks,
        dirty=running is not None or sync_error is not None or snapshot.mark is None,
        workspace_dir=str(services.workspace_dir),
        db_path=str(db_path),
        extra_paths=tuple(str(path) for path in settings.extra_paths),
        sources=settings.sources,
        source_counts=(SourceCount(source="memory", files=snapshot.files, chunks=snapshot.chunks),),
        cache=CacheStatus(
            enabled=cache.enabled,
            entries=snapshot.cached_vectors if cache.enabled else None,
            max_entries=cache.max_entries,
        ),
        fts=FtsStatus(enabled=keywords, available=keywords),
        fallback=services.embedder_fallback,
        vector=vector,
        batch=BatchStatus(enabled=False),
        custom=_custom(settings, services, snapshot, counters, running, sync_error),
    )


def _custom(
    settings: BuiltinSettings,
    services: BackendServices,
    snapshot: IndexSnapshot,
    counters: CacheCounters,
    running: Flight | None,
    sync_error: str | None,
) -> dict[str, JsonValue]:
    mark = snapshot.mark
    custom: dict[str, JsonValue] = {
        "searchMode": _search_mode(settings, has_embedder=services.embedder is not None),
        "embedding": {"embedded": snapshot.embedded, "total": snapshot.chunks},
        "embeddingCache": {"hits": counters.hits, "misses": counters.misses},
        "revision": snapshot.revision,
        "lastSync": _iso(mark.finished_ms) if mark else None,
        "problems": list(mark.problems) if mark else [],
    }
    if services.embedder is None and services.embedder_problem:
        custom["providerUnavailableReason"] = services.embedder_problem
    if sync_error is not None:
        custom["lastSyncError"] = sync_error
    if running is not None:
        custom["sync"] = _progress(running)
    return custom


def _search_mode(settings: BuiltinSettings, *, has_embedder: bool) -> str:
    vectors = settings.store.vector.enabled and has_embedder
    keywords = settings.store.fts.enabled and (settings.query.hybrid.enabled or not vectors)
    if vectors:
        return "hybrid" if keywords else "vector-only"
    return "keyword-only" if keywords else "disabled"


def _progress(flight: Flight) -> dict[str, JsonValue]:
    told = flight.progress
    if told is None:
        return {"reason": flight.reason}
    return {
        "reason": flight.reason,
        "label": told.label,
        "completed": told.completed,
        "total": told.total,
    }


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
