"""The sentence patterns that state a relation, in English, German and Spanish.

The templates and their words are in `grammar.toml`, all other words in `word_lists.toml`. A template is a
pattern over a clause in which names and pronouns are replaced by marks: `WHO` is one or more subjects, or
none if the clause continues about the previous ones; `WHOM` is subjects in another position; `NAME` is names,
`FROM` a name that something is taken from, `TRADE` an occupation, `PET` an animal, and `WORDS` a few words
that need not be names. Templates are tried in this order, and no text is matched twice. A clause that matches
none states nothing.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from composable_memory.data_files import tables
from composable_memory_adapters.extractors.sentence_times import DAY_NAMES, DAYS_BACK, MONTH_NAMES
from composable_memory_ops_logs.quick_dataclass import dataclass

_LISTS = {name: frozenset(words.split()) for name, words in tables(__package__, "word_lists.toml").items()}

TITLES: Final = _LISTS["titles"]
GREETINGS: Final = _LISTS["greetings"]
"""Words that open a remark and name nobody."""
LANGUAGES: Final = _LISTS["languages"]
"""Languages and origins: "Italian food" has no name in it."""
NOT_NAMES: Final = (
    GREETINGS
    | LANGUAGES
    | frozenset(MONTH_NAMES)
    | frozenset(DAY_NAMES)
    | frozenset(DAYS_BACK)
    | _LISTS["not_names"]
)
"""Words capitalised only at the start of a sentence."""
SPANISH_I: Final = _LISTS["spanish_i"]
"""Words that start a Spanish sentence whose subject is the speaker."""
OPENERS: Final = SPANISH_I | _LISTS["openers"]
"""Words that are not names at the start of a sentence."""
GERMAN_NOUNS: Final = _LISTS["german_nouns"]
"""Frequent German nouns, which are capitalised like names."""
ARTICLES: Final = _LISTS["articles"]
PLACES: Final = _LISTS["places"]
OF_A_PLACE: Final = _LISTS["of_a_place"]
ABBREVIATIONS: Final = _LISTS["abbreviations"]
"""Words whose full stop does not end a sentence."""
ORGANISATION_WORDS: Final = _LISTS["organisation_words"]
EVENT_WORDS: Final = _LISTS["event_words"]
TECHNOLOGIES: Final = _LISTS["technologies"]
TOOLS: Final = _LISTS["tools"]
FIRST_NAMES: Final = _LISTS["first_names"]

_TABLES: Final = tables(__package__, "grammar.toml")


def any_of(name: str, of: Mapping[str, str] = _TABLES) -> str:
    """Join the lines of a table to alternatives of one pattern."""
    return "|".join(of[name].strip().split("\n"))


EXCLUSIVE: Final = frozenset(_TABLES["exclusive"].split())
"""Relations of which an entity has only one at a time."""

ONE_HOLDER: Final = frozenset(_TABLES["one_holder"].split())
"""Relations whose target has only one source at a time."""

KINDS_OF_ENDS: Final[Mapping[str, tuple[str, str]]] = _TABLES["kinds_of_ends"]
"""The kinds of source and target that a relation implies."""

UNFIT: Final[Mapping[str, Sequence[str]]] = _TABLES["unfit"]
"""Kinds of names that cannot be the target of a relation."""

MARK: Final = "[\ue000-\uf7ff]"
LIST: Final = rf"{MARK}(?:(?:, (?:and |und |y )?| (?:and|und|y|e|&|sowie) ){MARK})*"
_SUBJECTS: Final = rf"{MARK}(?:(?:, {MARK})*,? (?:and|und|y|e|&|sowie) {MARK})?"
_DET = r"(?:(?:the|an?|my|our|his|her|their|der|die|das|dem|den|ein|eine|einen|el|la|los|las|un|una|mi|su) )?"
_CALLED = r"(?:[a-zäöüñ-]+(?: [a-zäöüñ-]+)? (?:called|named|namens|llamad[oa]|que se llama) )?"
_GOES_ON = r"|(?<=, )(?=(?:is|are|lives|works|speaks|uses|owns) ))"
"""Continues after an insertion between commas: "Omar, who leads Falcon, is based in Cairo"."""
_PARTS = {
    "WHO ": rf"(?:(?:^|(?<=\bsince )|(?<=\bbecause )|(?<=, )|(?<=: )|(?<=– )"
    rf"|(?<=\. ))(?P<s>{_SUBJECTS})(?:, (?:who|which|quien|que))? |^" + _GOES_ON,
    "WHOM": rf"(?P<s>{_SUBJECTS})",
    "NAME": rf"{_DET}{_CALLED}(?P<o>{LIST})(?!['’]s)",
    "FROM": rf"{_DET}(?P<f>{MARK})",
    "WORDS": r"(?P<p>[^;:.!?()␣]+)",
}

STATUS: Final = re.compile(
    rf"^(?:(?P<d>the|our|my|der|die|das|unser\w*|el|la|los|las) )?(?P<sp>{MARK}"
    rf"|(?<= )(?:[\w-]+)(?: [\w-]+){{0,2}}?) "
    rf"(?:(?:is|are|was set to|ist|sind|está|están) (?P<p>{any_of('statuses')})"
    rf"|(?:was|were|has been|have been|got|wurden?|fue(?:ron)?) (?P<settled>{any_of('settled')}))\b",
    re.IGNORECASE,
)

# --- relations between people -------------------------------------------------------------------------------

_KIN: Final[Mapping[str, str]] = _TABLES["kin"]
KIN: Final = {word: re.compile(pattern, re.IGNORECASE) for word, pattern in _KIN.items()}
_KIN_WORD = "|".join(_KIN.values())
IS_KIN: Final = re.compile(_KIN_WORD, re.IGNORECASE)

_ROLES: Final[Mapping[str, str]] = _TABLES["roles"]
ROLES: Final = {word: re.compile(pattern, re.IGNORECASE) for word, pattern in _ROLES.items()}
ROLE: Final = "|".join(_ROLES[name] for name in sorted(_ROLES, key=lambda one: one != "LEAD"))


def _expanded(template: str) -> str:
    named = {**_TABLES["fragments"], "MARK": MARK, "DET": _DET, "KIN": _KIN_WORD, "ROLE": ROLE}
    parts = {**_PARTS, "TRADE": _ROLES["WORKER"], "PET": _KIN["PET"]}
    parts |= {f"{{{name}}}": text for name, text in named.items()}
    whole = re.sub("|".join(map(re.escape, parts)), lambda found: parts[found[0]], template)
    return whole if whole == template else _expanded(whole)


def _patterns(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(_expanded(line), re.IGNORECASE) for line in _TABLES[name].strip().splitlines())


OF_SOMEBODY: Final = _patterns("of_somebody")
OF_A_ROLE: Final = _patterns("of_a_role")

# --- words that retract a statement -------------------------------------------------------------------------

HEDGES: Final = re.compile(rf"(?<![\w'’-])(?:{any_of('hedges')})(?![\w'’])", re.IGNORECASE)
FIRST_PERSON: Final = re.compile(rf"^(?:{'|'.join(SPANISH_I)}|me|nos|he|hemos)\b", re.IGNORECASE)
VERBS: Final = "|".join((*SPANISH_I, any_of("verbs")))


@dataclass(frozen=True, slots=True)
class Frame:
    """A pattern, its relation, and whether that holds, began, is over, or replaces another."""

    type: str
    mood: str
    pattern: re.Pattern[str]


@cache
def frames() -> tuple[Frame, ...]:
    """Return all patterns in the order in which they are tried."""
    lines = (line.split(maxsplit=2) for line in _TABLES["templates"].strip().splitlines())
    return tuple(
        Frame(type_, mood, re.compile(_expanded(template), re.IGNORECASE)) for type_, mood, template in lines
    )


def is_compiled() -> bool:
    """Return whether the patterns are compiled already, which takes a second."""
    return bool(frames.cache_info().currsize)
