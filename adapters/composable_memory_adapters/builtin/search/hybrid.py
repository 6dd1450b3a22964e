"""Fuses the results of keyword search and vector search into one ranking.

Scores are absolute: they depend on the query and the passage, not on what else was found. So a threshold
means the same for every query, nonsense scores low, and asking for more results never changes the first ones.
docs/retrieval-measurements.md has the formulas and the measurements behind the constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean

from composable_memory_adapters.text.relevance import absolute_score
from composable_memory_ops_logs.quick_dataclass import dataclass

VECTOR_WEIGHT = 0.3
"""Weight of the vector score; the two legs' weights sum to 1."""

MOST_VECTOR_WEIGHT = 0.6
ENOUGH_WORDS = 0.8
"""If the best keyword score is below this, the answer probably uses other words than the query."""

WEIGHT_OF_LACK = 0.7
"""How much the vector weight grows per unit that the best keyword score falls short."""

CANDIDATES = 48
"""Passages to take from each leg. More changes no measured result, but never take fewer than requested."""

TELLING_LEAD = 0.3
"""Relative gap between the nearest and an ordinary passage at which vectors get their full weight."""

FEWEST_TO_COMPARE = 8
"""With fewer passages than this, there is no meaningful average to compare with."""

RERANK_WEIGHT = 0.5
"""Weight of the reranker's score if it separates the passages clearly."""

TELLING_DISTANCE = 0.5
"""Relative gap between the best and an average candidate at which the reranker gets its full weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordHit:
    """A passage found by keyword search.

    `bm25` is its relevance, positive and higher for better. `exact` means that it has every word of the
    query, or every quoted phrase; `named`, that its note's names and the headings above it have every word.
    """

    id: int
    bm25: float
    exact: bool
    named: bool = False
    words: Mapping[str, float] | None = None
    """How much each word contributed to the relevance, if requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedHit:
    """A passage with its score and the score of each leg, all in [0, 1]; None if a leg did not find it."""

    id: int
    score: float
    keyword_score: float | None
    vector_score: float | None
    exact: bool


def fuse(
    keyword: Sequence[KeywordHit] | None,
    vector: Mapping[int, float] | None,
    *,
    scale: float,
    vector_weight: float = VECTOR_WEIGHT,
) -> list[FusedHit]:
    """Return every passage that a leg found, best first; ties are broken by keyword score, then by id.

    A leg that did not take part is None, and the other one then decides alone. `scale` is the relevance of a
    good answer to this query (`Relevance.scale`). `vector` holds cosines, -1 to 1, and should cover the
    keyword hits too; a passage it lacks counts as far away as the farthest one it has. If a passage's names
    match the whole query, its text adds no evidence: such a hit gets its keyword score if that is higher.
    """
    keyword_scores = {hit.id: absolute_score(hit.bm25, scale=scale) for hit in keyword or ()}
    # No cosine exceeds 1; one that is not finite comes from a damaged vector.
    vector_scores = {
        id_: cosine if 0.0 <= cosine <= 1.0 else float(1.0 < cosine < inf)
        for id_, cosine in (vector or {}).items()
    }
    # Without a single vector the leg has nothing to say yet: the notes have not been embedded.
    share = 1.0 if keyword is None else vector_weight if vector else 0.0
    exact = {hit.id for hit in keyword or () if hit.exact}
    named = {hit.id for hit in keyword or () if hit.named}
    unnamed = min(vector_scores.values(), default=0.0)
    order = []
    for id_ in keyword_scores.keys() | vector_scores.keys():
        by_words, by_meaning = keyword_scores.get(id_, 0.0), vector_scores.get(id_, unnamed)
        score = (1 - share) * by_words + share * by_meaning
        order.append((-max(score, by_words) if id_ in named else -score, -by_words, id_))
    order.sort()
    return [
        FusedHit(
            id=id_,
            score=-behind,
            keyword_score=keyword_scores.get(id_),
            vector_score=vector_scores.get(id_),
            exact=id_ in exact,
        )
        for behind, _, id_ in order
    ]


def reranked(hits: Sequence[FusedHit], judged: Mapping[int, float]) -> list[FusedHit]:
    """Return `hits` rescored with a reranker's judgements, best first.

    Judgements are 0 to 1; a hit without one counts as 0. The reranker's weight falls if it finds all passages
    alike, since its order is then chance.
    """
    share = RERANK_WEIGHT * _separation(judged)
    new = [replace(hit, score=(1 - share) * hit.score + share * judged.get(hit.id, 0.0)) for hit in hits]
    return sorted(new, key=lambda hit: (-hit.score, -(hit.keyword_score or 0.0), hit.id))


def best_keyword_score(hits: Sequence[KeywordHit], *, scale: float) -> float:
    """Return the best keyword score among the hits, from 0 to 1."""
    return absolute_score(max((hit.bm25 for hit in hits), default=0.0), scale=scale)


def vector_weight_for(nearest: float, some: Sequence[float], *, by_words: float) -> float:
    """Return the vector weight for a query; the two legs' weights sum to 1.

    `nearest` is the best cosine, `some` the cosines of a sample of passages. An embedder that cannot
    read a script finds all texts in it alike: if an average passage is nearly as close as the nearest, the
    order among the near ones is chance, and words decide. `by_words` is the best keyword score: if no passage
    has most of the words, the answer probably uses others, and vectors count for more.
    """
    lack = max(0.0, ENOUGH_WORDS - by_words)
    weight = min(MOST_VECTOR_WEIGHT, VECTOR_WEIGHT + WEIGHT_OF_LACK * lack)
    if len(some) < FEWEST_TO_COMPARE or nearest <= 0.0:
        return weight
    lead = 1.0 - max(0.0, fmean(some)) / nearest
    return weight * min(1.0, max(0.0, lead) / TELLING_LEAD)


def _separation(judged: Mapping[int, float]) -> float:
    """Return, from 0 to 1, how clearly a reranker separates the best passage from an average one."""
    best = max(judged.values(), default=0.0)
    if len(judged) < FEWEST_TO_COMPARE or best <= 0.0:
        return 1.0 if best > 0.0 else 0.0
    return min(1.0, (1.0 - fmean(judged.values()) / best) / TELLING_DISTANCE)
