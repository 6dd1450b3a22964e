"""From the candidates of both legs to results: fused to one list, cut, and read with their text.

Everything here runs in a reader thread, within one snapshot of the index file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from composable_memory.types import MemorySearchResult, SearchOptions
from composable_memory_adapters.builtin import hybrid, queries
from composable_memory_adapters.builtin.hybrid import FusedHit, VectorHit
from composable_memory_adapters.builtin.keyword_leg import KeywordAnswer
from composable_memory_adapters.builtin.queries import PassageRow
from composable_memory_adapters.builtin.settings import HybridSettings
from composable_memory_adapters.builtin.snippets import snippet
from composable_memory_adapters.builtin.vector_leg import VectorFinding, VectorLeg
from composable_memory_adapters.sqlite_file import Connection

__all__ = ["Candidates", "Near", "Page", "make_page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """What is near the vector of a query, and the engine that found it."""

    leg: VectorLeg
    vector: Sequence[float]
    finding: VectorFinding


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What the legs found, each asked for `depth` passages; None where a leg did not take part."""

    depth: int
    keyword: KeywordAnswer | None
    near: Near | None

    @property
    def are_all(self) -> bool:
        """Say whether looking deeper cannot find more."""
        by_words = len(self.keyword.hits) if self.keyword else 0
        by_meaning = len(self.near.finding.neighbours) if self.near else 0
        return max(by_words, by_meaning) < self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The results to return, whether there are as many as can be wanted, and all that was ranked so far."""

    results: tuple[MemorySearchResult, ...] = ()
    is_enough: bool = False
    ranked: tuple[FusedHit, ...] = ()


def make_page(
    connection: Connection,
    *,
    found: Candidates,
    after: Page,
    options: SearchOptions,
    weights: HybridSettings,
    terms: Sequence[str],
) -> Page:
    """Return the results that `found` makes, behind those that a look less deep has put in `after`."""
    ranked = _extended(after.ranked, _fused(connection, found, weights))
    good = [hit for hit in ranked if hit.exact or hit.score >= options.min_score]
    is_below = bool(ranked) and ranked[-1].score < options.min_score
    return Page(
        results=_results(connection, good, terms, wanted=options.max_results),
        is_enough=is_below or len(good) >= options.max_results,
        ranked=ranked,
    )


def _fused(connection: Connection, found: Candidates, weights: HybridSettings) -> list[FusedHit]:
    return hybrid.fuse(
        found.keyword.hits if found.keyword else None,
        _vector_hits(connection, found.near, found.keyword) if found.near else None,
        scale=found.keyword.scale if found.keyword else 1.0,
        vector_weight=hybrid.VECTOR_WEIGHT if weights.vector_weight is None else weights.vector_weight,
        text_weight=hybrid.TEXT_WEIGHT if weights.text_weight is None else weights.text_weight,
        method=weights.fusion,
    )


def _vector_hits(connection: Connection, near: Near, keyword: KeywordAnswer | None) -> list[VectorHit]:
    """Return what is near, and how near the keyword hits are that are not among it."""
    cosines = dict(near.finding.neighbours)
    others = [hit.id for hit in keyword.hits if hit.id not in cosines] if keyword else []
    if others:
        cosines |= near.leg.cosines(connection, near.vector, others)
    return [VectorHit(id=id_, cosine=cosine) for id_, cosine in cosines.items()]


def _extended(ranked: Sequence[FusedHit], deeper: Sequence[FusedHit]) -> tuple[FusedHit, ...]:
    """Return `ranked` followed by what is new in `deeper`, scored no better than what comes before it."""
    if not ranked:
        return tuple(deeper)
    known = {hit.id for hit in ranked}
    ceiling = ranked[-1].score
    new = (replace(hit, score=min(hit.score, ceiling)) for hit in deeper if hit.id not in known)
    return (*ranked, *new)


def _results(
    connection: Connection, hits: Sequence[FusedHit], terms: Sequence[str], *, wanted: int
) -> tuple[MemorySearchResult, ...]:
    """Return the first `wanted` passages that are still there; a sync may have removed some meanwhile."""
    results: list[MemorySearchResult] = []
    for start in range(0, len(hits), wanted):
        part = hits[start : start + wanted]
        rows = queries.passages(connection, [hit.id for hit in part])
        results += [_result(rows[hit.id], hit, terms) for hit in part if hit.id in rows]
        if len(results) >= wanted:
            break
    return tuple(results[:wanted])


def _result(row: PassageRow, hit: FusedHit, terms: Sequence[str]) -> MemorySearchResult:
    return MemorySearchResult(
        path=row.path,
        start_line=row.start_line,
        end_line=row.end_line,
        score=hit.score,
        snippet=snippet(row.text, terms),
        source=row.source,
        exact=hit.exact,
    )
