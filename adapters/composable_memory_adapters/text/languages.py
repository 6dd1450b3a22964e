"""Tells which languages texts are in, by their scripts and their commonest words (pure)."""

from collections import Counter
from collections.abc import Iterable, Mapping

from composable_memory_adapters.text import stop_words
from composable_memory_adapters.text.forms import folded, plain, words_of
from composable_memory_ops_logs.redaction.patterns import Pattern

MAX_CHARACTERS = 2_000
"""How much of a text is looked at."""
ENOUGH = 4
"""Stop words of a language that a text has to have before it is taken to be in it."""

# Kana before the characters that Japanese shares with Chinese: a text with some of them is Japanese.
_SCRIPTS = {
    "ja": Pattern("[\u3040-\u30ff]"),
    "zh": Pattern("[\u4e00-\u9fff]"),
    "ko": Pattern("[\uac00-\ud7af]"),
    "ru": Pattern("[\u0400-\u04ff]"),
    "ar": Pattern("[\u0600-\u06ff]"),
    "he": Pattern("[\u0590-\u05ff]"),
    "hi": Pattern("[\u0900-\u097f]"),
    "th": Pattern("[\u0e00-\u0e7f]"),
    "el": Pattern("[\u0370-\u03ff]"),
}
_LATIN = Pattern("[A-Za-z\u00c0-\u024f]")
# A Chinese character is about as much as two and a half letters; five kana in a hundred make a text Japanese.
_LETTERS = {"zh": 2.5, "ja": 20.0}


def language_of(text: str) -> str | None:
    """Return the ISO 639-1 code of the language that most of a text is in, None where it cannot be told.

    Languages with a script of their own are known by it, and those that share one by the one that is
    commonest; of the Latin ones those with stop words are known.
    """
    text = plain(text[:MAX_CHARACTERS])
    letters = {code: len(script.findall(text)) * _LETTERS.get(code, 1) for code, script in _SCRIPTS.items()}
    code = max(letters, key=lambda each: letters[each])
    if letters[code] > len(_LATIN.findall(text)):
        return code
    words = Counter(map(folded, words_of(text)))
    counts = {
        code: sum(words[word] for word in words.keys() & stops)
        for code, stops in stop_words.BY_LANGUAGE.items()
    }
    code = max(counts, key=lambda each: counts[each])
    return code if counts[code] >= ENOUGH else None


def language_shares(texts: Iterable[str]) -> Mapping[str, float]:
    """Return the share of each language among the texts whose language can be told, the largest first."""
    counts = Counter(filter(None, map(language_of, texts)))
    return {code: round(count / counts.total(), 2) for code, count in counts.most_common()}
