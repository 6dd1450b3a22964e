"""Makes one ranking of what keyword search and vector search found.

Scores are absolute: they depend on the question and the passage, not on what else was found. So a threshold
means the same for every question, nonsense scores low, and asking for more results never changes the first
ones. docs/retrieval-measurements.md has the formulas and the measurements behind the constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean

from composable_memory_adapters.text.relevance import absolute_score
from composable_memory_ops_logs.quick_dataclass import dataclass

VECTOR_WEIGHT = 0.3
"""What vectors count, of 1 for both legs."""

MOST_VECTOR_WEIGHT = 0.6
ENOUGH_WORDS = 0.8
"""Where the best keyword score is below this, the words of the question are not those of the answer."""

WEIGHT_OF_LACK = 0.7
"""How much more the vectors count for all that the best keyword score lacks."""

CANDIDATES = 48
"""Passages to take from each leg. More changes no measured result; fewer than the caller wants is too few."""

TELLING_LEAD = 0.3
"""How far an ordinary passage has to be behind the nearest, as a share, before vectors count in full."""

FEWEST_TO_COMPARE = 8
"""Among fewer passages there is no ordinary one."""

RERANK_WEIGHT = 0.5
"""What a reranker's judgement counts, where it tells passages apart."""

TELLING_DISTANCE = 0.5
"""How far the ordinary candidate is behind the best, as a share, before a judgement counts in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordHit:
    """A passage that keyword search found.

    `bm25` is its relevance, positive and higher for better. `exact` says that it has every word of the
    question, or everything that was quoted, `named` that the names of its note and the headings above it have
    every word of the question.
    """

    id: int
    bm25: float
    exact: bool
    named: bool = False
    words: Mapping[str, float] | None = None
    """What each word gave to the relevance, where that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedHit:
    """A passage with its score and what it is made of, each in [0, 1]; None where a leg did not name it."""

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
    """Return every passage that a leg named, best first; equal ones by keyword score, then by id.

    A leg that was not asked is None, and the other one then decides alone. `scale` is the relevance that a
    good answer to this question has (`Relevance.scale`). `vector` has the cosines of passages, -1 to 1, and
    should also name the keyword hits. One that it does not name counts as no nearer than the farthest it
    does. Where a passage is asked for by its name, its text says nothing more: words decide alone, if that is
    better.
    """
    keyword_scores = {hit.id: absolute_score(hit.bm25, scale=scale) for hit in keyword or ()}
    # Nothing is nearer than 1; a cosine that is not finite is that of a damaged vector.
    vector_scores = {
        id_: cosine if 0.0 <= cosine <= 1.0 else float(1.0 < cosine < inf)
        for id_, cosine in (vector or {}).items()
    }
    # Without a single vector the leg has nothing to say yet: the notes are still to be embedded.
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
    """Return `hits` with a share of what a reranker judged in their scores, best first.

    `judged` are from 0 to 1; a hit that was not judged counts as 0. The share falls where the reranker finds
    everything alike: its order then is chance.
    """
    share = RERANK_WEIGHT * _separation(judged)
    new = [replace(hit, score=(1 - share) * hit.score + share * judged.get(hit.id, 0.0)) for hit in hits]
    return sorted(new, key=lambda hit: (-hit.score, -(hit.keyword_score or 0.0), hit.id))


def best_keyword_score(hits: Sequence[KeywordHit], *, scale: float) -> float:
    """Return how well the best of the hits has the words of the question, from 0 to 1."""
    return absolute_score(max((hit.bm25 for hit in hits), default=0.0), scale=scale)


def vector_weight_for(nearest: float, some: Sequence[float], *, by_words: float) -> float:
    """Return the weight of the vectors for a question, of 1 for both legs.

    `nearest` is the best cosine, `some` are those of any passages. To an embedder that cannot read a script
    all texts in it are alike: where an ordinary passage is nearly as close as the nearest, the order among
    the near ones is chance, and words decide. `by_words` is the best keyword score: where no passage has most
    of the words, the answer is likely in others, and meaning counts for more.
    """
    lack = max(0.0, ENOUGH_WORDS - by_words)
    weight = min(MOST_VECTOR_WEIGHT, VECTOR_WEIGHT + WEIGHT_OF_LACK * lack)
    if len(some) < FEWEST_TO_COMPARE or nearest <= 0.0:
        return weight
    lead = 1.0 - max(0.0, fmean(some)) / nearest
    return weight * min(1.0, max(0.0, lead) / TELLING_LEAD)


def _separation(judged: Mapping[int, float]) -> float:
    """Return from 0 to 1 how far a reranker tells the best passage from an ordinary one."""
    best = max(judged.values(), default=0.0)
    if len(judged) < FEWEST_TO_COMPARE or best <= 0.0:
        return 1.0 if best > 0.0 else 0.0
    return min(1.0, (1.0 - fmean(judged.values()) / best) / TELLING_DISTANCE)
