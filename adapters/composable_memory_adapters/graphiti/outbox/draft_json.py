"""Drafts of episodes as JSON texts, and back (pure)."""

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

JsonObject = Mapping[str, Any]
"""An object of JSON that this module wrote."""

NO_TIME = frozenset({"timezone"})


def draft_to_json(draft: EpisodeDraft) -> str:
    """Return a draft as text that `draft_from_json` reads."""
    return json.dumps(asdict(draft), default=datetime.isoformat, separators=(",", ":"))


def draft_from_json(text: str) -> EpisodeDraft:
    """Return the draft in a text.

    Raises:
        ValueError, TypeError, KeyError: `draft_to_json` wrote no such text.
    """
    stored = json.loads(text)
    return EpisodeDraft(
        **{
            **stored,
            "content": _content(stored["content"]),
            "observed_at": datetime.fromisoformat(stored["observed_at"]),
            "ingested_at": datetime.fromisoformat(stored["ingested_at"]),
            "origin": stored["origin"] and Origin(**stored["origin"]),
            "warnings": tuple(IngestWarning(**warning) for warning in stored["warnings"]),
        }
    )


def _content(stored: JsonObject) -> MemoryContentObject:
    return MemoryContentObject(
        **{
            **stored,
            "tags": tuple(stored["tags"]),
            "artifacts": tuple(_artifact(artifact) for artifact in stored["artifacts"]),
            "provenance": _provenance(stored["provenance"]),
            "temporal": _temporal(stored["temporal"]),
        }
    )


def _artifact(stored: JsonObject) -> MemoryArtifact:
    return MemoryArtifact(**{**stored, "provenance": _provenance(stored["provenance"])})


def _provenance(stored: JsonObject | None) -> MemoryProvenance | None:
    if stored is None:
        return None
    return MemoryProvenance(
        **{**stored, "citations": tuple(stored["citations"]), "temporal": _temporal(stored["temporal"])}
    )


def _temporal(stored: JsonObject | None) -> MemoryTemporalMetadata | None:
    if stored is None:
        return None
    read: JsonObject = {
        name: value if value is None or name in NO_TIME else datetime.fromisoformat(value)
        for name, value in stored.items()
    }
    return MemoryTemporalMetadata(**read)
