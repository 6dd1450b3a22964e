"""What the QMD memory says of itself: version, way, collections, index, models, daemon, updates, troubles."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from composable_memory.interfaces import BackendServices
from composable_memory.types import (
    JsonValue,
    MemoryProviderStatus,
    MemorySource,
    SourceCount,
    VectorStatus,
)
from composable_memory_adapters.qmd.maintenance.loop import UpkeepStanding
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.transport.daemon import DaemonStanding
from composable_memory_adapters.qmd.transport.engine import Way
from composable_memory_adapters.qmd.transport.mcporter import Mcporter
from composable_memory_adapters.qmd.values import Collection, Home, Installation

__all__ = ["Standing", "describe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known when somebody asks. `models` has of each role its model and its file."""

    installation: Installation
    home: Home
    collections: Sequence[Collection]
    way: Way
    daemon: DaemonStanding
    mcporter: Mcporter
    upkeep: UpkeepStanding
    index_bytes: int | None
    models: Sequence[Mapping[str, JsonValue]]
    problems: Sequence[str]
    is_dirty: bool


def describe(settings: QmdSettings, services: BackendServices, standing: Standing) -> MemoryProviderStatus:
    """Return the status; QMD counts documents, which are files and chunks here."""
    counts = standing.upkeep.counts
    files = sum(counts.get(one.name, 0) for one in standing.collections) if counts else None
    return MemoryProviderStatus(
        backend="qmd",
        provider="qmd",
        requested_provider="qmd",
        model=_embedding_model(settings, standing.models),
        files=files,
        chunks=files,
        dirty=standing.is_dirty,
        workspace_dir=str(services.workspace_dir),
        db_path=str(standing.home.index_file),
        extra_paths=tuple(one.path for one in settings.paths),
        sources=tuple(dict.fromkeys(one.source for one in standing.collections)),
        source_counts=_source_counts(standing.collections, counts),
        vector=VectorStatus(
            enabled=settings.uses_vectors,
            available=standing.upkeep.last_embed is not None if settings.uses_vectors else None,
        ),
        custom={"qmd": _custom(settings, standing)} | _watch(settings, services),
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


def _custom(settings: QmdSettings, standing: Standing) -> dict[str, JsonValue]:
    upkeep, daemon = standing.upkeep, standing.daemon
    return {
        "version": standing.installation.version,
        "mode": settings.search_mode,
        "way": standing.way,
        "collections": [_collection(one, upkeep.counts) for one in standing.collections],
        "index": {"file": str(standing.home.index_file), "bytes": standing.index_bytes},
        "models": [dict(model) for model in standing.models],
        "daemon": {
            "state": daemon.state,
            "address": daemon.address,
            "pid": daemon.pid,
            "problem": daemon.problem,
        },
        **_mcporter(settings, standing.mcporter),
        "update": {
            "last": _written(upkeep.last_update),
            "next": _written(upkeep.next_update),
            "problem": upkeep.problem,
            "failures": upkeep.failures,
        },
        "embed": {"last": _written(upkeep.last_embed), "problem": upkeep.embed_problem},
        "problems": list(standing.problems),
    }


def _watch(settings: QmdSettings, services: BackendServices) -> dict[str, JsonValue]:
    """Say by which means the files are followed, if they are: by the clock, not by the operating system."""
    if not services.is_long_lived or not settings.update.interval:
        return {}
    minutes = round(settings.update.interval / 60, 2)
    return {"watch": {"state": "off", "reason": "QMD looks by the clock", "intervalMinutes": minutes}}


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


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
