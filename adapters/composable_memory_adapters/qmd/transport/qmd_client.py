"""Queries QMD: builds the request for a query, and sends it over the fast transport or a separate process.

QMD returns the documents that contain all the words of a search, each as a prefix. A natural-language
question therefore finds nothing as it is: its content words are searched together, then singly and in pairs,
and QMD fuses the lists. For 1,200 questions about up to 60 notes, in four languages, that finds the note with
the answer in 97 to 100 % of cases; the unchanged question, in 0 to 18 %. What people type is not search
syntax, so nothing in it may act as such.
"""

import asyncio
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

from composable_memory.errors import BackendError, BackendTimeout
from composable_memory.supervision.run_command import run_command
from composable_memory.types import Degradation, DegradationCode
from composable_memory_adapters.qmd.models import missing_models
from composable_memory_adapters.qmd.settings import QmdSettings, SearchMode
from composable_memory_adapters.qmd.transport.replies import hits_in, refusal
from composable_memory_adapters.qmd.types import (
    BACKEND_ID,
    Hit,
    Home,
    Installation,
    SearchRequest,
    SubSearch,
    Transport,
    TransportName,
)
from composable_memory_adapters.text.forms import is_asian, plain, words_of
from composable_memory_adapters.text.query_terms import KeywordQuery, Lookup, analyse
from composable_memory_ops_logs.quick_dataclass import dataclass

FAST_SHARE = 0.5
"""Share of the time limit for the fast transport, before a process is started for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReply:
    """QMD's hits, and the transport that returned them."""

    hits: Sequence[Hit]
    transport: TransportName


class QmdClient:
    """Tries the fast transport first and falls back to a process, all within one deadline."""

    def __init__(self, process: Transport, *, fast: Transport | None = None) -> None:
        self._process = process
        self._fast = fast
        self._fast_error: BackendError | None = None

    @property
    def transport(self) -> TransportName:
        """Return the transport that the next request will use, as far as is known."""
        is_fast = self._fast is not None and self._fast_error is None and self._fast.is_up
        return self._fast.name if self._fast is not None and is_fast else self._process.name

    @property
    def fast_error(self) -> BackendError | None:
        """Return why the fast transport failed on its last use; None if it did not."""
        return self._fast_error

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> SearchReply:
        """Return what QMD finds within `timeout_s`.

        Raises:
            BackendError: no transport returned an answer; the error is that of the last one tried.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        error: BackendError | None = None
        if self._fast is not None and self._fast.is_up:
            # If the request needs models, wait for the server that has them loaded: another process would
            # have to load them first.
            share = 1.0 if request.expand else FAST_SHARE
            try:
                hits = await self._fast.ask(request, timeout_s=timeout_s * share)
            except BackendError as failure:
                # A rejection is not final either: QMD's server says `Internal Server Error` for any failure.
                self._fast_error = error = failure
            else:
                self._fast_error = None
                return SearchReply(hits=hits, transport=self._fast.name)
        left_s = deadline - loop.time()
        if left_s <= 0.0 and isinstance(error, BackendTimeout):
            raise error
        hits = await self._process.ask(request, timeout_s=max(left_s, 0.001))
        return SearchReply(hits=hits, transport=self._process.name)


class ProcessTransport:
    """Implements `Transport` with a `qmd` process for each request, which is slower but needs no server."""

    name: TransportName = "process"
    is_up = True

    def __init__(self, installation: Installation, home: Home) -> None:
        self._installation = installation
        self._home = home

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that match, best first; see `Transport`. Requests may run concurrently."""
        reply = await run_command(
            [*self._installation.command, *_options(request), "--", _query_document(request)],
            environ=self._home.environ,
            cwd=self._home.root,
            timeout_s=timeout_s,
            owner=BACKEND_ID,
            operation="search",
            has_grace=False,  # otherwise the answer would come after the deadline
        )
        if reply.code != 0:
            raise refusal(reply.code, reply.stdout, reply.stderr)
        return hits_in(reply.stdout, reply.stderr)


def _options(request: SearchRequest) -> list[str]:
    """Return the arguments of the command up to the query."""
    # Without `--index`, QMD would use a `.qmd` folder in the working directory or above it.
    options = ["--index", "index", "query", "--json", "-n", str(request.limit)]
    options += ["-C", str(request.candidates)]
    options += [] if request.expand else ["--no-rerank"]
    for collection in request.collections:
        options += ["-c", collection]
    return options


def _query_document(request: SearchRequest) -> str:
    """Return the query: the text itself if QMD should expand it, otherwise one line for each search."""
    if request.expand:
        return request.text
    return "\n".join(f"{one.kind}: {one.text}" for one in request.searches)


MAX_CHARACTERS = 2_000
"""A longer query is truncated."""

MAX_SEARCHES = 10
"""Searches in one request at most; QMD runs them one after the other."""

