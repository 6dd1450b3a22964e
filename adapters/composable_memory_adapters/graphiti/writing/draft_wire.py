"""Episodes as JSON, and back: how the ledger keeps what was said."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from composable_memory.content import (
    IngestWarning,
    MemoryArtifact,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
)
from composable_memory.types import Origin
from composable_memory_adapters.graphiti.episodes import EpisodeDraft

__all__ = ["draft_from_json", "draft_to_json"]

Wire = Mapping[str, Any]
"""An object of JSON that this module wrote."""

NO_TIME = frozenset({"timezone"})


def draft_to_json(draft: EpisodeDraft) -> str:
    """Return a draft as text that `draft_from_json` reads."""
    return json.dumps(asdict(draft), default=datetime.isoformat, separators=(",", ":"))


def draft_from_json(text: str) -> EpisodeDraft:
    """Return the draft that a text holds.

    Raises:
        ValueError, TypeError, KeyError: nobody wrote such a text.
    """
    wire = json.loads(text)
    return EpisodeDraft(
        **{
            **wire,
            "content": _content(wire["content"]),
            "observed_at": datetime.fromisoformat(wire["observed_at"]),
            "ingested_at": datetime.fromisoformat(wire["ingested_at"]),
            "origin": wire["origin"] and Origin(**wire["origin"]),
            "warnings": tuple(IngestWarning(**warning) for warning in wire["warnings"]),
        }
    )


def _content(wire: Wire) -> MemoryContentObject:
    return MemoryContentObject(
        **{
            **wire,
            "tags": tuple(wire["tags"]),
            "artifacts": tuple(_artifact(artifact) for artifact in wire["artifacts"]),
            "provenance": _provenance(wire["provenance"]),
            "temporal": _temporal(wire["temporal"]),
        }
    )


def _artifact(wire: Wire) -> MemoryArtifact:
    return MemoryArtifact(**{**wire, "provenance": _provenance(wire["provenance"])})


def _provenance(wire: Wire | None) -> MemoryProvenance | None:
    if wire is None:
        return None
    return MemoryProvenance(
        **{**wire, "citations": tuple(wire["citations"]), "temporal": _temporal(wire["temporal"])}
    )


def _temporal(wire: Wire | None) -> MemoryTemporalMetadata | None:
    if wire is None:
        return None
    read: Wire = {
        name: value if value is None or name in NO_TIME else datetime.fromisoformat(value)
        for name, value in wire.items()
    }
    return MemoryTemporalMetadata(**read)
