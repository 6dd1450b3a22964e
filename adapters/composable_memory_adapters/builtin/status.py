"""The status of the builtin memory, and the index files of a state folder."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from composable_memory.interfaces import BackendServices, KeptStore, SupportsJobs
from composable_memory.paths import NOTE_SUFFIXES
from composable_memory.supervision.single_flight import Flight
from composable_memory.types import (
    BatchStatus,
    CacheStatus,
    FtsStatus,
    JsonValue,
    MemoryProviderStatus,
    SourceCount,
    VectorStatus,
)
from composable_memory_adapters.builtin.notes.documents import hint_of, note_suffixes
from composable_memory_adapters.builtin.notes.note_scope import NoteScope
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store.index_meta import IndexSnapshot
from composable_memory_adapters.builtin.store.rebuild import RebuildCost
from composable_memory_adapters.builtin.sync.sync_scheduler import WatchStatus
from composable_memory_adapters.sqlite_file import Recovery
from composable_memory_ops_logs.quick_dataclass import dataclass

INDEXES = "memory/*-*.sqlite"
NOT_OURS = "feedback-"
RERANKING = "rerank/*-*.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """The inputs of the status.

    `watch` is None if the notes are not watched, `rebuild` if none is due, `transcripts` if none are indexed.
    """

    db_path: Path
    snapshot: IndexSnapshot
    vector: VectorStatus
    recovery: Recovery
    rebuild: RebuildCost | None
    running: Flight | None
    sync_error: str | None
    watch: WatchStatus | None
    scope: NoteScope
    transcripts: Path | None


def describe(settings: BuiltinSettings, services: BackendServices, now: MemoryState) -> MemoryProviderStatus:
    """Return the status."""
    embedder, snapshot = services.embedder, now.snapshot
    cache = settings.cache
    keywords = settings.store.fts.enabled
    return MemoryProviderStatus(
        backend="builtin",
        provider=embedder.id if embedder else "none",
        model=embedder.model if embedder else None,
        requested_provider=services.requested_embedder,
        files=snapshot.files,
        chunks=snapshot.chunks,
        dirty=any((now.running, now.sync_error, snapshot.damage)) or snapshot.mark is None,
        workspace_dir=str(services.workspace_dir),
        db_path=str(now.db_path),
        extra_paths=tuple(str(path) for path in settings.extra_paths),
        sources=settings.sources,
        source_counts=tuple(_source_counts(settings, snapshot)),
        cache=CacheStatus(
            enabled=cache.enabled,
            entries=snapshot.cached_vectors if cache.enabled else None,
            max_entries=cache.max_entries,
        ),
        fts=FtsStatus(enabled=keywords, available=keywords),
        fallback=services.embedder_fallback,
        vector=_vector(settings, now),
        batch=embedder.batch_status() if isinstance(embedder, SupportsJobs) else BatchStatus(enabled=False),
        custom=_custom(settings, services, now),
    )


def _vector(settings: BuiltinSettings, now: MemoryState) -> VectorStatus:
    """Return the state of vector search, including the engine that the first search will use."""
    if now.vector.available is False or now.vector.engine is not None:
        return now.vector
    return replace(now.vector, engine=settings.store.vector.engine_for(now.snapshot.embedded))


def _custom(settings: BuiltinSettings, services: BackendServices, now: MemoryState) -> dict[str, JsonValue]:
    snapshot = now.snapshot
    mark = snapshot.mark
    custom: dict[str, JsonValue] = {
        "searchMode": _search_mode(settings, has_embedder=services.embedder is not None),
        "embedding": {"embedded": snapshot.embedded, "total": snapshot.chunks},
        "embeddingCache": _cache_use(snapshot),
        "scope": _scope(now),
        "revision": snapshot.revision,
        "lastSync": _iso(mark.finished_ms) if mark else None,
        "problems": list(mark.problems) if mark else [],
        "passedOver": dict(mark.passed_over) if mark else {},
    }
    if now.transcripts is not None:
        custom["transcriptsFolder"] = str(now.transcripts)
    if mark and mark.languages:
        custom["languages"] = dict(mark.languages)
    if documents := _documents(settings, mark.passed_over if mark else ()):
        custom["documents"] = documents
    if services.embedder is None and services.embedder_problem:
        custom["providerUnavailableReason"] = services.embedder_problem
    if now.rebuild is not None:
        custom["rebuild"] = _rebuild(now.rebuild)
    if now.sync_error is not None:
        custom["lastSyncError"] = now.sync_error
    if snapshot.damage is not None:
        custom["damage"] = snapshot.damage
    if now.running is not None:
        custom["sync"] = _progress(now.running)
    if now.watch is not None:
        custom["watch"] = now.watch.document(settings.sync.interval_minutes)
    if now.recovery.attempts:
        custom["recovery"] = _recovery(now.recovery)
    return custom


def _source_counts(settings: BuiltinSettings, snapshot: IndexSnapshot) -> Iterator[SourceCount]:
    for source in settings.sources:
        files, chunks = snapshot.sources.get(source, (0, 0))
        yield SourceCount(source=source, files=files, chunks=chunks)


def _scope(now: MemoryState) -> dict[str, JsonValue]:
    scope: dict[str, JsonValue] = {
        "notes": "folder" if now.scope.is_folder else "memory",
        "chosenBy": now.scope.by,
    }
    remarks = {"refused": now.scope.refusal, "hint": now.scope.hint}
    return scope | {name: remark for name, remark in remarks.items() if remark}


def _documents(settings: BuiltinSettings, passed_over: Iterable[str]) -> dict[str, JsonValue]:
    hint = hint_of(settings.documents, passed_over)
    suffixes = sorted(note_suffixes(settings.documents) - NOTE_SUFFIXES)
    read: dict[str, JsonValue] = {"kinds": list(settings.documents), "suffixes": [*suffixes]}
    return (read if settings.documents else {}) | ({"hint": hint} if hint else {})


def _cache_use(snapshot: IndexSnapshot) -> dict[str, JsonValue]:
    used = snapshot.cache_use
    rate = used.hit_rate
    return {
        "hits": used.hits,
        "misses": used.misses,
        "hitRate": None if rate is None else round(rate, 3),
    }


def _recovery(recovery: Recovery) -> dict[str, JsonValue]:
    return {
        "attempts": recovery.attempts,
        "successes": recovery.successes,
        "failures": recovery.failures,
        "lastError": recovery.last_error,
    }


def _rebuild(cost: RebuildCost) -> dict[str, JsonValue]:
    return {
        "reasons": list(cost.reasons),
        "passages": cost.passages,
        "characters": cost.characters,
        "tokens": cost.tokens,
    }


def _search_mode(settings: BuiltinSettings, *, has_embedder: bool) -> str:
    vectors = settings.store.vector.enabled and has_embedder
    keywords = settings.store.fts.enabled and (settings.query.hybrid.enabled or not vectors)
    if vectors:
        return "hybrid" if keywords else "vector-only"
    return "keyword-only" if keywords else "disabled"


def _progress(flight: Flight) -> dict[str, JsonValue]:
    progress = flight.progress
    if progress is None:
        return {"reason": flight.reason}
    return {
        "reason": flight.reason,
        "label": progress.label,
        "completed": progress.completed,
        "total": progress.total,
    }


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def kept(state_dir: Path) -> tuple[KeptStore, ...]:
    """Return the indexes of all workspaces in their default folder, and the rerankers' caches for them."""
    return tuple(
        KeptStore(
            workspace_id=path.stem.rpartition("-")[2],
            kind=kind,
            path=path,
            bytes=sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*")),
            is_rebuildable=True,
            is_empty=kind == "index" and _is_empty(path),
        )
        for kind, pattern in (("index", INDEXES), ("reranking", RERANKING))
        for path in sorted(state_dir.glob(pattern))
        if not path.name.startswith(NOT_OURS)
    )


def _is_empty(path: Path) -> bool:
    """Return whether an index holds no notes; an unreadable one counts as not empty."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as index:
            return index.execute("SELECT 1 FROM files LIMIT 1").fetchone() is None
    except sqlite3.Error:
        return False
