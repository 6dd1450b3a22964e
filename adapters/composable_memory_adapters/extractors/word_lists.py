"""The word lists behind the rules: common first names, known products, and words that are no names."""

from typing import Final

from composable_memory.data_files import tables
from composable_memory_adapters.extractors.sentence_times import DAY_NAMES, DAYS_BACK, MONTH_NAMES

_LISTS = {name: frozenset(words.split()) for name, words in tables(__package__, "word_lists.toml").items()}

TITLES: Final = _LISTS["titles"]
GREETINGS: Final = _LISTS["greetings"]
"""What opens a remark and names nobody."""
LANGUAGES: Final = _LISTS["languages"]
"""What people speak, and where things are from: "Italian food" has no name in it."""
NOT_NAMES: Final = (
    GREETINGS
    | LANGUAGES
    | frozenset(MONTH_NAMES)
    | frozenset(DAY_NAMES)
    | frozenset(DAYS_BACK)
    | _LISTS["not_names"]
)
"""Words that begin with a capital only where a sentence does."""
SPANISH_I: Final = _LISTS["spanish_i"]
"""What begins a sentence in Spanish whose subject is who speaks."""
OPENERS: Final = SPANISH_I | _LISTS["openers"]
"""Words that are no names where they open a sentence."""
GERMAN_NOUNS: Final = _LISTS["german_nouns"]
"""Frequent German nouns, which have a capital as names have."""
ARTICLES: Final = _LISTS["articles"]
PLACES: Final = _LISTS["places"]
OF_A_PLACE: Final = _LISTS["of_a_place"]
LABELS: Final = _LISTS["labels"]
"""Words before a colon that name a field, not somebody who speaks."""
ABBREVIATIONS: Final = _LISTS["abbreviations"]
"""Words whose full stop ends no sentence."""
ORGANISATION_WORDS: Final = _LISTS["organisation_words"]
EVENT_WORDS: Final = _LISTS["event_words"]
TECHNOLOGIES: Final = _LISTS["technologies"]
TOOLS: Final = _LISTS["tools"]
FIRST_NAMES: Final = _LISTS["first_names"]
