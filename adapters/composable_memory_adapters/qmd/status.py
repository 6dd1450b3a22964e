"""The status of the QMD memory: version, transport, collections, index, models, daemon, updates, problems."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from composable_memory.interfaces import BackendServices
from composable_memory.types import (
    JsonValue,
    MemoryProviderStatus,
    MemorySource,
    SourceCount,
    VectorStatus,
)
from composable_memory_adapters.qmd.maintenance.scheduler import MaintenanceScheduler
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.transport.daemon import DaemonStatus
from composable_memory_adapters.qmd.transport.mcporter import Mcporter
from composable_memory_adapters.qmd.types import Collection, Home, Installation, TransportName
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What is known at the moment. `models` has the model and its file for each role."""

    installation: Installation
    home: Home
    collections: Sequence[Collection]
    transport: TransportName
    daemon: DaemonStatus
    mcporter: Mcporter
    maintenance: MaintenanceScheduler
    index_bytes: int | None
    models: Sequence[Mapping[str, JsonValue]]
    problems: Sequence[str]
    is_dirty: bool


def describe(settings: QmdSettings, services: BackendServices, snapshot: Snapshot) -> MemoryProviderStatus:
    """Return the status; QMD counts only documents, which are reported as files and as chunks."""
    counts = snapshot.maintenance.state.counts
    files = sum(counts.get(one.name, 0) for one in snapshot.collections) if counts else None
    return MemoryProviderStatus(
        backend="qmd",
        provider="qmd",
        requested_provider="qmd",
        model=_embedding_model(settings, snapshot.models),
        files=files,
        chunks=files,
        dirty=snapshot.is_dirty,
        workspace_dir=str(services.workspace_dir),
        db_path=str(snapshot.home.index_file),
        extra_paths=tuple(one.path for one in settings.paths),
        sources=tuple(dict.fromkeys(one.source for one in snapshot.collections)),
        source_counts=_source_counts(snapshot.collections, counts),
        vector=VectorStatus(
            enabled=settings.uses_vectors,
            available=snapshot.maintenance.state.last_embed is not None if settings.uses_vectors else None,
        ),
        custom={"qmd": _custom(settings, snapshot)} | _watch(settings, services),
    )


def _embedding_model(settings: QmdSettings, models: Sequence[Mapping[str, JsonValue]]) -> str | None:
    if not settings.uses_vectors:
        return None
    return next((str(model["name"]) for model in models if model.get("role") == "embed"), None)


def _source_counts(collections: Sequence[Collection], counts: Mapping[str, int]) -> tuple[SourceCount, ...]:
    files: dict[MemorySource, int] = {}
    for one in collections:
        files[one.source] = files.get(one.source, 0) + counts.get(one.name, 0)
    return tuple(SourceCount(source=source, files=count, chunks=count) for source, count in files.items())


def _custom(settings: QmdSettings, snapshot: Snapshot) -> dict[str, JsonValue]:
    daemon, maintenance = snapshot.daemon, snapshot.maintenance
    state = maintenance.state
    return {
        "version": snapshot.installation.version,
        "mode": settings.search_mode,
        "way": snapshot.transport,
        "collections": [_collection(one, state.counts) for one in snapshot.collections],
        "index": {"file": str(snapshot.home.index_file), "bytes": snapshot.index_bytes},
        "models": [dict(model) for model in snapshot.models],
        "daemon": {
            "state": daemon.state,
            "address": daemon.address,
            "pid": daemon.pid,
            "problem": daemon.problem,
        },
        **_mcporter(settings, snapshot.mcporter),
        "update": {
            "last": _iso(state.last_update),
            "next": _iso(maintenance.next_update),
            "problem": maintenance.problem,
            "failures": state.failures,
        },
        "embed": {"last": _iso(state.last_embed), "problem": state.embed_problem},
        "problems": list(snapshot.problems),
    }


def _watch(settings: QmdSettings, services: BackendServices) -> dict[str, JsonValue]:
    """Return how changes are noticed, if at all: by polling, not by events of the file system."""
    if not services.is_long_lived or not settings.update.interval:
        return {}
    minutes = round(settings.update.interval / 60, 2)
    return {"watch": {"state": "off", "reason": "QMD updates on a schedule", "intervalMinutes": minutes}}


def _mcporter(settings: QmdSettings, mcporter: Mcporter) -> dict[str, JsonValue]:
    if not settings.mcporter.enabled:
        return {}
    state = "running" if mcporter.is_warm else "off"
    return {"mcporter": {"state": state, "problem": mcporter.problem}}


def _collection(one: Collection, counts: Mapping[str, int]) -> dict[str, JsonValue]:
    return {
        "name": one.name,
        "path": str(one.path),
        "pattern": one.pattern,
        "files": counts.get(one.name),
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
