"""Where a content was written down: the file and lines in its metadata or its first citation (pure)."""

import re
from collections.abc import Mapping

from composable_memory.content import MemoryContentObject, MemoryProvenance
from composable_memory.types import JsonValue, Origin

__all__ = ["citation_of", "origin_of", "origin_of_citation", "origin_of_provenance"]

_CITATION = re.compile(r"(?P<path>.+?)#L(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?")


def origin_of(content: MemoryContentObject) -> Origin | None:
    """Return the file that a content stands in; None if it is in no file that anybody named.

    Read are `path`, `start_line` and `end_line` of its metadata, else its first citation.
    """
    path = content.metadata.get("path")
    if isinstance(path, str) and path.strip():
        first = _line(content.metadata, "start_line", "startLine")
        last = _line(content.metadata, "end_line", "endLine")
        return Origin(path=path, start_line=first, end_line=max(first, last) if first else 0)
    return origin_of_provenance(content.provenance)


def origin_of_provenance(provenance: MemoryProvenance | None) -> Origin | None:
    """Return what the first citation leads to."""
    return origin_of_citation(provenance.citations[0]) if provenance and provenance.citations else None


def origin_of_citation(citation: str) -> Origin:
    """Return what `path#L3-L7`, `path#L3` or a plain path leads to."""
    match = _CITATION.fullmatch(citation)
    if match is None or int(match["first"]) < 1:
        return Origin(path=citation)
    first = int(match["first"])
    return Origin(path=match["path"], start_line=first, end_line=max(first, int(match["last"] or first)))


def citation_of(origin: Origin) -> str:
    """Return `path#L3-L7`, `path#L3` for a single line, and the path alone where lines are not known."""
    if origin.start_line < 1:
        return origin.path
    last = f"-L{origin.end_line}" if origin.end_line > origin.start_line else ""
    return f"{origin.path}#L{origin.start_line}{last}"


def _line(metadata: Mapping[str, JsonValue], *keys: str) -> int:
    numbers = (metadata.get(key) for key in keys)
    return next((n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n > 0), 0)
