"""Rewrites words for the keyword index, in scripts that its tokenizer cannot handle (pure).

The index splits text at everything that is neither a letter nor a digit, drops case and accents, and stems
English (FTS5's `porter unicode61 remove_diacritics 2`). It can neither segment Chinese, Japanese and Korean
nor separate the article from an Arabic word. So notes and queries are rewritten here, both in the same way.
"""

import re
import threading
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import apsw

from composable_memory_ops_logs.lazy import Pattern

CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3031-\u3035\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
"""Han, kana and Hangul, for use in a character class."""

_RUN = Pattern(f"[{CJK}]+")
_WORD = Pattern(f"[{CJK}]+|[^\\W_{CJK}]+")
_ASCII_WORD = re.compile(r"[^\W_]+")
_HANGUL = Pattern("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7a3]+")
# Full- and half-width forms and decomposed characters, as some keyboards and file systems produce them.
_IRREGULAR = Pattern(
    "[\u1100-\u11ff\u2f00-\u2fdf\uf900-\ufaff\ufb50-\ufdff\ufe70-\ufefc\uff01-\uff5e\uff66-\uffdc]+"
    "|.[\u3099\u309a]"
)

_ARABIC = re.compile("[\u0610-\u06ff]")
_ARABIC_WORD = re.compile("[\u0621-\u064a]+")
# Drop vowel marks and the tatweel (stretching) character; merge letters written with or without hamza.
_ARABIC_LETTERS = (
    {ord(mark): None for mark in "\u0640\u0670"}
    | dict.fromkeys([*range(0x610, 0x61B), *range(0x64B, 0x660)])
    | str.maketrans("\u0622\u0623\u0625\u0671\u0649\u0629", "\u0627\u0627\u0627\u0627\u064a\u0647")
    | {zero + digit: str(digit) for zero in (0x660, 0x6F0) for digit in range(10)}
)
_ARABIC_ARTICLES = ("وال", "بال", "كال", "فال", "ال", "لل")
_ARABIC_ENDINGS = ("ها", "ان", "ات", "ون", "ين", "يه", "ه", "ي")


def index_text(text: str) -> str:
    """Return what the keyword index stores for `text`.

    Text without Arabic or CJK characters is returned unchanged. A CJK run becomes its overlapping pairs and
    its last character, so that a single character can be found as the prefix of a pair.
    """
    if text.isascii():
        return text
    text = _stemmed(plain(text))
    return _RUN.sub(lambda run: f" {' '.join(tokens(run[0]))} ", text)


def plain(text: str) -> str:
    """Normalise full-width, half-width and decomposed characters, and drop Arabic vowel marks."""
    if text.isascii():
        return text
    text = _IRREGULAR.sub(lambda form: unicodedata.normalize("NFKC", form[0]), text)
    return text.translate(_ARABIC_LETTERS) if _ARABIC.search(text) else text


def words_of(text: str) -> list[str]:
    """Return the words of a normalised text in order; a CJK run is one word."""
    return _ASCII_WORD.findall(text) if text.isascii() else _WORD.findall(text)


def tokens(word: str) -> list[str]:
    """Return the index's tokens for a normalised word; for a CJK run, its pairs and its last character."""
    if is_asian(word):
        return [*pairs(word), word[-1]] if len(word) > 1 else [word]
    return [_stemmed(word)]


def pairs(run: str) -> list[str]:
    """Return the overlapping pairs of a CJK run; a run of one character is its own pair."""
    return [first + second for first, second in pairwise(run)] or [run]


def word_set(text: str) -> frozenset[str]:
    """Return the set of words of any text, without case and accents; for CJK runs, pairs and characters."""
    return frozenset(_different(plain(unicodedata.normalize("NFC", text))))


def is_asian(word: str) -> bool:
    """Return whether a word is a run of Chinese, Japanese or Korean."""
    return not word.isascii() and _RUN.match(word) is not None


def is_hangul(run: str) -> bool:
    """Return whether a CJK run is entirely Korean."""
    return _HANGUL.fullmatch(run) is not None


def folded(word: str) -> str:
    """Return a word in lower case and without accents, as the index compares it."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFD", word.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in bare if not "\u0300" <= c <= "\u036f"))


def _different(text: str) -> Iterator[str]:
    for word in words_of(text):
        if is_asian(word):
            yield from word
            yield from pairs(word)
        else:
            yield folded(_stemmed(word))


def _stemmed(text: str) -> str:
    """Return `text` with its Arabic words stemmed, everything else unchanged."""
    return _ARABIC_WORD.sub(lambda word: _arabic_stem(word[0]), text) if _ARABIC.search(text) else text


def _arabic_stem(word: str) -> str:
    """Strip "and", the article and common endings from `word`, as long as enough of it is left.

    The light stemmer "light10" of Larkey, Ballesteros and Connell, "Light Stemming for Arabic Information
    Retrieval" (2007).
    """
    if word.startswith("و") and len(word) > 3:
        word = word[1:]
    article = next((one for one in _ARABIC_ARTICLES if word.startswith(one)), "")
    if len(word) >= len(article) + 2:
        word = word.removeprefix(article)
    for ending in _ARABIC_ENDINGS:
        if word.endswith(ending) and len(word) >= len(ending) + 2:
            word = word.removesuffix(ending)
    return word


TOKENIZER = ("unicode61", "remove_diacritics", "2")


class _Tokenizer(threading.local):
    """Each thread's tokenizer, created on first use; creating one takes 0.1 ms."""

    def __init__(self) -> None:
        self.tokenize = apsw.Connection(":memory:").fts5_tokenizer("porter", list(TOKENIZER))


_TOKENIZER = _Tokenizer()


class Stemmer:
    """Tokenizes texts as `porter unicode61` does: no case, no accents, English words stemmed.

    A million characters take 50 ms in English, half a second in Chinese.
    """

    def of_text(self, text: str) -> list[str]:
        """Return the stems of a text in order; for CJK runs, the pairs and the last character."""
        return self.of_forms(index_text(text))

    def of_forms(self, text: str) -> list[str]:
        """Return the stems of words that are already in the forms of the index."""
        written = text.encode("utf-8", "replace")
        found = _TOKENIZER.tokenize(
            written, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
        )
        return cast("list[str]", found)  # the return type without offsets and colocated tokens
