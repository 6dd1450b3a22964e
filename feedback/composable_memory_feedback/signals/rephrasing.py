"""Says when one question is another one in other words (pure)."""

from functools import lru_cache
from itertools import pairwise

from composable_memory_feedback.signals.words import is_unspaced, words_of

__all__ = ["is_rephrased"]

SHARED_PART = 0.5
"""The later question shares at least this part of its content words with the earlier one."""
MIN_SHARED = 2
"""And no fewer: one common word, such as a name, is what questions about different things have in common."""
_MIN_CHARS = 4
# Most words that only hold a sentence together are short, in most languages; these are long ones of English.
_EMPTY_WORDS = frozenset(
    "about again already also been could does doing done down ever find from give have here into just know "
    "last like make many more most much need only other over please said same search should show some such "
    "tell than that their them then there these they thing things this those under very want was were what "
    "when where which while whom whose will with would your".split()
)


def is_rephrased(earlier: str, later: str) -> bool:
    """Say whether the later question asks for the same in other words; not so if the words are the same.

    Content words are compared: those of four characters or more, and those with digits, without the empty
    ones; where a script has no spaces, pairs of characters.
    """
    one, other = _content_words(earlier), _content_words(later)
    shared = len(one & other)
    return one != other and shared >= max(MIN_SHARED, SHARED_PART * len(other))


@lru_cache(maxsize=4096)  # a question is compared with all that were asked within minutes of it
def _content_words(text: str) -> frozenset[str]:
    return frozenset(part for word in words_of(text) for part in _parts(word))


def _parts(word: str) -> list[str]:
    if is_unspaced(word):
        return [one + other for one, other in pairwise(word)]
    is_content = len(word) >= _MIN_CHARS or any(map(str.isdigit, word))
    return [word] if is_content and word not in _EMPTY_WORDS else []
