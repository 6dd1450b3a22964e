"""Words that are put together from others, as German and Dutch write them: Wasserpumpe, waterpomp (pure).

Someone who asks for the Pumpe means the Wasserpumpe as well, and who asks for the Kellerschlüssel the note
about the Schlüssel zum Keller.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from composable_memory_adapters.text.forms import folded
from composable_memory_ops_logs.lazy import Pattern

MIN_PART = 3
"""Each part of a compound has at least so many letters."""

MIN_COMPOUND = 2 * MIN_PART

_COMMON = {
    language: frozenset([*words.split(), *words.title().split()])
    for language, words in {
        "de": "der die das und ist nicht ein eine einen mit für auf dem den des im von vom zum zur sich wird"
        " bei nach wir ich sind noch auch hat als aus",
        "nl": "het een van voor niet met zijn naar wordt heeft ik wij deze dit maar ook op aan nog de",
    }.items()
}
"""Words by which a text is known to be in a language with compounds."""

_ANY_COMMON = frozenset[str]().union(*_COMMON.values())

HEAD = 200
"""So many characters of a text are looked at to know its language."""

ENDINGS: Mapping[str, Sequence[str]] = {
    "de": ("", "e", "n", "en", "s", "es", "er", "ern"),
    "nl": ("", "s", "en", "e", "n", "er", "eren"),
}
"""Endings of nouns, by language."""

LINKS: Mapping[str, Sequence[str]] = {"de": ("es", "en", "er", "s", "n", "e"), "nl": ("en", "s", "e")}
"""Letters between the parts: Arbeit-s-vertrag."""

LOST = ("e", "en", "n")
"""What the first part may have lost: Woll-decke, Gieß-kanne."""

_LONG_WORDS = {
    "de": Pattern(rf"(?<!\w)[A-ZÄÖÜ][a-zäöüß]{{{MIN_COMPOUND - 1},39}}(?!\w)"),  # nouns
    "nl": Pattern(rf"(?<!\w)[A-Za-zé]{{{MIN_COMPOUND},40}}(?!\w)"),
}


def long_words(texts: Iterable[str]) -> set[str]:
    """Return the words that may be compounds, in small letters and without accents.

    Texts in languages that have none are left out.
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
    """Return the terms of a question that may be the last part of a compound: in German the nouns."""
    words = [term for term in terms if language in ENDINGS and len(term) >= MIN_PART and term.isalpha()]
    nouns = [term for term in words if term[0].isupper()] if language == "de" else []
    return nouns or words  # some write everything in small letters


def ends(word: str, language: str) -> Iterator[str]:
    """Yield what compounds end in whose last part is `word`, in any of its forms."""
    bare = folded(word)
    stems = {bare} | {bare.removesuffix(ending) for ending in ENDINGS[language]}
    forms = {f"{stem}{ending}" for stem in stems if len(stem) >= MIN_PART for ending in ENDINGS[language]}
    yield from sorted(forms)


def splits(word: str, language: str) -> Iterator[tuple[Sequence[str], str]]:
    """Yield each way in which a word may be put together: forms of the first part, and the last part.

    The longest last part comes first.
    """
    for at in range(MIN_PART, len(word) - MIN_PART + 1):
        first, last = word[:at], word[at:]
        bare = [first.removesuffix(link) for link in LINKS[language] if first.endswith(link)]
        forms = (first, *(one for one in bare if len(one) >= MIN_PART), *(first + lost for lost in LOST))
        yield forms, last.capitalize() if word[0].isupper() else last
