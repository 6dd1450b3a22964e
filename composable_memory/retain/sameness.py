"""Tells whether two sentences state the same, so that nothing is retained twice (pure).

Careful rather than clever: a sentence that is stored once more costs a line, one that is taken for known
costs what it said. All words have to agree, numbers and negations among them, in their order. Only case,
punctuation, articles, short forms, and whether a phrase stands first or last make no difference.
"""

import re
import unicodedata
from collections.abc import Iterable

LEAST_WORDS_TO_MOVE = 4
"""In a sentence of fewer words no phrase is moved: "Tom, Ann" may be another statement than "Ann, Tom"."""

_WORD = re.compile(r"(?<![\w-])-?\d+(?:[.,:/-]\d+)*|\d+(?:[.,:/-]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]")
_MARKS = frozenset(".,;:!…\"'`*_()[]“”„«»‘’–—-、。，！；：「」『』（）")
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
    is_long = len(one) >= LEAST_WORDS_TO_MOVE
    return is_long and any(one[at:] + one[:at] == other for at in range(1, len(one)))


def are_rivals(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two sentences say different things in much the same words; one may end the other."""
    shared = len(set(one) & set(other))
    return not say_the_same(one, other) and 2 * shared >= len(set(one) | set(other))


def _words(text: str) -> tuple[str, ...]:
    plain = unicodedata.normalize("NFKC", text).replace("’", "'")
    for short, long in _SHORT_FORMS:
        plain = short.sub(long, plain)
    words = [word for word in _WORD.findall(plain) if word not in _MARKS]
    return tuple(
        word.casefold()
        for number, word in enumerate(words)
        # "A" within a sentence is a name, as in "vitamin A"
        if not (word.casefold() in _ARTICLES and (word.islower() or not number))
    )
