"""Turns both legs' candidates into results: fuses, reorders and truncates them, and reads their texts.

Everything here runs in a thread, on one snapshot of the index, read through a `PassageReader`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import accumulate

from composable_memory.front_matter import front_matter
from composable_memory.types import JsonValue, MemorySearchResult, SearchOptions
from composable_memory_adapters.builtin.search import hybrid
from composable_memory_adapters.builtin.search.diversity import (
    Saying,
    age_in_days,
    balanced_order,
    decay_factor,
    diverse_order,
    written_on,
)
from composable_memory_adapters.builtin.search.hybrid import FusedHit
from composable_memory_adapters.builtin.search.index_vectors import Followed
from composable_memory_adapters.builtin.search.keyword_leg import KeywordAnswer
from composable_memory_adapters.builtin.search.time_matching import Dated, rescored
from composable_memory_adapters.builtin.settings import HybridSettings
from composable_memory_adapters.builtin.store.read_queries import Origin, PassageReader, PassageRow
from composable_memory_adapters.text.forms import is_asian, word_set
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_adapters.text.snippets import SnippetMaker
from composable_memory_ops_logs.quick_dataclass import dataclass

COMPARED_WHOLE = 4096
"""Up to this many passages that pass the filters are compared one by one; more are searched."""

JUDGED = 2 * hybrid.CANDIDATES
"""How many of the best candidates a reranker sees."""

DIVERSE_AMONG = 24
"""How many of the best results are reordered for diversity; comparing them takes quadratic time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """The embeddings nearest to a query's vector, as (id, cosine), best first, and the engine that found
    them.

    `followed` is the state of the index whose vectors were searched.
    """

    vector: Sequence[float]
    embeddings: Sequence[tuple[int, float]]
    engine: str
    followed: Followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What the legs found, each asked for `depth` passages; None for a leg that did not take part."""

    depth: int
    keyword: KeywordAnswer | None
    near: Near | None

    @property
    def are_all(self) -> bool:
        """Return whether searching deeper cannot find more."""
        by_words = len(self.keyword.hits) if self.keyword else 0
        by_meaning = len(self.near.embeddings) if self.near else 0
        return max(by_words, by_meaning) < self.depth


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPolicy:
    """How candidates become a ranking; the same for every query of a day.

    Ages are counted from `today`; `balances_sources` keeps transcripts from crowding out notes.
    """

    hybrid: HybridSettings
    today: date
    balances_sources: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The results to return, whether they are as many as needed, and everything ranked so far.

    `damaged` names the files of passages left out because their rows are corrupt. `lacks_some` means that a
    sync has removed or replaced some passages since they were found.
    """

    results: tuple[MemorySearchResult, ...] = ()
    is_enough: bool = False
    ranked: tuple[FusedHit, ...] = ()
    damaged: frozenset[str] = frozenset()
    lacks_some: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToJudge:
    """The fused candidates, best first, and the texts of the best of them by id."""

    fused: Sequence[FusedHit]
    texts: Mapping[int, str]


def to_judge(
    reader: PassageReader,
    *,
    found: Candidates,
    settings: HybridSettings,
    keywords: KeywordQuery,
    among: Sequence[int] | None = None,
    dated: Dated | None = None,
) -> ToJudge:
    """Return what a reranker should see."""
    fused = _fused(reader, found, settings, keywords, among)
    best = fused if dated is None else rescored(reader, fused, dated)
    rows = reader.passages([hit.id for hit in best[:JUDGED]]).rows
    return ToJudge(fused=fused, texts={id_: row.text for id_, row in rows.items()})


def make_page(
    reader: PassageReader,
    *,
    found: Candidates,
    after: Page,
    options: SearchOptions,
    policy: RankingPolicy,
    keywords: KeywordQuery,
    among: Sequence[int] | None = None,
    dated: Dated | None = None,
    fused: Sequence[FusedHit] | None = None,
) -> Page:
    """Return the results from `found`, after those that a shallower search has put in `after`.

    With `among`, only those passages may be results; `dated` is what matches the time asked for. `fused` are
    the fused candidates, if already computed.
    """
    if fused is None:
        fused = _fused(reader, found, policy.hybrid, keywords, among)
    if dated is not None:
        fused = rescored(reader, fused, dated)
    ranked = _extended(after.ranked, _arranged(reader, fused, policy))
    good = [hit for hit in ranked if hit.exact or hit.score >= options.min_score]
    is_below = bool(ranked) and ranked[-1].score < options.min_score
    snippets = SnippetMaker(keywords, found.keyword.rarities if found.keyword else None)
    words = {hit.id: hit.words for hit in found.keyword.hits if hit.words} if found.keyword else {}
    page = _page(reader, good, snippets, wanted=options.max_results, words=words)
    is_enough = is_below or len(page.results) >= options.max_results
    return replace(page, is_enough=is_enough, ranked=ranked)


