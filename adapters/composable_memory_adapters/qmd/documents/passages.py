"""From the documents that QMD found to results: their passages, scored by their words, best first."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from composable_memory.types import JsonValue, MemorySearchResult, SearchOptions
from composable_memory_adapters.qmd.documents.reader import Document, DocumentReader, Passage
from composable_memory_adapters.qmd.documents.relevance import (
    FOUND_SCORE,
    LIKENESS_WEIGHT,
    WORDS_WEIGHT,
    Scored,
    likeness,
    score,
)
from composable_memory_adapters.qmd.documents.stemming import StemMemory
from composable_memory_adapters.qmd.settings import LimitSettings, SearchMode
from composable_memory_adapters.qmd.values import Collection, Hit
from composable_memory_adapters.text.query_terms import KeywordQuery, analyse
from composable_memory_adapters.text.snippets import snippet

__all__ = ["passages_of"]

MAX_BYTES_SCORED = 1_500_000
"""Of all documents of an answer, which at first takes 0.1 s in English, five times as long in Japanese.

Of a document beyond, only the passage is scored that QMD names."""

MOST_RESULTS = 64
"""So many passages are returned at most, or as many as there are documents if these are more."""


async def passages_of(
    hits: Sequence[Hit],
    *,
    query: str,
    mode: SearchMode,
    collections: Sequence[Collection],
    workspace: Path,
    limits: LimitSettings,
    options: SearchOptions | None = None,
    stems: StemMemory | None = None,
) -> list[MemorySearchResult]:
    """Return the passages in the documents of `hits` that answer `query`, best first.

    Equal ones keep QMD's order. A document that is gone, or may not be read, has none. Where a file no longer
    holds what QMD found in it, nor any word of the question, QMD's own lines are returned, with `stale` in
    the metadata. The snippets together are no longer than `limits` allow. With `options` there are as many
    and as good ones as these want; `stems` remembers those of earlier questions.
    """
    reader = DocumentReader(collections, workspace)
    return await asyncio.to_thread(
        lambda: [*_wanted(_passages_of(hits, reader, query, mode, limits, stems or StemMemory()), options)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """A passage of a document, its score, and whether it has all words of the question."""

    document: Document
    passage: Passage
    score: float
    exact: bool


def _passages_of(
    hits: Sequence[Hit],
    reader: DocumentReader,
    query: str,
    mode: SearchMode,
    limits: LimitSettings,
    stems: StemMemory,
) -> Iterator[MemorySearchResult]:
    asked = analyse(query)
    documents = reader.documents(hits)
    found = _telling(asked, documents, stems)
    found |= _named(asked, [one for one in documents if one.rank not in found])
    ranked = [one for document in documents for one in _ranked(document, found[document.rank], mode)]
    ranked.sort(key=lambda one: -one.score)
    best = ranked[: max(MOST_RESULTS, len(hits))]
    results = (_result(one, asked, limits.max_snippet_chars) for one in best)
    return _within_budget(results, limits.max_injected_chars)


def _wanted(
    results: Iterable[MemorySearchResult], options: SearchOptions | None
) -> Iterable[MemorySearchResult]:
    """Yield the results that are wanted; for others no snippet is cut."""
    if options is None:
        return results
    kept = (one for one in results if one.exact or one.score >= options.min_score)
    return islice(kept, options.max_results)


Found = dict[int, list[tuple[Passage, Scored]]]
"""Passages of the documents at each rank, the best first."""


def _telling(asked: KeywordQuery, documents: Sequence[Document], stems: StemMemory) -> Found:
    """Return the passages with words of the question, of the documents that have such."""
    left = MAX_BYTES_SCORED
    cut: list[tuple[int, Passage]] = []
    for document in documents:
        left -= document.size
        passages = document.passages if left >= 0 else (document.named,)
        cut += ((document.rank, passage) for passage in passages)
    found: Found = {}
    all_scored = score(asked, [one.text for _, one in cut], stems)
    for (rank, passage), scored in zip(cut, all_scored, strict=True):
        if scored.words > 0.0:
            found.setdefault(rank, []).append((passage, scored))
    return {rank: sorted(some, key=lambda one: -one[1].words) for rank, some in found.items()}


def _named(asked: KeywordQuery, documents: Sequence[Document]) -> Found:
    """Return the passages that QMD names, scored with the file's name as well, which QMD searches too."""
    texts = [f"{document.hit.path}\n{document.named.text}" for document in documents]
    scored = zip(documents, score(asked, texts), strict=True)
    return {document.rank: [(document.named, one)] for document, one in scored}


def _ranked(
    document: Document, found: Sequence[tuple[Passage, Scored]], mode: SearchMode
) -> Iterator[_Ranked]:
    """Yield the passages of one document with their scores."""
    like = LIKENESS_WEIGHT[mode] * likeness(document.rank)
    for passage, scored in found:
        by_words = WORDS_WEIGHT[mode] * scored.words or FOUND_SCORE
        yield _Ranked(document=document, passage=passage, score=by_words + like, exact=scored.exact)
        like = 0.0  # the place that QMD gave the document counts once


def _result(ranked: _Ranked, asked: KeywordQuery, most_chars: int) -> MemorySearchResult:
    hit, passage = ranked.document.hit, ranked.passage
    metadata: dict[str, JsonValue] = {
        "collection": hit.collection,
        "docid": hit.docid,
        "title": hit.title,
        "qmd_score": hit.score,
    }
    return MemorySearchResult(
        path=ranked.document.path,
        start_line=passage.start_line,
        end_line=passage.end_line,
        score=ranked.score,
        snippet=snippet(passage.text, asked.terms, limit=most_chars),
        source=ranked.document.collection.source,
        start_char=passage.start_char,
        exact=ranked.exact,
        metadata=metadata | {"stale": True} if passage.is_stale else metadata,
    )


def _within_budget(
    results: Iterable[MemorySearchResult], most_chars: int | None
) -> Iterator[MemorySearchResult]:
    """Yield results until their snippets are as long together as they may be; the last one is cut."""
    left = most_chars
    for result in results:
        if left is None:
            yield result
            continue
        if left <= 0:
            return
        yield replace(result, snippet=result.snippet[:left])
        left -= len(result.snippet)
