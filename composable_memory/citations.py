"""Citations: the place of a passage, in a form that a reader can follow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from composable_memory.highlights import stripped
from composable_memory.session_keys import is_shared
from composable_memory.types import PAGED, MemorySearchResult, format_citation
from composable_memory_ops_logs.lazy import Pattern

if TYPE_CHECKING:
    from composable_memory_feedback.judgements import Judgement
    from composable_memory_feedback.logged.logged_query import RankedHit

_CITATION = Pattern(
    r"(?P<path>.+?)(?:#[Lp](?P<first>\d{1,9})(?:-[Lp]?(?P<last>\d{1,9}))?(?::(?P<within>\d{1,9}))?"
    r"|:(?P<start>\d{1,9})(?:[-:](?P<end>\d{1,9})(?::(?P<start_char>\d{1,9}))?)?)"
)

CitationMode = Literal["auto", "on", "off", "always", "never"]
"""Whether results carry a citation; `always` and `never` are aliases of `on` and `off`."""


def cite(
    results: Sequence[MemorySearchResult], mode: CitationMode, session_key: str | None = None
) -> tuple[MemorySearchResult, ...]:
    """Return `results`, each with a citation or without one.

    `auto` cites except in groups and channels, where others would read the paths of private notes.
    """
    wanted = is_wanted(mode, session_key)
    return tuple(replace(result, citation=citation_of(result) if wanted else None) for result in results)


class Citation(NamedTuple):
    """Lines of a file, or a piece of a long line that begins at `start_char`."""

    path: str
    start_line: int
    end_line: int
    start_char: int | None = None


def read_citation(text: str, *, as_written: bool = False) -> Citation | None:
    """Parse a place in any format that we print: `a.md#L3-L7`, `a.md#L3`, `a.md:3-7`, `a.md:3` or `a.md:3:7`.

    A page counts as a line: `a.pdf#p3`. A piece of a long line is followed by its first character:
    `a.md#L3:1280`, `a.md:3-3:1280`. Returns None for a bare path. Lines of 0, as in `a.md:0:0`, mean the
    whole file. A last line before the first is replaced by the first, unless `as_written`.
    """
    found = _CITATION.fullmatch(text.strip())
    if found is None:
        return None
    start = int(found["first"] or found["start"])
    end = int(found["last"] or found["end"] or start)
    within = found["within"] or found["start_char"]
    return Citation(
        found["path"], start, end if as_written else max(start, end), int(within) if within else None
    )


def format_place(one: "MemorySearchResult | RankedHit | Judgement") -> str:
    """Return `path:3-7`, `path:3-3:1280` for a piece of a line, or the path alone if there are no lines.

    Pages are cited as everywhere: `a.pdf#p3-p4`.
    """
    within = f":{one.start_char}" if one.start_char else ""
    if one.path.lower().endswith(PAGED):
        return f"{format_citation(one.path, one.start_line, one.end_line)}{within}"
    return f"{one.path}:{one.start_line}-{one.end_line}{within}" if one.start_line else one.path


def with_source_line(result: MemorySearchResult) -> MemorySearchResult:
    """Return `result` with its citation, if it has one, appended to the snippet."""
    if result.citation is None:
        return result
    result = stripped(result)
    return replace(result, snippet=f"{result.snippet}\n\nSource: {result.citation}")


def is_wanted(mode: CitationMode, session_key: str | None) -> bool:
    """Return whether everyone who reads the session may see where things are written."""
    if mode != "auto":
        return mode in ("on", "always")
    return not is_shared(session_key)


def citation_of(result: MemorySearchResult) -> str:
    """Return the citation of a result.

    It is `path#L3-L7`, `path#L3` for a single line, `path#L3:1280` for a piece of it, and `path#p3` for a
    page. A result that is not a passage of a file is cited by its origin, or else as its backend cites it, or
    by its path.
    """
    if result.origin is not None:
        return result.origin.citation
    if result.start_line < 1 and result.citation:
        return result.citation
    lines = format_citation(result.path, result.start_line, result.end_line)
    return f"{lines}:{result.start_char}" if result.start_char else lines
