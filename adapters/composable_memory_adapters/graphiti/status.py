"""What the graph memory says of itself: the place of its facts, how many there are, and what waits."""

from collections.abc import Mapping
from dataclasses import dataclass

from composable_memory.content import Health
from composable_memory.interfaces import BackendServices
from composable_memory.types import JsonValue, MemoryProviderStatus, VectorStatus
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.graphiti.stores import Counts
from composable_memory_adapters.graphiti.writing.ledger import LedgerCounts

__all__ = ["Standing", "describe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known when somebody asks; `health` and the counts are those of the last call that looked.

    `set_aside` tells by group how many episodes are of no workspace.
    """

    place: Mapping[str, str]
    waiting: LedgerCounts
    missing: int
    ledger_problem: str | None
    counts: Counts
    health: Health | None
    groups: tuple[str, ...]
    background_problem: str | None
    set_aside: Mapping[str, int]


def describe(
    settings: GraphitiSettings, services: BackendServices, standing: Standing
) -> MemoryProviderStatus:
    """Return the status; a file is an episode here, a chunk a fact."""
    embedder = None if settings.service_url else services.embedder
    return MemoryProviderStatus(
        backend="graphiti",
        provider=standing.place.get("kind", "graphiti"),
        model=settings.llm.model if settings.uses_llm else None,
        files=standing.counts.episodes,
        chunks=standing.counts.facts,
        dirty=standing.waiting.pending > 0 or standing.missing > 0,
        workspace_dir=str(services.workspace_dir),
        vector=VectorStatus(
            enabled=bool(embedder or settings.service_url), dims=embedder.dimensions if embedder else None
        ),
        custom=_custom(settings, standing),
    )


def _custom(settings: GraphitiSettings, standing: Standing) -> dict[str, JsonValue]:
    health = standing.health
    told: dict[str, JsonValue] = {
        "place": dict(standing.place),
        "groups": list(standing.groups),
        "extractor": _extractor(settings),
        "entities": standing.counts.entities,
        "episodes": {state: count for state, count in standing.waiting.by_state.items() if count},
        "missing": standing.missing or None,
        "ledger": standing.ledger_problem,
        "setAside": _set_aside(standing.set_aside),
        "lastError": standing.waiting.last_error,
        "background": standing.background_problem,
        "health": None if health is None else "ok" if health.ok else health.message or "down",
    }
    return {name: value for name, value in told.items() if value is not None}


def _set_aside(groups: Mapping[str, int]) -> str | None:
    if not groups:
        return None
    told = ", ".join(f"{count} in group {group}" for group, count in sorted(groups.items()))
    return f"{told}: from before workspaces were told apart; `cmem graph adopt` takes what these notes say"


def _extractor(settings: GraphitiSettings) -> str:
    if settings.service_url:
        return "the service's own model"
    if settings.uses_llm:
        return f"the model {settings.llm.model}"
    return "none" if settings.ingest.extractor == "none" else "rules"