def listed_page(reader: PassageReader, ids: Sequence[int], options: SearchOptions) -> Page:
    """Return the first of `ids` as results, for a query that consists of filters only."""
    hits = [FusedHit(id=id_, score=1.0, keyword_score=None, vector_score=None, exact=True) for id_ in ids]
    snippets = SnippetMaker(KeywordQuery(terms=(), phrases=()))
    page = _page(reader, hits, snippets, wanted=options.max_results, words={})
    return replace(page, is_enough=True, ranked=tuple(hits))


def _fused(
    reader: PassageReader,
    found: Candidates,
    settings: HybridSettings,
    keywords: KeywordQuery,
    among: Sequence[int] | None,
) -> list[FusedHit]:
    near = _passages_of(reader, found.near.embeddings) if found.near else {}
    nearest = next(iter(near.values()), None)
    if among is not None and found.near:
        near = _near_among(reader, found.near, near, among)
    named = [hit.id for hit in found.keyword.hits if hit.id not in near] if found.keyword else []
    sample: Sequence[int] = ()
    if settings.vector_weight is None and near and found.near and found.keyword:
        sample = found.near.followed.sample
    known: Mapping[int, float] = {}
    if found.near and (sample or named):
        known = reader.cosines(found.near.vector, [*{*sample, *named}])
    others = {id_: known[id_] for id_ in named if id_ in known}
    ordinary = [known[id_] for id_ in sample if id_ in known]
    vector_weight = _vector_weight(nearest, ordinary, settings, _by_words(found.keyword, keywords))
    return hybrid.fuse(
        found.keyword.hits if found.keyword else None,
        near | others if found.near else None,
        scale=found.keyword.scale if found.keyword else 1.0,
        vector_weight=vector_weight,
    )


