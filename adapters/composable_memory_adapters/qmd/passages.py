"""Turns the documents that QMD found into results: their passages, scored by their words, best first.

QMD's own scores are not used: fused searches are scored 1/rank, and its bm25 is 0 in small collections. So
passages of what it found are scored by their words (`text_scores`), as in the builtin index. Of vector
similarity, only QMD's rank is known.

QMD names a document and estimates a line; only the file itself has the exact lines and the current text. It
is chunked as in the builtin index, so that both backends report the same lines. Reading accesses the disk:
call it from a thread.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from composable_memory.errors import MemoryPathError
from composable_memory.highlights import within
from composable_memory.query.filters import day_in_path
from composable_memory.time.windows import MOST_DAYS, TIME_BONUS, DaySpan, window_of
from composable_memory.types import JsonValue, MemorySearchResult, QueryIntent, SearchOptions
from composable_memory_adapters.chunking import chunk_markdown
from composable_memory_adapters.qmd.collections import canonical_path, read_text, resolve
from composable_memory_adapters.qmd.settings import LimitSettings, SearchMode
from composable_memory_adapters.qmd.types import Collection, Hit
from composable_memory_adapters.text.query_terms import KeywordQuery, analyse
from composable_memory_adapters.text.relevance import Scored, StemCache, score
from composable_memory_adapters.text.snippets import SnippetMaker
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_BYTES_READ = 16 * 1024 * 1024
"""Limit for all files of an answer; beyond it, only what QMD reports is known."""

_CUT_OFF = "..."
_EDGES = "\ufeff\ufffd" + "".join(map(chr, range(0xD800, 0xE000)))
"""The remains of a character that QMD has cut through, and the byte order mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Lines of a document; `is_stale` means that the file no longer contains them.

    `start_char` is the position in the first line where it begins.
    """

    start_line: int
    end_line: int
    start_char: int = 0
    text: str
    is_stale: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file that QMD found at a `rank`, counted from 0, and the `path` by which results name it.

    `passages` are those of the current file; none if it is empty, or could not be read. `named` is the one
    that contains what QMD found in it, or else QMD's own snippet.
    """

    rank: int
    hit: Hit
    path: str
    collection: Collection
    passages: tuple[Passage, ...]
    named: Passage

    @property
    def size(self) -> int:
        """Return the bytes of its passages in UTF-8."""
        return sum(len(passage.text.encode("utf-8", "replace")) for passage in self.passages)


class DocumentReader:
    """Reads the documents of one answer, and only files that the collections cover."""

    def __init__(self, collections: Sequence[Collection], workspace: Path) -> None:
        self._collections = {one.name: one for one in collections}
        self._workspace = workspace
        self._left = MAX_BYTES_READ

    def documents(self, hits: Sequence[Hit]) -> list[Document]:
        """Return the documents that exist and may be read, without repetition, in the order of `hits`."""
        documents: dict[str, Document] = {}
        for rank, hit in enumerate(hits):
            if (document := self._document(rank, hit)) is not None:
                documents.setdefault(document.path, document)
        return [*documents.values()]

    def _document(self, rank: int, hit: Hit) -> Document | None:
        collection = self._collections.get(hit.collection)
        if collection is None:
            return None
        path = canonical_path(collection, hit.path, self._workspace)
        try:
            text = self._text(path)
        except (MemoryPathError, FileNotFoundError, NotADirectoryError):
            return None
        passages = _cut(text or "")
        named = _from_snippet(hit)
        if text is not None:
            line = line_of(hit, text)
            holding = (one for one in passages if line and one.start_line <= line <= one.end_line)
            named = next(holding, replace(named, is_stale=True))
        return Document(rank=rank, hit=hit, path=path, collection=collection, passages=passages, named=named)

    def _text(self, path: str) -> str | None:
        """Return the text of a file; None if it exists but cannot be read, or is too large."""
        file = resolve(path, [*self._collections.values()], self._workspace)
        try:
            text = read_text(file, max_bytes=self._left)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError:
            return None
        self._left -= len(text)
        return text


