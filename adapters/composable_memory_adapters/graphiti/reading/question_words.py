"""The words of questions and facts: which to look up, in which forms, and when two are the same (pure).

Full-text indexes differ in what they consider a word. FalkorDB's splits text only at white space and ASCII
punctuation, folds only the case of ASCII letters, and stems English; Chinese, Japanese and Thai, which have
no spaces, are one long word to it. So a word is looked up in every case it may have, and for text without
spaces, pairs of neighbouring characters are searched for inside facts.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from composable_memory_adapters.text import stop_words
from composable_memory_adapters.text.forms import folded, pairs
from composable_memory_adapters.text.query_terms import question_language, says_nothing
from composable_memory_ops_logs.quick_dataclass import dataclass

_ITALIAN = frozenset(
    "a ai al alla che chi ci come con cosa cosi cui da dal dalla de dei del della delle di dove e era gli "
    "ha hanno ho i il in io la le lei lo loro lui ma mi mia mio nel nella non o per perche piu quale quali "
    "quando quanto questa questo se si sono su sua suo ti tra un una uno".split()
)
_STOPS = {**stop_words.BY_LANGUAGE, "it": _ITALIAN}
"""Words that only form questions, in lower case and without accents, by language."""

MAX_WORDS = 32
"""The most words to search facts for."""

MAX_READ = 128
"""The most words counted in the graph, to choose which words of a long question to search for."""

MAX_CHARACTERS = 20_000
"""The rest of a longer question is ignored."""

MIN_OPEN_LETTERS = 5
OPEN_LETTERS = 2
"""Outside English, the last two letters of a word of at least five may differ, as it may be inflected."""

# Han, kana, Hangul, Thai, Lao, Burmese and Khmer.
_UNSPACED = (
    "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u109d\u1100-\u11ff\u1780-\u17d3\u3005-\u3007\u3041-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u3131-\u318e\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# Marks that belong to the preceding letter but that Python does not count as letters.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1-\u05c2\u0610-\u061a\u064b-\u065f\u0670"
    "\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962-\u0963\u0981-\u0983\u09bc-\u09d7\u0a01-\u0a03\u0a3c-\u0a51"
    "\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bd7\u0c00-\u0c04\u0c3c-\u0c56"
    "\u0c81-\u0c83\u0cbc-\u0cd6\u0d00-\u0d03\u0d3b-\u0d57"
)
_PARTS = re.compile(f"[{_UNSPACED}]+|(?:[^\\W_{_UNSPACED}][{_MARKS}]*)+")
_WHOLE = re.compile(f"[{_UNSPACED}]+|(?:[^\\W{_UNSPACED}][{_MARKS}]*)+")
_ASCII_WORD = re.compile("[a-z0-9]+")
_CLITIC = re.compile(r"(?<=\w)['\u2019](?:s|ll|re|ve|d|m|t)\b", re.IGNORECASE)
_RUN = re.compile(f"[{_UNSPACED}]")
_ENGLISH_ENDINGS = {
    "ies": ("y",),
    "ied": ("y",),
    "ing": ("", "e"),
    "ed": ("", "e"),
    "es": ("", "e"),
    "ss": ("ss",),
    "s": ("",),
    "ly": ("",),
}
"""Maps the first matching ending of a word to its possible replacements."""

_SHORTEST_STEM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionWord:
    """One content word of a question, or a pair of characters of a text without spaces.

    `text` is in lower case and without accents. `lookups` are the forms to search in a full-text index; a
    pair has none, as it is searched for inside text. If `is_open`, facts may end the word differently.
    """

    text: str
    lookups: tuple[str, ...] = ()
    is_open: bool = False

    @property
    def is_pair(self) -> bool:
        """Return whether this is a character pair, which no full-text index has."""
        return not self.lookups

    @property
    def beginning(self) -> str:
        """Return the common prefix of all forms of the word, if it is open."""
        return _beginning(self.text)


@dataclass(frozen=True, slots=True)
class FactWords:
    """The words of a fact and of its entities' names."""

    words: frozenset[str]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "FactWords":
        """Read the words from texts."""
        return cls(frozenset(_all_words("\n".join(texts))))

    def hold(self, word: QuestionWord) -> bool:
        """Return whether they include a word of a question, in any form."""
        if word.text in self.words:
            return True
        if word.is_open and any(held.startswith(word.beginning) for held in self.words):
            return True
        first, stems = word.text[0], _stems(word.text)
        alike = [held for held in self.words if held[0] == first]
        return any(not stems.isdisjoint(_stems(held)) for held in alike)


