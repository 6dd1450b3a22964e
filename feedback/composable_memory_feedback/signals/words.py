"""Splits texts into words that are compared without case, punctuation and compatibility forms (pure)."""

import re
import unicodedata

__all__ = ["is_unspaced", "normal", "words_of"]

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # kana, Han
)


def normal(text: str) -> str:
    """Return a text in one of the ways in which Unicode can write it; its case is kept."""
    return unicodedata.normalize("NFKC", text)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; where a script has no spaces, whole phrases."""
    return _WORD.findall(normal(text).casefold())


def is_unspaced(text: str) -> bool:
    """Say whether a text has letters of a script that puts no spaces between words."""
    return _UNSPACED.search(text) is not None