# JavaScript's whitespace, and whatever would end the line or the text.
_GAP = re.compile("[\\s\x00-\x1f\x7f-\x9f\ufeff\ud800-\udfff]+")
_NEGATION = re.compile(r"^[-\u2010-\u2015\s]+|(?<=\s)[-\u2010-\u2015]+(?=\S)")
_KIND = re.compile(r"^(lex|vec|hyde|expand|intent)\s*:", re.IGNORECASE)
_ARABIC = re.compile("[\u0610-\u06ff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveMode:
    """The current search mode, and how it falls short of the settings.

    With `rerank`, QMD's language models expand the query and rerank the results.
    """

    mode: SearchMode
    rerank: bool = False
    shortcoming: Degradation | None = None


def effective_mode(settings: QmdSettings, home: Home, *, has_embedded: bool) -> EffectiveMode:
    """Return the search mode; keyword search if vectors are unavailable. Reads the disk.

    Raises:
        BackendUnavailable: QMD's configuration cannot be read.
    """
    mode = settings.search_mode
    if mode == "search":
        return EffectiveMode(mode=mode)
    if home.environ.get("CI"):
        return _keywords_only(
            "keyword-only", "the variable CI is set, so QMD does not use its models; unset it"
        )
    roles = ("embed",) if mode == "vsearch" else ("embed", "generate", "rerank")
    lacking = missing_models(home, settings, needed=roles)
    if "embed" in lacking:
        reason = "QMD's embedding model is not on this machine; `qmd pull` downloads it"
        return _keywords_only("keyword-only", reason)
    if not has_embedded:
        reason = "QMD has embedded nothing yet; run `cmem index`, which may take long without a GPU"
        return _keywords_only("vectors-pending", reason)
    if mode == "vsearch" or not settings.rerank:
        return EffectiveMode(mode=mode)
    if lacking:
        reason = (
            f"QMD's models to {' and '.join(lacking)} are not on this machine, so it searched by words and "
            f"similarity only; `qmd pull` downloads them, `memory.qmd.rerank: false` turns them off"
        )
        return EffectiveMode(mode=mode, shortcoming=degradation("engine-fallback", reason))
    return EffectiveMode(mode=mode, rerank=True)


def _keywords_only(code: DegradationCode, reason: str) -> EffectiveMode:
    return EffectiveMode(mode="search", shortcoming=degradation(code, reason))


def degradation(code: DegradationCode, reason: str) -> Degradation:
    """Return what is missing from an answer of QMD."""
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)


def request_of(
    query: str, *, mode: SearchMode, rerank: bool, collections: Sequence[str], limit: int
) -> SearchRequest | None:
    """Return the request for `query`; None if it has neither a letter nor a digit.

    In the mode `query` with `rerank`, QMD's language models expand the text themselves.
    """
    line = _GAP.sub(" ", unicodedata.normalize("NFC", query[:MAX_CHARACTERS])).strip()
    if not words_of(line):
        return None
    text = _without_syntax(line)
    expand = mode == "query" and rerank
    searches = [] if expand else [*_by_vectors(text, mode), *_by_keywords(line, mode)]
    return SearchRequest(
        text=text,
        collections=tuple(collections),
        limit=limit,
        searches=tuple(searches[:MAX_SEARCHES]),
        expand=expand,
    )


def _without_syntax(line: str) -> str:
    """Return the line without anything that quotes, excludes or names a kind of search."""
    bare = _NEGATION.sub("", _GAP.sub(" ", line.replace('"', " "))).strip()
    return _NEGATION.sub("", _KIND.sub(r"\1 ", bare))  # again: a dash may follow the name of a kind


def _by_vectors(text: str, mode: SearchMode) -> Iterator[SubSearch]:
    if mode != "search":
        yield SubSearch(kind="vec", text=text)


def _by_keywords(line: str, mode: SearchMode) -> Iterator[SubSearch]:
    """Yield the keyword searches, the most specific first: all words, phrases, then one or two words."""
    if mode == "vsearch":
        return
    keywords = analyse(line)
    phrases = [f'"{" ".join(words_of(phrase))}"' for phrase in keywords.phrases]
    together = " ".join([*phrases, *_outside(keywords.phrases, keywords.terms)])
    words = _as_written(keywords, line)
    room = max(1, MAX_SEARCHES - 1 - len(phrases))
    for text in dict.fromkeys([together, *phrases, *_in_small_groups(words, room)]):
        yield SubSearch(kind="lex", text=text)


def _in_small_groups(words: Sequence[str], room: int) -> list[str]:
    """Return each word alone, then pairs; if there is no room for that, the words in pairs.

    In a large collection a common word alone says little, but it is the only way to documents without the
    others. The pairs of a long question are disjoint, so that all of its words are searched.
    """
    singly = sorted(words, key=_specificity, reverse=True)
    if len(singly) <= room:
        return [*singly, *sorted(map(" ".join, pairwise(words)), key=len, reverse=True)]
    most_specificity = frozenset(singly[: 2 * room])
    kept = [word for word in words if word in most_specificity]
    return [*(" ".join(kept[at : at + 2]) for at in range(0, len(kept), 2)), *singly]


def _as_written(keywords: KeywordQuery, line: str) -> list[str]:
    """Return the terms as QMD's index may have them: Arabic as written, the rest without inflection."""
    written = {plain(word): word for word in words_of(line)}
    return [
        written.get(term, term) if _ARABIC.match(term) else _prefix(term, alternatives)
        for term, alternatives in zip(
            keywords.terms, keywords.sought, strict=False
        )  # phrases follow the terms
    ]


def _prefix(term: str, alternatives: Sequence[Lookup]) -> str:
    """Return the beginning shared by most forms of a term, which QMD looks up as a prefix."""
    return term if len(alternatives) == 1 else alternatives[1].words[0]


def _outside(phrases: Sequence[str], terms: Sequence[str]) -> Iterator[str]:
    """Yield the terms that are not part of a phrase, as phrases are searched anyway."""
    in_phrases = {word for phrase in phrases for word in words_of(phrase)}
    yield from (term for term in terms if term not in in_phrases)


def _specificity(term: str) -> tuple[bool, int]:
    """Return a sort key for how specific a word is likely to be: names first, then long words."""
    is_name = any(char.isdigit() or char.isupper() for char in term)
    return is_name, len(term) + (2 if is_asian(term) else 0)
