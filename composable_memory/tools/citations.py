"""Citations: where a passage stands, in a form that a reader can follow."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from composable_memory.session_keys import is_shared
from composable_memory.types import MemorySearchResult, Origin

__all__ = ["CitationMode", "cite", "read_citation", "with_source_line"]

_CITATION = re.compile(
    r"(?P<path>.+?)(?:#L(?P<first>\d{1,9})(?:-L?(?P<last>\d{1,9}))?|:(?P<start>\d{1,9})(?:[-:](?P<end>\d{1,9}))?)"
)

CitationMode = Literal["auto", "on", "off", "always", "never"]
"""Whether results carry a citation; `always` and `never` are other words for `on` and `off`."""


def cite(
    results: Sequence[MemorySearchResult], mode: CitationMode, session_key: str | None = None
) -> tuple[MemorySearchResult, ...]:
    """Return `results` with a citation each, or with none.

    `auto` cites except in groups and channels, where others would read the paths of private notes. A citation
    is `path#L3-L7`, or `path#L3` for a single line. A result that is no passage of a file is cited by its
    origin, or else as its backend cites it, or by its path alone.
    """
    wanted = _is_wanted(mode, session_key)
    return tuple(replace(result, citation=_citation(result) if wanted else None) for result in results)


def read_citation(text: str) -> Origin | None:
    """Read a place as it is printed anywhere: `a.md#L3-L7`, `a.md#L3`, `a.md:3-7`, `a.md:3` or `a.md:3:7`.

    None is returned for a bare path. Lines of 0, as in `a.md:0:0`, mean the whole file.
    """
    found = _CITATION.fullmatch(text.strip())
    if found is None:
        return None
    start = int(found["first"] or found["start"])
    end = int(found["last"] or found["end"] or start)
    return Origin(path=found["path"], start_line=start, end_line=max(start, end))


def with_source_line(result: MemorySearchResult) -> MemorySearchResult:
    """Return `result` with its citation, if it has one, below the snippet."""
    if result.citation is None:
        return result
    return replace(result, snippet=f"{result.snippet.strip()}\n\nSource: {result.citation}")


def _is_wanted(mode: CitationMode, session_key: str | None) -> bool:
    if mode != "auto":
        return mode in ("on", "always")
    return not is_shared(session_key)


def _citation(result: MemorySearchResult) -> str:
    if result.origin is not None:
        return result.origin.citation
    if result.start_line < 1 and result.citation:
        return result.citation
    return Origin(path=result.path, start_line=result.start_line, end_line=result.end_line).citation
