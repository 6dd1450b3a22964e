"""Inflected forms of a query's words, in languages that the index does not stem (pure).

The index stems English only. In other languages a query looks up each word as it is, and all words that begin
with its stem: `Pumpen` finds `Pumpe` and `Pumpenkeller`. The rules are deliberately light: they only strip
common endings, and the stem that is left must be long enough to be meaningful.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from composable_memory_adapters.text.forms import folded

MIN_STEM = 3
"""A shorter stem is meaningless."""

MIN_BEGINNING = 4
"""A shorter stem, except in Russian, is the prefix of too many words, so it is looked up as a word."""

GERMAN_ENDINGS = "innen ern em en er es e n s t".split()
DUTCH_ENDINGS = "heden eren en es er e s t".split()
FRENCH_ENDINGS = """
    issons issez issent aient erons erez eront erait ement ent ons ees ait ais era ant es er ez ee ai ir
    it aux al e s x
""".split()
RUSSIAN_ENDINGS = """
    иями ями ами ыми ими ого его ому ему ешь ишь ете ите ться тся иях иям ией ий ый ой ей ая яя ое ее ые
    ие ых их ым им ом ем ам ям ах ях ов ев ую юю ою ею ия ии ию ью ья ать ять ить еть ала ила али или ал
    ил ет ют ут ит ят ат ли ла ло ть й ь а я о е ы и у ю л
""".split()
DOUBLED = ("aa", "ee", "oo", "uu")


def other_forms(word: str, language: str) -> Iterator[tuple[str, bool]]:
    """Yield other forms of `word`, each with whether it is only a prefix."""
    if word.isalpha():
        least = MIN_STEM if language == "ru" else MIN_BEGINNING
        yield from (
            (one, len(one) >= least) for one in dict.fromkeys(STEMS[language](word)) if len(one) >= MIN_STEM
        )


def _romance(word: str) -> Iterator[str]:
    """Spanish and Portuguese: only the last letter differs."""
    yield word[:-1].lower()


def _french(word: str) -> Iterator[str]:
    yield _without(folded(word), FRENCH_ENDINGS)


def _german(word: str) -> Iterator[str]:
    """Nouns are capitalised; the participle of a verb begins with ge-."""
    stem = _without(word.lower(), GERMAN_ENDINGS)  # ß stays, as in the index
    yield stem
    if word[0].islower():
        if stem.startswith("ge") and len(stem) >= MIN_BEGINNING + 2:
            yield stem.removeprefix("ge")
        yield f"ge{stem}"


def _dutch(word: str) -> Iterator[str]:
    """An open syllable has one vowel letter where a closed one has two: ramen, raam; and brieven, brief."""
    stem = _without(folded(word), DUTCH_ENDINGS)
    stems = [stem]
    if stem.startswith("ge") and len(stem) >= MIN_BEGINNING + 2:
        stems.append(stem.removeprefix("ge"))
    for one in stems:
        yield from _dutch_spellings(one)
    yield f"ge{stem}"


def _dutch_spellings(stem: str) -> Iterator[str]:
    yield stem
    if len(stem) < 3:
        return
    if stem[-1] == stem[-2]:
        yield stem[:-1]
    if stem[-1] in "vz":
        yield stem[:-1] + {"v": "f", "z": "s"}[stem[-1]]
    if stem[-1] in "fs":
        yield stem[:-1] + {"f": "v", "s": "z"}[stem[-1]]
    if stem[-3:-1] in DOUBLED:
        yield stem[:-2] + stem[-1] + "e"
    elif stem[-2] in "aeou" and stem[-3] not in "aeiou":
        yield stem[:-1] + stem[-2] + stem[-1]


def _russian(word: str) -> Iterator[str]:
    yield _without(word.lower(), RUSSIAN_ENDINGS)


def _without(word: str, endings: Sequence[str]) -> str:
    """Strip the first matching ending that leaves enough of `word`."""
    fitting = (one for one in endings if word.endswith(one) and len(word) - len(one) >= _least_left(one))
    return word.removesuffix(next(fitting, ""))


def _least_left(ending: str) -> int:
    """Return how many letters an ending must leave; one letter is often part of a short word (huis)."""
    return MIN_STEM + (len(ending) == 1)


STEMS: Mapping[str, Callable[[str], Iterator[str]]] = {
    "de": _german,
    "es": _romance,
    "fr": _french,
    "nl": _dutch,
    "pt": _romance,
    "ru": _russian,
}
"""Languages that the index's stemmer does not cover."""
