"""Converts contents to episodes of a graph: ids, times, parts, origin, and warnings about them (pure)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, Literal, cast
from uuid import UUID, uuid5

from composable_memory.content import (
    IngestWarning,
    MemoryArtifact,
    MemoryContentObject,
    MemoryProvenance,
)
from composable_memory.ingest.normalize import origin_in
from composable_memory.types import JsonValue, Origin
from composable_memory_adapters.chunking import CHARACTERS_PER_TOKEN, Chunk, chunk_markdown
from composable_memory_adapters.graphiti.observed_times import Times
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.redaction.redactor import redact, redact_value


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a text, and its location."""

    text: str
    origin: Origin | None


def pieces_of(text: str, origin: Origin | None, max_chars: int) -> Iterator[Piece]:
    """Yield the parts of a text, each with its own lines if the text is exactly the lines of its origin."""
    if len(text) <= max_chars:
        if text.strip():
            yield Piece(text=text, origin=origin)
        return
    count = text.removesuffix("\n").count("\n") + 1
    for chunk in chunk_markdown(text, tokens=max_chars // CHARACTERS_PER_TOKEN, overlap=0):
        yield Piece(text=chunk.text.strip("\n"), origin=_lines_of(origin, chunk, count))


def _lines_of(origin: Origin | None, chunk: Chunk, count: int) -> Origin | None:
    if origin is None or origin.start_line < 1 or origin.end_line - origin.start_line + 1 != count:
        return origin
    said = [at for at, line in enumerate(chunk.text.split("\n"), chunk.start_line - 1) if line.strip()]
    return replace(origin, start_line=origin.start_line + said[0], end_line=origin.start_line + said[-1])


EpisodeSource = Literal["message", "text", "json"]
NAMESPACE = UUID("5b8d3c1e-6f0a-5e7b-9a44-0d1c2e3f4a5b")

PART_OF = "graphiti.partOf"
"""The metadata key under which a part of a long text names the whole; reserved."""

OF_WORKSPACE = re.compile(r"workspace:(?P<workspace>[a-z0-9]+)/(?P<name>.*)", re.DOTALL)
"""The prefix of ids and paths in a group that several workspaces may share."""
PLACE = re.compile(r"(?P<path>.+?)#(?:L(?P<start>[0-9]{1,9})(?:-L(?P<end>[0-9]{1,9}))?)?", re.DOTALL)
FILE_LIKE = re.compile(r"[^\s/]*+/\S++|\S*[^\s./]\.\w++")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeDraft:
    """An episode to store. `id` is a UUID derived from the group and the content's id, so it is stable.

    `observed_at` is when the content was said or seen, `ingested_at` when it reached us; both are in UTC.
    `description` is its origin as text, `memory/2026-03-01.md#L3-L7` if the lines are known.
    """

    id: str
    group_id: str
    content: MemoryContentObject
    text: str
    observed_at: datetime
    ingested_at: datetime
    source: EpisodeSource = "text"
    description: str = ""
    origin: Origin | None = None
    warnings: tuple[IngestWarning, ...] = ()


def graph_id(group_id: str, own_id: str) -> str:
    """Return the graph's UUID for one of our ids; the same in every process, different in every group."""
    return str(uuid5(NAMESPACE, f"{group_id}\n{own_id}"))


def named_in(workspace_id: str | None, name: str) -> str:
    """Prefix an id or a path with its workspace; unchanged without a workspace."""
    return f"workspace:{workspace_id}/{name}" if workspace_id else name


def owner_of(name: str) -> tuple[str | None, str]:
    """Split an id or a path into its workspace, None if it names none, and the rest."""
    match = OF_WORKSPACE.fullmatch(name)
    return (match["workspace"], match["name"]) if match else (None, name)


def drafts_of(
    content: MemoryContentObject,
    *,
    group_id: str,
    now: datetime,
    max_chars: int,
    workspace_id: str | None = None,
) -> tuple[EpisodeDraft, ...]:
    """Return the episodes of a content: one, several for a long text, none for a blank one.

    Parts of a long text have the ids `id`, `id#2`, `id#3`, and name the whole in their metadata. Secrets are
    masked everywhere. Warnings about the content are on the first part. With `workspace_id`, for a group that
    several workspaces may share, ids and descriptions name the workspace.
    """
    clean = _clean(replace(content, id=named_in(workspace_id, content.id)))
    times = Times(clean, now)
    clean = replace(clean, temporal=times.temporal)
    origin = _origin_in(clean)
    pieces = list(pieces_of(clean.text or "", origin, max_chars))
    return tuple(
        _draft(clean, piece, group_id, times, number, len(pieces), workspace_id)
        for number, piece in enumerate(pieces, start=1)
    )


def no_text(content: MemoryContentObject) -> IngestWarning:
    """Return the warning about a content that yields no episode."""
    return IngestWarning(
        code="graphiti.no_text",
        message=f"{content.id} has no text; nothing was stored in the graph",
        details={"id": content.id},
    )


def description_of(origin: Origin | None, fallback: str = "") -> str:
    """Return an episode's origin as text; `origin_of` parses it.

    The text is `path#L3-L7`, `path#L3`, the path alone for a whole file, or else `fallback`. A path that
    could be mistaken for other text ends in `#`.
    """
    if origin is None or not origin.path:
        return fallback if origin_of(fallback) is None else f"from {fallback.replace('#', ' ')}"
    path = origin.path.replace("%", "%25").replace("#", "%23")
    if origin.start_line < 1:
        return path if FILE_LIKE.fullmatch(path) else f"{path}#"
    last = f"-L{origin.end_line}" if origin.end_line > origin.start_line else ""
    return f"{path}#L{origin.start_line}{last}"


def origin_of(description: str) -> Origin | None:
    """Parse the file and lines of a description or a citation; None if it names no file."""
    place = PLACE.fullmatch(description)
    if place is None:
        return Origin(path=_plain(description)) if FILE_LIKE.fullmatch(description) else None
    start = int(place["start"] or 0)
    return Origin(path=_plain(place["path"]), start_line=start, end_line=int(place["end"] or start))


def storable(text: str) -> str:
    """Replace lone surrogates, which cannot be stored, and NULs, which would end the text."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _plain(path: str) -> str:
    return path.replace("%23", "#").replace("%25", "%")


# --- what a content says about itself -----------------------------------------------------------------------


def _clean(content: MemoryContentObject) -> MemoryContentObject:
    """Mask secrets in everything written by people or programs; ids and paths stay as they are."""
    return replace(
        content,
        id=storable(content.id),
        text=_clean_text(content.text),
        title=_clean_text(content.title),
        tags=tuple(redact(storable(tag)) for tag in content.tags),
        metadata=_clean_metadata(content.metadata),
        artifacts=tuple(_clean_artifact(artifact) for artifact in content.artifacts),
        provenance=content.provenance and _clean_provenance(content.provenance),
    )


def _clean_provenance(provenance: MemoryProvenance) -> MemoryProvenance:
    values = {one.name: getattr(provenance, one.name) for one in fields(provenance)}
    texts: dict[str, Any] = {
        name: storable(value) for name, value in values.items() if isinstance(value, str)
    }
    return replace(provenance, **texts, citations=tuple(map(storable, provenance.citations)))


def _clean_artifact(artifact: MemoryArtifact) -> MemoryArtifact:
    return replace(
        artifact,
        uri=_clean_text(artifact.uri),
        title=_clean_text(artifact.title),
        description=_clean_text(artifact.description),
        metadata=_clean_metadata(artifact.metadata),
    )


def _clean_text(text: str | None) -> str | None:
    return text and redact(storable(text))


def _clean_metadata(metadata: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    theirs = {name: value for name, value in metadata.items() if name != PART_OF}
    return cast("Mapping[str, JsonValue]", redact_value(_storable_json(theirs)))


def _storable_json(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return storable(value)
        case Mapping():
            return {storable(name): _storable_json(item) for name, item in value.items()}
        case list() | tuple():
            return [_storable_json(item) for item in value]
        case _:
            return value


def _origin_in(content: MemoryContentObject) -> Origin | None:
    """Return the origin of a content: from its first citation, else from its metadata."""
    citations = content.provenance.citations if content.provenance else ()
    cited = origin_of(citations[0]) if citations else None
    return cited or origin_in(content.metadata)


def _source_of(content: MemoryContentObject) -> EpisodeSource:
    if content.kind == "message":
        return "message"
    return "json" if content.language == "json" else "text"


def _draft(
    content: MemoryContentObject,
    piece: Piece,
    group_id: str,
    times: Times,
    number: int,
    count: int,
    workspace_id: str | None,
) -> EpisodeDraft:
    place = piece.origin and replace(piece.origin, path=named_in(workspace_id, piece.origin.path))
    part = replace(content, text=piece.text)
    if count > 1:
        own_id = content.id if number == 1 else f"{content.id}#{number}"
        part = replace(part, id=own_id, metadata={**content.metadata, PART_OF: content.id})
    return EpisodeDraft(
        id=graph_id(group_id, part.id),
        group_id=group_id,
        content=part,
        text=piece.text,
        observed_at=times.observed_at,
        ingested_at=times.ingested_at,
        source=_source_of(content),
        description=description_of(place, content.provenance.source if content.provenance else content.kind),
        origin=piece.origin,
        warnings=times.warnings if number == 1 else (),
    )
