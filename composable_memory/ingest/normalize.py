"""Turns items into contents with ids, times and a source, and citations into origins (pure)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import cast, get_args

from composable_memory.citations import read_citation
from composable_memory.content import (
    IngestWarning,
    MemoryArtifact,
    MemoryArtifactKind,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
)
from composable_memory.ingest.extract import Enriched
from composable_memory.ingest.requests import IngestItem, IngestRequest
from composable_memory.json_documents import moment_in
from composable_memory.types import JsonValue, Origin
from composable_memory_ops_logs import redact, redact_value

TIMES: Mapping[str, str] = {
    "createdAt": "created_at",
    "updatedAt": "updated_at",
    "observedAt": "observed_at",
    "validFrom": "valid_from",
    "validTo": "valid_to",
    "expiresAt": "expires_at",
}
ARTIFACT_KINDS = get_args(MemoryArtifactKind)
LIFTED = ("temporal", "artifacts")


def normalize(request: IngestRequest, *, now: datetime) -> Enriched:
    """Return a content for each item; of several with the same id the last wins.

    Items without a time of their own count as observed `now`.
    """
    warnings: list[IngestWarning] = []
    contents: dict[str, MemoryContentObject] = {}
    for item in request.items:
        raw = _content(item, warnings) if isinstance(item, IngestItem) else item
        content = _complete(_without_secrets(raw, warnings), request, now)
        if contents.pop(content.id, content) != content:
            message = "another item in this run has the same id; the later one is used"
            warnings.append(_warning("normalize.duplicate_id", message, content.id))
        contents[content.id] = content
    return Enriched(contents=tuple(contents.values()), warnings=tuple(warnings))


def _content(item: IngestItem, warnings: list[IngestWarning]) -> MemoryContentObject:
    metadata = {key: value for key, value in item.metadata.items() if key not in LIFTED}
    return MemoryContentObject(
        id=item.id or "",
        kind=item.kind,
        text=item.text,
        title=item.title,
        artifacts=item.artifacts or tuple(_artifacts(item, warnings)),
        metadata=metadata,
        temporal=item.temporal or _temporal(item, warnings),
    )


def _temporal(item: IngestItem, warnings: list[IngestWarning]) -> MemoryTemporalMetadata | None:
    given = item.metadata.get("temporal")
    if not isinstance(given, dict):
        return None
    times: dict[str, datetime] = {}
    for camel, snake in TIMES.items():
        value = given.get(camel, given.get(snake))
        moment = moment_in(value)
        if moment is not None:
            times[snake] = moment
        elif value is not None:
            message = f"{camel} is no time: {str(value)[:40]!r}; it is left out"
            warnings.append(_warning("normalize.invalid_time", message, item.id))
    zone = given.get("timezone")
    return MemoryTemporalMetadata(timezone=zone if isinstance(zone, str) else None, **times)


def _artifacts(item: IngestItem, warnings: list[IngestWarning]) -> Iterator[MemoryArtifact]:
    given = item.metadata.get("artifacts")
    for number, entry in enumerate(given if isinstance(given, list) else []):
        if not isinstance(entry, dict):
            message = "an artifact is no object; it is left out"
            warnings.append(_warning("normalize.invalid_artifact", message, item.id))
            continue
        kind = entry.get("kind")
        inner = entry.get("metadata")
        yield MemoryArtifact(
            id=_text(entry, "id") or f"artifact-{number}",
            kind=kind if kind in ARTIFACT_KINDS else "other",  # type: ignore[arg-type]  # just looked up
            uri=_text(entry, "uri"),
            mime_type=_text(entry, "mimeType", "mime_type"),
            title=_text(entry, "title"),
            description=_text(entry, "description"),
            metadata=inner if isinstance(inner, dict) else {},
        )


def _without_secrets(content: MemoryContentObject, warnings: list[IngestWarning]) -> MemoryContentObject:
    """Mask secrets before anything is embedded, stored or sent to a model."""
    clean = replace(
        content,
        text=redact(content.text) if content.text else content.text,
        title=redact(content.title) if content.title else content.title,
        metadata=_clean(content.metadata),
        artifacts=tuple(_clean_artifact(artifact) for artifact in content.artifacts),
    )
    if clean != content:
        warnings.append(_warning("normalize.redacted", "it contained a secret, which was masked", content.id))
    return clean


def _clean_artifact(artifact: MemoryArtifact) -> MemoryArtifact:
    return replace(
        artifact,
        description=redact(artifact.description) if artifact.description else artifact.description,
        metadata=_clean(artifact.metadata),
    )


def _clean(metadata: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    return cast(
        "Mapping[str, JsonValue]", redact_value(metadata)
    )  # JSON in, JSON out; redaction returns the log's own type


def _complete(content: MemoryContentObject, request: IngestRequest, now: datetime) -> MemoryContentObject:
    provenance = content.provenance or MemoryProvenance(source=request.source)
    times = content.temporal or provenance.temporal or MemoryTemporalMetadata()
    if times.observed_at is None and times.created_at is None:
        times = replace(times, observed_at=now)
    return replace(
        content,
        id=content.id or _id(content, request.source),
        provenance=replace(
            provenance,
            session_key=provenance.session_key or request.session_key,
            trace_id=provenance.trace_id or request.trace_id,
        ),
        temporal=times,
    )


def _id(content: MemoryContentObject, source: str) -> str:
    """Return an id that is the same for the same words from the same source."""
    artifacts = "\n".join(f"{one.id} {one.uri} {dict(one.metadata)}" for one in content.artifacts)
    said = "\0".join((source, content.title or "", content.text or "", artifacts))
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _warning(code: str, message: str, content_id: str | None) -> IngestWarning:
    return IngestWarning(code=code, message=message, details={"id": content_id} if content_id else {})


def _text(entry: Mapping[str, JsonValue], *keys: str) -> str | None:
    texts = (entry.get(key) for key in keys)
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def origin_of(content: MemoryContentObject) -> Origin | None:
    """Return the file that a content comes from; None if none is named.

    Uses `path`, `start_line` and `end_line` of its metadata, or else its first citation.
    """
    return origin_in(content.metadata) or origin_of_provenance(content.provenance)


def origin_in(metadata: Mapping[str, JsonValue]) -> Origin | None:
    """Return the file and lines named in metadata; None if there are none."""
    path = metadata.get("path")
    if not isinstance(path, str) or not path.strip():
        return None
    first, last = _line(metadata, "start_line", "startLine"), _line(metadata, "end_line", "endLine")
    return Origin(path=path, start_line=first, end_line=max(first, last) if first else 0)


def origin_of_provenance(provenance: MemoryProvenance | None) -> Origin | None:
    """Return the origin that the first citation refers to."""
    return origin_of_citation(provenance.citations[0]) if provenance and provenance.citations else None


def origin_of_citation(citation: str) -> Origin:
    """Parse `path#L3-L7`, `path#L3`, `path#L3:1280` or a plain path."""
    cited = read_citation(citation)
    if cited is None or not cited.start_line:
        return Origin(path=citation)
    origin = Origin(path=cited.path, start_line=cited.start_line, end_line=cited.end_line)
    first = replace(origin, end_line=origin.start_line).citation
    # A URL may end with a fragment that only looks like a page: `viewtopic.php#p120`.
    return origin if citation.startswith(first) else Origin(path=citation)


def _line(metadata: Mapping[str, JsonValue], *keys: str) -> int:
    numbers = (metadata.get(key) for key in keys)
    return next((n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)
