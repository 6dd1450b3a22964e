"""What a note hands to the keyword index, and what a question asks it for; the two halves have to agree.

The index splits text at everything that is neither a letter nor a digit, drops case and accents, and stems
English (FTS5's `porter unicode61 remove_diacritics 2`). It cannot split Chinese, Japanese or Korean, so runs
of those are rewritten as overlapping pairs of characters on both sides.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from composable_memory_adapters.builtin import stop_words

__all__ = ["KeywordQuery", "analyse", "index_text"]

MAX_CHARACTERS = 8_000
MAX_TERMS = 64
MAX_PHRASES = 16

# Han, kana and Hangul.
_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_CJK}]+")
_TOKEN = re.compile(f"[{_CJK}]+|[^\\W_{_CJK}]+")
# Wide and narrow forms, and characters in two parts, as some keyboards and file systems produce them.
_IRREGULAR = re.compile(
    "[\u1100-\u11ff\u2f00-\u2fdf\uf900-\ufaff\uff01-\uff5e\uff66-\uffdc]+|.[\u3099\u309a]"
)
_HIRAGANA = re.compile("[\u3041-\u309f]+")
_HANGUL = re.compile("[\uac00-\ud7a3]+")
# Bounded, because every opening mark without a closing one is searched for to the end.
_QUOTED = re.compile(
    r'"([^"]{0,300})"|“([^”]{1,300})”|„([^“”]{1,300})[“”]|«([^»]{1,300})»|`([^`]{1,300})`'
    r"|「([^」]{1,300})」|『([^』]{1,300})』"
)
_IDENTIFIER = re.compile(
    r"(?<![^\W_])[^\W_]++(?:(?:->|[-._/\\:@#+]{1,3})[^\W_]++)+|\b[^\W\d_]*[a-z0-9][A-Z]\w*"
)
# Longest first. A word that is wrongly shortened is still found: its pairs are all in the full word.
_PARTICLES = (
    *("에서", "으로", "에게", "한테", "처럼", "같이", "보다", "까지", "부터", "마다", "밖에", "대로"),
    *"은는이가을를의에로와과도만",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordQuery:
    """The words of a question that are worth looking up, best used by `match_any`.

    `terms` are words, pairs of Asian characters, or single ones where nothing else was asked. `phrases` are
    what was quoted and what is written like an identifier, a path or a date; their words are terms as well.
    """

    terms: tuple[str, ...]
    phrases: tuple[str, ...]

    def lookups(self) -> tuple[str, ...]:
        """Return one FTS5 string for each term, then one for each phrase."""
        return tuple(_fts5_string(text) for text in (*self.terms, *self.phrases))

    def match_any(self) -> str | None:
        """Return the FTS5 query for texts with any term; None if there is nothing to look up."""
        return " OR ".join(self.lookups()) or None

    def match_all(self) -> str | None:
        """Return the FTS5 query for texts with every term and phrase; None if there is nothing to look up."""
        # Juxtaposed, not joined by AND: FTS5 then skips a string in which its tokenizer finds no word.
        return " ".join(self.lookups()) or None


def index_text(text: str) -> str:
    """Return what the keyword index is to hold for `text`.

    Text without Asian characters is returned as it is. A run of them becomes its overlapping pairs and its
    last character, so that a single character is found as the beginning of a pair.
    """
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f" {' '.join(_index_tokens(run[0]))} ", _plain(text))


def analyse(query: str) -> KeywordQuery:
    """Find what is worth looking up in `query`; a query of nothing but stop words is looked up as it is.

    Looks at the first 8,000 characters and keeps the first 64 different terms and 16 phrases.
    """
    query = _plain(unicodedata.normalize("NFC", query[:MAX_CHARACTERS]))
    words: list[str] = _TOKEN.findall(query)
    content = [*_distinct(_content_terms(words))] or [*_distinct(_all_terms(words))]
    phrases = [*_distinct(_phrases(query))]
    return KeywordQuery(terms=tuple(content[:MAX_TERMS]), phrases=tuple(phrases[:MAX_PHRASES]))


def _content_terms(words: list[str]) -> Iterator[str]:
    stops = _stops_of(words)
    shouted = all(word.isupper() for word in words)
    for word in words:
        if _RUN.match(word):
            yield from _content_pairs(word)
        elif _fold(word) not in stops or (len(word) > 1 and word.isupper() and not shouted):
            # In mixed case "IT" and "US" are names.
            yield word


def _all_terms(words: list[str]) -> Iterator[str]:
    for word in words:
        yield from _pairs(word) if _RUN.match(word) else (word,)


def _stops_of(words: Iterable[str]) -> frozenset[str]:
    """Return the stop words of the language that the question is in, English unless another is clearer."""
    folded = [_fold(word) for word in words]
    counts = {
        language: sum(word in stops for word in folded) for language, stops in stop_words.BY_LANGUAGE.items()
    }
    best = max(counts, key=lambda language: counts[language])  # the first of equals, which is English
    language = best if counts[best] > 1 else "en"
    return stop_words.BY_LANGUAGE[language] | stop_words.ALWAYS


def _content_pairs(run: str) -> Iterator[str]:
    if run not in stop_words.ALWAYS:
        yield from (pair for pair in _pairs(_without_particle(run)) if not _is_function_pair(pair))


def _is_function_pair(pair: str) -> bool:
    return (
        pair in stop_words.CJK_PAIRS
        or _HIRAGANA.fullmatch(pair) is not None
        or stop_words.CJK_CHARACTERS.issuperset(pair)
    )


def _without_particle(word: str) -> str:
    """Return a Korean word without its last particle if two syllables remain, anything else as it is."""
    if _HANGUL.fullmatch(word):
        for particle in _PARTICLES:
            if word.endswith(particle) and len(word) >= len(particle) + 2:
                return word.removesuffix(particle)
    return word


def _pairs(run: str) -> list[str]:
    """Return the overlapping pairs of a run of Asian characters; a run of one is its own pair."""
    return [first + second for first, second in pairwise(run)] or [run]


def _index_tokens(run: str) -> list[str]:
    """Return its pairs and its last character."""
    return [*_pairs(run), run[-1]] if len(run) > 1 else [run]


def _plain(text: str) -> str:
    """Return wide, narrow and divided forms as ordinary characters."""
    return _IRREGULAR.sub(lambda form: unicodedata.normalize("NFKC", form[0]), text)


def _phrases(query: str) -> Iterator[str]:
    for match in _QUOTED.finditer(query):
        if (quoted := next(filter(None, match.groups()), "")) and _TOKEN.search(quoted):
            yield quoted.strip()
    for match in _IDENTIFIER.finditer(_QUOTED.sub(" ", query)):
        yield match[0]


def _fts5_string(text: str) -> str:
    """Return `text` as an FTS5 string of words in this order; nothing in it can act as an operator."""
    tokens = [*_sequence(text)]
    is_beginning = len(tokens[-1]) == 1 and _RUN.match(tokens[-1]) is not None
    return f'"{" ".join(tokens)}"' + ("*" if is_beginning else "")


def _sequence(text: str) -> Iterator[str]:
    """Yield the tokens that a text with this phrase has one after the other in the index."""
    *words, last = _TOKEN.findall(text) or [""]
    for word in words:
        yield from _index_tokens(word) if _RUN.match(word) else (word,)
    # In the text the last run may go on, so its last character alone is not asked for.
    yield from _pairs(last) if _RUN.match(last) else (last,)


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if (key := text.casefold()) not in seen:
            seen.add(key)
            yield text


def _fold(word: str) -> str:
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFD", word.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in bare if not "\u0300" <= c <= "\u036f"))
