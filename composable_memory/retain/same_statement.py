"""Tells whether two sentences state the same, so that nothing is retained twice (pure).

Careful rather than clever: a sentence that is stored once more costs a line, one that is taken for known
costs what it said. All words have to agree, numbers and negations among them, in their order. Only case,
punctuation, articles, short forms, and whether a phrase stands first or last make no difference.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

LEAST_WORDS_TO_MOVE = 4
"""In a sentence of fewer words no phrase is moved: "Tom, Ann" may be another statement than "Ann, Tom"."""

_WORD = re.compile(r"(?<![\w-])-?\d+(?:[.,:/-]\d+)*|\d+(?:[.,:/-]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]")
_MARKS = frozenset(".,;:!…\"'`_()[]“”„«»‘’–—-、。，！；：「」『』（）")
_MINUS = re.compile(r"(?<![\w-])[-‐‑–—−]\s*(?=\d)")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\w)([^*\n]*[^*\s])\1(?![\w*])")
"""Words between asterisks; any other asterisk says something, as in "*.py"."""
_SHORT_FORMS = tuple(
    (re.compile(short), long)
    for short, long in (
        (r"\bcan(?:'t|not)\b", "can not"),
        (r"\bwon't\b", "will not"),
        (r"n't\b", " not"),
        (r"'re\b", " are"),
        (r"'ve\b", " have"),
        (r"'ll\b", " will"),
        (r"'m\b", " am"),
    )
)
_ARTICLES = frozenset(
    "a an the der die das den dem des ein eine einen einem einer el la los las un una le les une um uma il lo"
    " gli".split()
)

_TIED_TO_ITS_PLACE = frozenset(
    "not no never nor without only nicht nie kein keine keinen keinem keiner nur ne pas non jamais no nunca"
    " solo sólo mai".split()
)
"""What these say depends on what they stand before."""


def words_said(text: str, entities: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the words of a sentence that count, in order; `entities` that it does not name come first."""
    said = _words(text)
    absent = (_words(name) for name in sorted(entities, key=str.casefold))
    return (*(word for name in absent if not set(name) <= set(said) for word in name), *said)


def say_the_same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two sentences, as their words, state the same."""
    if not one or len(one) != len(other):
        return False
    if one == other:
        return True
    may_move = len(one) >= LEAST_WORDS_TO_MOVE and _TIED_TO_ITS_PLACE.isdisjoint(one)
    return may_move and any(one[at:] + one[:at] == other for at in range(1, len(one)))


def are_rivals(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two sentences say different things in much the same words; one may end the other."""
    shared = len(set(one) & set(other))
    return not say_the_same(one, other) and 2 * shared >= len(set(one) | set(other))


@lru_cache(maxsize=4096)  # the lines of a note are compared each time that one is added
def _words(text: str) -> tuple[str, ...]:
    plain = _MINUS.sub("-", _EMPHASIS.sub(r"\2", _in_plain_letters(text).replace("’", "'")))
    for short, long in _SHORT_FORMS:
        plain = short.sub(long, plain)
    words = [word for word in _WORD.findall(plain) if word not in _MARKS]
    return tuple(
        word.casefold()
        for number, word in enumerate(words)
        if not (word.casefold() in _ARTICLES and _may_be_article(word, is_first=not number))
    )


def _may_be_article(word: str, *, is_first: bool) -> bool:
    """Return whether a word is written as an article: "A" within a sentence is a name, and so is "UN"."""
    return word.islower() or (is_first and (len(word) == 1 or not word.isupper()))


def _in_plain_letters(text: str) -> str:
    """Return a text in its usual letters; what is raised or lowered stays so, for 10³ is not 103."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFC", text)
    plain = (one if _is_raised(one) else unicodedata.normalize("NFKC", one) for one in letters)
    return unicodedata.normalize("NFC", "".join(plain))


def _is_raised(letter: str) -> bool:
    return unicodedata.decomposition(letter).startswith(("<super>", "<sub>"))