def line_of(hit: Hit, text: str) -> int | None:
    """Return the 1-based line that matches best, located by QMD's snippet; None if the text has changed."""
    text, snippet = text.replace("\r\n", "\n"), hit.snippet.replace("\r\n", "\n").strip(_EDGES)
    if not snippet.strip():
        return hit.line or 1
    expected = _beginning_of_line(text, hit.start_line)
    for wanted in (snippet, snippet.removesuffix(_CUT_OFF)):
        place = text.find(wanted, expected)
        # The snippet may begin and end within a line, but it begins in the line that QMD names.
        if place < 0 or "\n" in text[expected:place]:
            place = text.find(wanted)
        if place >= 0:
            further = min(max(0, hit.line - hit.start_line), wanted.count("\n"))
            return text.count("\n", 0, place) + 1 + further
    return None


def _beginning_of_line(text: str, line: int) -> int:
    place = 0
    for _ in range(line - 1):
        place = text.find("\n", place) + 1
        if not place:
            return len(text)
    return place


def _cut(text: str) -> tuple[Passage, ...]:
    return tuple(
        Passage(
            start_line=chunk.start_line,
            end_line=chunk.end_line,
            start_char=chunk.start_char,
            text=chunk.text,
        )
        for chunk in chunk_markdown(text)
    )


def _from_snippet(hit: Hit) -> Passage:
    start = hit.start_line or max(1, hit.line)
    lines = hit.line_count or hit.snippet.count("\n") + 1
    text = hit.snippet.removesuffix(_CUT_OFF)
    return Passage(start_line=start, end_line=start + lines - 1, text=text)


KEYWORD_WEIGHT: Mapping[SearchMode, float] = {"search": 0.8, "vsearch": 0.7, "query": 0.7}
"""Weight of the words in a score.

Less than 1, so that a passage scores a little lower than in the builtin index, which also knows vector
similarity: if both are queried, the better informed order is kept.
"""

VECTOR_WEIGHT: Mapping[SearchMode, float] = {"search": 0.0, "vsearch": 0.2, "query": 0.2}
"""Weight of QMD's rank for a document, added to its best passage.

In keyword search the rank adds nothing to the words, and loses answers. More than 0.2 costs some of what
vectors add, measured with MiniLM.
"""

HALF_RANK = 10
"""The document at this rank, counted from 0, gets half of the rank score of the first."""

FOUND_SCORE = 0.05
"""Score of a document that QMD found for reasons not visible in its words."""


def days_asked(intent: QueryIntent | None, now: datetime) -> DaySpan | None:
    """Return the days that a question asks for, in the user's time zone; None if it asks for no time."""
    window = window_of(intent.time_hints, now) if intent and intent.time_hints else None
    if window is None or (window.end - window.start).days > MOST_DAYS:
        return None
    return DaySpan(
        first=window.start.astimezone(now.tzinfo).date(), last=window.end.astimezone(now.tzinfo).date()
    )


def time_bonus(asked: DaySpan, path: str) -> float:
    """Return the bonus of a note for the day in its path or folder, as in the builtin index.

    Without it, the builtin memory's notes of that time would always be ranked above QMD's.
    """
    day = day_in_path(path)
    return TIME_BONUS * asked.level(day) if day else 0.0


def rank_score(rank: int) -> float:
    """Return the score of the document at `rank` in QMD's list, counted from 0; in (0, 1]."""
    return HALF_RANK / (HALF_RANK + rank)


MAX_BYTES_SCORED = 1_500_000
"""How much text of an answer is scored; uncached that takes 0.1 s in English, 0.5 s in Japanese.

Of further documents, only the passage that QMD names is scored.
"""

MAX_PASSAGES = 64
"""Maximum of returned passages, or the number of documents if that is more."""