def _passages_of(reader: PassageReader, embeddings: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Return all passages with these vectors, in the same order, with their cosines."""
    holders = reader.holders([id_ for id_, _ in embeddings])
    return {passage: cosine for id_, cosine in embeddings for passage in holders.get(id_, ())}


def _near_among(
    reader: PassageReader, near: Near, found: Mapping[int, float], among: Sequence[int]
) -> dict[int, float]:
    """Return the cosines of the passages in `among`: of all if they are few, else of the near ones."""
    if len(among) > COMPARED_WHOLE:
        wanted = frozenset(among)
        return {id_: cosine for id_, cosine in found.items() if id_ in wanted}
    return {**reader.cosines(near.vector, among)}


def _by_words(keyword: KeywordAnswer | None, keywords: KeywordQuery) -> float:
    """Return the best keyword score, from 0 to 1.

    CJK terms are pairs of characters rather than words: how many match says little, so the score counts as 1.
    """
    if keyword is None or any(map(is_asian, keywords.terms)):
        return 1.0
    return hybrid.best_keyword_score(keyword.hits, scale=keyword.scale)


def _vector_weight(
    nearest: float | None, ordinary: Sequence[float], settings: HybridSettings, by_words: float
) -> float:
    """Return the configured vector weight, or else one by how well the vectors tell texts apart.

    `ordinary` are the cosines of a sample of the index, `by_words` is the best keyword score.
    """
    if settings.vector_weight is not None:
        return settings.vector_weight
    if nearest is None or not ordinary:
        return hybrid.VECTOR_WEIGHT
    return hybrid.vector_weight_for(nearest, ordinary, by_words=by_words)


def _arranged(reader: PassageReader, hits: Sequence[FusedHit], policy: RankingPolicy) -> Sequence[FusedHit]:
    """Reorder `hits` by age, diversity and source, capping each score at that of the hit before.

    Capped scores preserve the order when this answer is merged with others, which sorts by score.
    """
    decay, mmr = policy.hybrid.temporal_decay, policy.hybrid.mmr
    if not (decay.enabled or mmr.enabled or policy.balances_sources):
        return hits
    if decay.enabled:
        hits = _faded(hits, reader.origins([hit.id for hit in hits]), policy)
    if mmr.enabled:
        hits = _diversified(reader, hits, mmr.lambda_)
    if policy.balances_sources:
        sessions = reader.sessions([hit.id for hit in hits])
        order = balanced_order([hit.score for hit in hits], [hit.id in sessions for hit in hits])
        hits = [hits[at] for at in order]
    return _no_better_than_before(hits)


def _faded(hits: Iterable[FusedHit], origins: Mapping[int, Origin], policy: RankingPolicy) -> list[FusedHit]:
    """Return `hits` with their scores decayed by age, best first."""
    half_life = policy.hybrid.temporal_decay.half_life_days
    faded = []
    for hit in hits:
        age = _age(origins.get(hit.id), policy.today)
        faded.append(replace(hit, score=hit.score * decay_factor(age, half_life)))
    return sorted(faded, key=lambda hit: -hit.score)


def _age(origin: Origin | None, today: date) -> int:
    if origin is None:
        return 0
    return age_in_days(written_on(origin.path, source=origin.source, mtime_ns=origin.mtime_ns), today)


def _diversified(reader: PassageReader, hits: Sequence[FusedHit], lambda_: float) -> list[FusedHit]:
    """Reorder the best of `hits` for diversity."""
    best, rest = hits[:DIVERSE_AMONG], hits[DIVERSE_AMONG:]
    rows = reader.passages([hit.id for hit in best]).rows
    says = [Saying(score=hit.score, words=word_set(rows[hit.id].text)) for hit in best if hit.id in rows]
    there = [hit for hit in best if hit.id in rows]
    not_there = [hit for hit in best if hit.id not in rows]
    return [*(there[at] for at in diverse_order(says, lambda_=lambda_)), *not_there, *rest]


def _no_better_than_before(hits: Iterable[FusedHit]) -> list[FusedHit]:
    def no_better(before: FusedHit, hit: FusedHit) -> FusedHit:
        return hit if hit.score <= before.score else replace(hit, score=before.score)

    return [*accumulate(hits, no_better)]


def _extended(ranked: Sequence[FusedHit], deeper: Sequence[FusedHit]) -> tuple[FusedHit, ...]:
    """Append to `ranked` what is new in `deeper`, capping scores at the last one of `ranked`."""
    if not ranked:
        return tuple(deeper)
    known = {hit.id for hit in ranked}
    ceiling = ranked[-1].score
    new = (replace(hit, score=min(hit.score, ceiling)) for hit in deeper if hit.id not in known)
    return (*ranked, *new)


def _page(
    reader: PassageReader,
    hits: Sequence[FusedHit],
    snippets: SnippetMaker,
    *,
    wanted: int,
    words: Mapping[int, Mapping[str, float]],
) -> Page:
    """Return the first `wanted` passages that still exist, and what is known about the missing ones.

    Of identical pieces of one line, only the best is returned.
    """
    results: dict[tuple[str, int, int, str], MemorySearchResult] = {}
    damaged, lacks_some = frozenset[str](), False
    for start in range(0, len(hits), wanted):
        part = hits[start : start + wanted]
        found = reader.passages([hit.id for hit in part])
        damaged |= found.damaged
        lacks_some |= found.lacks_some
        for hit in part:
            if (row := found.rows.get(hit.id)) is not None:
                says = (row.path, row.start_line, row.end_line, row.text)
                if says not in results:
                    results[says] = _result(row, hit, snippets, words.get(hit.id))
        if len(results) >= wanted:
            break
    return Page(results=tuple(results.values())[:wanted], damaged=damaged, lacks_some=lacks_some)


def _result(
    row: PassageRow, hit: FusedHit, snippets: SnippetMaker, words: Mapping[str, float] | None
) -> MemorySearchResult:
    head = front_matter(row.text).length if row.start_line <= 1 else 0
    shown = snippets.snippet(row.text, head=head)
    return MemorySearchResult(
        path=row.path,
        start_line=row.start_line,
        end_line=row.end_line,
        score=hit.score,
        snippet=shown.text,
        source=row.source,
        start_char=row.start_char,
        exact=hit.exact,
        highlights=shown.highlights,
        text=row.text,
        title=row.title,
        headings=row.headings,
        metadata=_shares(hit, words),
    )


def _shares(hit: FusedHit, words: Mapping[str, float] | None) -> dict[str, JsonValue]:
    """Return each leg's score, from 0 to 1, to explain the overall score.

    The keyword score is divided among the words in proportion to their relevance.
    """
    legs = {"by_words": hit.keyword_score, "by_meaning": hit.vector_score}
    shares: dict[str, JsonValue] = {leg: round(score, 3) for leg, score in legs.items() if score is not None}
    if words and hit.keyword_score:
        part = hit.keyword_score / sum(words.values())
        shares["words"] = [
            {"word": word, "score": round(part * value, 3)}
            for word, value in sorted(words.items(), key=lambda one: -one[1])
        ]
    return shares
