"""Compound words, as in German and Dutch: Wasserpumpe, waterpomp (pure).

A search for Pumpe should also find Wasserpumpe, and one for Kellerschlüssel a note about the Schlüssel zum
Keller.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from composable_memory_adapters.text.forms import folded
from composable_memory_ops_logs.lazy import Pattern

MIN_PART = 3
"""The least number of letters in each part of a compound."""

MIN_COMPOUND = 2 * MIN_PART

_COMMON = {
    language: frozenset([*words.split(), *words.title().split()])
    for language, words in {
        "de": "der die das und ist nicht ein eine einen mit für auf dem den des im von vom zum zur sich wird"
        " bei nach wir ich sind noch auch hat als aus",
        "nl": "het een van voor niet met zijn naar wordt heeft ik wij deze dit maar ook op aan nog de",
    }.items()
}
"""Common words by which a language with compounds is recognised."""

_ANY_COMMON = frozenset[str]().union(*_COMMON.values())

HEAD = 200
"""How many characters of a text to look at to recognise its language."""

ENDINGS: Mapping[str, Sequence[str]] = {
    "de": ("", "e", "n", "en", "s", "es", "er", "ern"),
    "nl": ("", "s", "en", "e", "n", "er", "eren"),
}
"""Noun endings, by language."""

LINKS: Mapping[str, Sequence[str]] = {"de": ("es", "en", "er", "s", "n", "e"), "nl": ("en", "s", "e")}
"""Linking letters between the parts: Arbeit-s-vertrag."""

LOST = ("e", "en", "n")
"""Endings that the first part may have lost: Woll-decke, Gieß-kanne."""

_LONG_WORDS = {
    "de": Pattern(rf"(?<!\w)[A-ZÄÖÜ][a-zäöüß]{{{MIN_COMPOUND - 1},39}}(?!\w)"),  # nouns
    "nl": Pattern(rf"(?<!\w)[A-Za-zé]{{{MIN_COMPOUND},40}}(?!\w)"),
}


def long_words(texts: Iterable[str]) -> set[str]:
    """Return the words that may be compounds, in lower case and without accents.

    Texts in languages without compounds are ignored.
    """
    words: set[str] = set()
    for text in texts:
        if (language := _language_of(text[:HEAD])) is not None:
            words.update(_LONG_WORDS[language].findall(text))
    return {*map(folded, words)}


def _language_of(text: str) -> str | None:
    words = text.split()
    if _ANY_COMMON.isdisjoint(words):
        return None
    said = {*words}
    counts = {language: len(said & common) for language, common in _COMMON.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] >= min(2, 1 + len(said) // 12) else None


def may_end_compounds(terms: Sequence[str], language: str) -> Sequence[str]:
    """Return the terms of a query that may be the last part of a compound; in German, the nouns."""
    words = [term for term in terms if language in ENDINGS and len(term) >= MIN_PART and term.isalpha()]
    nouns = [term for term in words if term[0].isupper()] if language == "de" else []
    return nouns or words  # some people write everything in lower case


def ends(word: str, language: str) -> Iterator[str]:
    """Yield the forms of `word` that a compound with it as the last part may end in."""
    bare = folded(word)
    stems = {bare} | {bare.removesuffix(ending) for ending in ENDINGS[language]}
    forms = {f"{stem}{ending}" for stem in stems if len(stem) >= MIN_PART for ending in ENDINGS[language]}
    yield from sorted(forms)


def splits(word: str, language: str) -> Iterator[tuple[Sequence[str], str]]:
    """Yield each possible split of a compound: forms of the first part, and the last part.

    The longest last part comes first.
    """
    for at in range(MIN_PART, len(word) - MIN_PART + 1):
        first, last = word[:at], word[at:]
        bare = [first.removesuffix(link) for link in LINKS[language] if first.endswith(link)]
        forms = (first, *(one for one in bare if len(one) >= MIN_PART), *(first + lost for lost in LOST))
        yield forms, last.capitalize() if word[0].isupper() else last