async def passages_of(
    hits: Sequence[Hit],
    *,
    query: str,
    mode: SearchMode,
    collections: Sequence[Collection],
    workspace: Path,
    limits: LimitSettings,
    options: SearchOptions | None = None,
    cache: StemCache | None = None,
    asked_days: DaySpan | None = None,
) -> list[MemorySearchResult]:
    """Return the passages in the documents of `hits` that answer `query`, best first.

    Ties keep QMD's order. Documents that are gone, or may not be read, are left out. If a file no longer
    contains what QMD found in it, nor any word of the query, QMD's own lines are returned, with `stale` in
    the metadata. `limits` bound the length of all snippets together, `options` number and score. `cache`
    holds the stems of earlier queries. Notes of `asked_days` get a bonus.
    """
    reader = DocumentReader(collections, workspace)
    return await asyncio.to_thread(
        lambda: [
            *_wanted(
                _passages_of(hits, reader, query, mode, limits, cache or StemCache(), asked_days), options
            )
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """A passage of a document, its score, and whether it contains all words of the query."""

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
    cache: StemCache,
    asked_days: DaySpan | None,
) -> Iterator[MemorySearchResult]:
    keywords = analyse(query)
    documents = reader.documents(hits)
    found = _with_words(keywords, documents, cache)
    found |= _named(keywords, [one for one in documents if one.rank not in found])
    ranked = [one for document in documents for one in _ranked(document, found[document.rank], mode)]
    if asked_days is not None:
        ranked = [_of_its_time(one, asked_days) for one in ranked]
    ranked.sort(key=lambda one: -one.score)
    best = ranked[: max(MAX_PASSAGES, len(hits))]
    snippets = SnippetMaker(keywords)
    results = (_result(one, snippets, limits.max_snippet_chars) for one in best)
    return _within_budget(results, limits.max_injected_chars)


def _wanted(
    results: Iterable[MemorySearchResult], options: SearchOptions | None
) -> Iterable[MemorySearchResult]:
    """Yield as many results as `options` allow, lazily: no snippet is made for the others."""
    if options is None:
        return results
    kept = (one for one in results if one.exact or one.score >= options.min_score)
    return islice(kept, options.max_results)


Found = dict[int, list[tuple[Passage, Scored]]]
"""The passages of each document, by its rank, best first."""


def _with_words(keywords: KeywordQuery, documents: Sequence[Document], cache: StemCache) -> Found:
    """Return the passages that contain words of the query, for the documents that have any."""
    left = MAX_BYTES_SCORED
    cut: list[tuple[int, Passage]] = []
    for document in documents:
        left -= document.size
        passages = document.passages if left >= 0 else (document.named,)
        cut += ((document.rank, passage) for passage in passages)
    found: Found = {}
    all_scored = score(keywords, [one.text for _, one in cut], cache)
    for (rank, passage), scored in zip(cut, all_scored, strict=True):
        if scored.words > 0.0:
            found.setdefault(rank, []).append((passage, scored))
    return {rank: sorted(some, key=lambda one: -one[1].words) for rank, some in found.items()}


def _named(keywords: KeywordQuery, documents: Sequence[Document]) -> Found:
    """Return the passages that QMD names, scored together with the file name, which QMD searches too."""
    texts = [f"{document.hit.path}\n{document.named.text}" for document in documents]
    scored = zip(documents, score(keywords, texts), strict=True)
    return {document.rank: [(document.named, one)] for document, one in scored}


def _ranked(
    document: Document, found: Sequence[tuple[Passage, Scored]], mode: SearchMode
) -> Iterator[_Ranked]:
    """Yield the passages of one document with their final scores."""
    by_rank = VECTOR_WEIGHT[mode] * rank_score(document.rank)
    for passage, scored in found:
        by_words = KEYWORD_WEIGHT[mode] * scored.words or FOUND_SCORE
        yield _Ranked(document=document, passage=passage, score=by_words + by_rank, exact=scored.exact)
        by_rank = 0.0  # QMD's rank counts only once for each document


def _of_its_time(ranked: _Ranked, asked: DaySpan) -> _Ranked:
    gain = time_bonus(asked, ranked.document.path)
    return replace(ranked, score=min(1.0, ranked.score + gain)) if gain else ranked


def _result(ranked: _Ranked, snippets: SnippetMaker, most_chars: int) -> MemorySearchResult:
    hit, passage = ranked.document.hit, ranked.passage
    shown = snippets.snippet(passage.text, limit=most_chars)
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
        snippet=shown.text,
        source=ranked.document.collection.source,
        start_char=passage.start_char,
        exact=ranked.exact,
        metadata=metadata | {"stale": True} if passage.is_stale else metadata,
        highlights=shown.highlights,
        text=passage.text,
    )


def _within_budget(
    results: Iterable[MemorySearchResult], most_chars: int | None
) -> Iterator[MemorySearchResult]:
    """Yield results until their snippets reach `most_chars` together; the last one is truncated."""
    left = most_chars
    for result in results:
        if left is None:
            yield result
            continue
        if left <= 0:
            return
        yield replace(result, snippet=result.snippet[:left], highlights=within(result.highlights, left))
        left -= len(result.snippet)
