"""Contents as records of a store of vectors, which hold all that a search has to answer with (pure)."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from composable_memory.content import (
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
    TemporalPolicyDecision,
    VectorRecord,
)
from composable_memory.ingest.origins import citation_of, origin_of
from composable_memory.ingest.temporal import Lifetime, as_moment, lifetime_of, observed_at
from composable_memory.types import JsonValue, Origin

__all__ = ["content_of", "lifetime_in", "origin_in", "record_of"]


def record_of(
    content: MemoryContentObject, values: Sequence[float], decision: TemporalPolicyDecision | None = None
) -> VectorRecord:
    """Return a content as a record: its vector, and its text, place and times as metadata."""
    lifetime, origin = lifetime_of(content, decision), origin_of(content)
    provenance = content.provenance
    known: dict[str, JsonValue] = {
        "content_id": content.id,
        "text": content.text,
        "title": content.title,
        "kind": content.kind,
        "tags": list(content.tags) or None,
        "source": provenance.source if provenance else None,
        "session_key": provenance.session_key if provenance else None,
        "speaker": content.metadata.get("speaker") or (provenance.actor_id if provenance else None),
        "path": origin.path if origin else None,
        "start_line": origin.start_line if origin else None,
        "end_line": origin.end_line if origin else None,
        "observed_at": _iso(observed_at(content)),
        "valid_from": _iso(lifetime.valid_from),
        "valid_to": _iso(lifetime.valid_to),
        "expires_at": _iso(lifetime.expires_at),
        "confidence": lifetime.confidence,
    }
    metadata = {key: value for key, value in known.items() if value is not None}
    return VectorRecord(id=content.id, values=values, metadata=metadata)


def content_of(metadata: Mapping[str, JsonValue]) -> MemoryContentObject:
    """Return the content that a record's metadata was made of."""
    lifetime, origin, speaker = lifetime_in(metadata), origin_in(metadata), metadata.get("speaker")
    return MemoryContentObject(
        id=_text(metadata, "content_id") or "",
        kind=_text(metadata, "kind") or "event",
        text=_text(metadata, "text"),
        title=_text(metadata, "title"),
        metadata={"speaker": speaker} if speaker else {},
        provenance=MemoryProvenance(
            source=_text(metadata, "source") or "memory",
            session_key=_text(metadata, "session_key"),
            citations=(citation_of(origin),) if origin else (),
        ),
        temporal=MemoryTemporalMetadata(
            observed_at=as_moment(metadata.get("observed_at")),
            valid_from=lifetime.valid_from,
            valid_to=lifetime.valid_to,
            expires_at=lifetime.expires_at,
        ),
    )


def origin_in(metadata: Mapping[str, JsonValue]) -> Origin | None:
    """Return the file and lines that a record names; None if it names none."""
    path, first, last = (metadata.get(key) for key in ("path", "start_line", "end_line"))
    if not isinstance(path, str):
        return None
    if isinstance(first, int) and isinstance(last, int) and 1 <= first <= last:
        return Origin(path=path, start_line=first, end_line=last)
    return Origin(path=path)


def lifetime_in(metadata: Mapping[str, JsonValue]) -> Lifetime:
    """Return when the content of a record holds."""
    valid_from, valid_to, expires_at = (
        as_moment(metadata.get(key)) for key in ("valid_from", "valid_to", "expires_at")
    )
    return Lifetime(valid_from=valid_from, valid_to=valid_to, expires_at=expires_at)


def _text(metadata: Mapping[str, JsonValue], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
