"""Puts a question so that QMD can find something: its words together, then a few of them at a time (pure).

QMD finds the documents that hold all the words of a search, each as a beginning. A natural question as it
stands therefore finds nothing: its content words are asked for together, then singly and in pairs, and QMD
fuses the lists. Of 1,200 questions to up to 60 notes, in four languages, that finds the note with the answer
for 97 to 100 %, the question as it stands for 0 to 18 %. What people type is no search syntax, so nothing in
it may act as such.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

from composable_memory_adapters.qmd.settings import SearchMode
from composable_memory_adapters.qmd.values import SearchRequest, SubSearch
from composable_memory_adapters.text.forms import is_asian, plain, words_of
from composable_memory_adapters.text.query_terms import KeywordQuery, analyse

__all__ = ["MAX_CHARACTERS", "MAX_SEARCHES", "request_of"]

MAX_CHARACTERS = 2_000
"""More of a question is not asked."""

MAX_SEARCHES = 10
"""Searches that one request is made of; QMD runs them one after the other."""

# What JavaScript takes for a space, and what would end the line or the text.
_GAP = re.compile("[\\s\x00-\x1f\x7f-\x9f\ufeff\ud800-\udfff]+")
_NEGATION = re.compile(r"^[-\u2010-\u2015\s]+|(?<=\s)[-\u2010-\u2015]+(?=\S)")
_KIND = re.compile(r"^(lex|vec|hyde|expand|intent)\s*:", re.IGNORECASE)
_ARABIC = re.compile("[\u0610-\u06ff]")


def request_of(
    query: str, *, mode: SearchMode, rerank: bool, collections: Sequence[str], limit: int
) -> SearchRequest | None:
    """Return what to ask QMD for `query`; None if there is neither a letter nor a digit in it.

    In the mode `query` with `rerank`, QMD's language models widen the text themselves.
    """
    line = _GAP.sub(" ", unicodedata.normalize("NFC", query[:MAX_CHARACTERS])).strip()
    if not words_of(line):
        return None
    text = _without_syntax(line)
    expand = mode == "query" and rerank
    searches = [] if expand else [*_by_likeness(text, mode), *_by_words(line, mode)]
    return SearchRequest(
        text=text,
        collections=tuple(collections),
        limit=limit,
        searches=tuple(searches[:MAX_SEARCHES]),
        expand=expand,
    )


def _without_syntax(line: str) -> str:
    """Return a line in which nothing quotes, excludes, or names a kind of search."""
    bare = _NEGATION.sub("", _GAP.sub(" ", line.replace('"', " "))).strip()
    return _NEGATION.sub("", _KIND.sub(r"\1 ", bare))  # what stood behind the name of a kind


def _by_likeness(text: str, mode: SearchMode) -> Iterator[SubSearch]:
    if mode != "search":
        yield SubSearch(kind="vec", text=text)


def _by_words(line: str, mode: SearchMode) -> Iterator[SubSearch]:
    """Yield the searches by words, the most telling first: of all words, of phrases, of one or two words."""
    if mode == "vsearch":
        return
    asked = analyse(line)
    phrases = [f'"{" ".join(words_of(phrase))}"' for phrase in asked.phrases]
    together = " ".join([*phrases, *_outside(asked.phrases, asked.terms)])
    words = _as_written(asked, line)
    room = max(1, MAX_SEARCHES - 1 - len(phrases))
    for text in dict.fromkeys([together, *phrases, *_few_at_a_time(words, room)]):
        yield SubSearch(kind="lex", text=text)


def _few_at_a_time(words: Sequence[str], room: int) -> list[str]:
    """Return each word alone, and then pairs; if there is no room for that, the words in pairs.

    In many documents a common word alone says little, but it is the only way to what holds no other. The
    pairs of a long question have no word in common, so that all of its words are asked for.
    """
    singly = sorted(words, key=_telling, reverse=True)
    if len(singly) <= room:
        return [*singly, *sorted(map(" ".join, pairwise(words)), key=len, reverse=True)]
    most_telling = frozenset(singly[: 2 * room])
    kept = [word for word in words if word in most_telling]
    return [*(" ".join(kept[at : at + 2]) for at in range(0, len(kept), 2)), *singly]


def _as_written(asked: KeywordQuery, line: str) -> list[str]:
    """Return the terms as QMD's index may have them: Arabic as written, the rest uninflected."""
    written = {plain(word): word for word in words_of(line)}
    return [
        written.get(term, term) if _ARABIC.match(term) else _beginning(term, is_open=lookup.is_open)
        for term, lookup in zip(asked.terms, asked.sought(), strict=False)  # phrases are sought after terms
    ]


def _beginning(term: str, *, is_open: bool) -> str:
    return term[:-1] if is_open and not is_asian(term) else term


def _outside(phrases: Sequence[str], terms: Sequence[str]) -> Iterator[str]:
    """Yield the terms that are not asked for already as a part of a phrase."""
    in_phrases = {word for phrase in phrases for word in words_of(phrase)}
    yield from (term for term in terms if term not in in_phrases)


def _telling(term: str) -> tuple[bool, int]:
    """Return how much a word is likely to tell, without knowing the notes: rare words are long."""
    is_name = any(char.isdigit() or char.isupper() for char in term)
    return is_name, len(term) + (2 if is_asian(term) else 0)