@lru_cache(maxsize=16)  # the graph of each group asks for the words of the same question
def question_words(question: str) -> tuple[QuestionWord, ...]:
    """Return the distinct content words in their order; at most 128.

    Of more, names, numbers and the longest words are kept. A question made only of stop words keeps them all;
    one without letters and digits has no words.
    """
    text = _CLITIC.sub(" ", unicodedata.normalize("NFC", question[:MAX_CHARACTERS]))
    written = [(part, whole) for whole in _WHOLE.findall(text) for part in _PARTS.findall(whole)]
    language = question_language((part for part, _ in written), _STOPS, is_question="?" in text)
    stops = _STOPS[language] | stop_words.ALWAYS
    content = [(part, whole) for part, whole in written if _folded(part) not in stops] or written
    found = {
        word.text: (word, part)
        for part, whole in reversed(content)
        for word in reversed([*_words_in(part, whole, is_english=language == "en")])
    }
    first_to_last = [*reversed(found.values())]
    kept = sorted(first_to_last, key=lambda one: _selectivity(*one), reverse=True)[:MAX_READ]
    return tuple(word for word, part in first_to_last if (word, part) in kept)


def most_selective(words: Sequence[QuestionWord], frequencies: Mapping[str, int]) -> tuple[QuestionWord, ...]:
    """Return at most 32 of the words, in order: the rarest in the facts, then those in no fact."""
    if len(words) <= MAX_WORDS:
        return tuple(words)

    def rank(word: QuestionWord) -> tuple[bool, int]:
        frequency = frequencies.get(word.text, 1 if word.is_pair else 0)  # pairs are not counted
        return not frequency, frequency

    kept = {word.text for word in sorted(words, key=rank)[:MAX_WORDS]}
    return tuple(word for word in words if word.text in kept)


def _words_in(part: str, whole: str, *, is_english: bool) -> Iterator[QuestionWord]:
    if _RUN.match(part):
        found = pairs(_folded(part))
        yield from (QuestionWord(text=pair) for pair in [p for p in found if not says_nothing(p)] or found)
        return
    text = _folded(part)
    is_open = not (is_english and part.isascii()) and len(text) >= MIN_OPEN_LETTERS and text.isalpha()
    lookups = [*_cases(part)]
    if is_open:
        lookups += [f"{form}*" for form in _cases(_beginning(part))]
    if whole != part:
        lookups += _cases(whole)  # an index takes a_name for one word
    yield QuestionWord(text=text, lookups=tuple(dict.fromkeys(lookups)), is_open=is_open)


def _cases(word: str) -> Iterator[str]:
    """Yield the forms that an index may have of a word if it folds only ASCII."""
    yield word.lower()
    if not word.isascii():
        yield from (word, word.capitalize(), word.upper())


def _selectivity(word: QuestionWord, written: str) -> tuple[bool, int]:
    """Estimate how selective a word is without knowing the facts: rare words are long."""
    is_name = any(char.isdigit() or char.isupper() for char in written)
    return is_name, len(word.text) + (2 if word.is_pair else 0)


def _all_words(text: str) -> Iterator[str]:
    if text.isascii():
        yield from _ASCII_WORD.findall(_CLITIC.sub(" ", text).lower())
        return
    for part in _PARTS.findall(_CLITIC.sub(" ", unicodedata.normalize("NFC", text))):
        bare = _folded(part)
        if _RUN.match(part):
            yield from bare
            yield from pairs(bare)
        else:
            yield bare


def _folded(word: str) -> str:
    """Return a word in lower case, in normal width and without accents."""
    return folded(unicodedata.normalize("NFKC", word))


@lru_cache(maxsize=16_384)
def _stems(word: str) -> frozenset[str]:
    """Return a word and its possible English stems; in other scripts, only the word."""
    if not word.isascii() or not word.isalpha():
        return frozenset((word,))
    return frozenset((word, *_without_ending(word)))


def _without_ending(word: str) -> Iterator[str]:
    for ending, bases in _ENGLISH_ENDINGS.items():
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= _SHORTEST_STEM:
            yield from (stem + base for base in bases)
            if "" in bases and stem[-1] == stem[-2]:
                yield stem[:-1]
            return


def _beginning(word: str) -> str:
    return word[: max(MIN_OPEN_LETTERS - 1, len(word) - OPEN_LETTERS)]
