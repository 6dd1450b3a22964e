"""Turns a query into keyword lookups; `forms` has the half that notes and queries share."""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from composable_memory_adapters.text import inflection, stop_words
from composable_memory_adapters.text.forms import (
    folded,
    is_asian,
    is_hangul,
    pairs,
    plain,
    tokens,
    words_of,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_CHARACTERS = 8_000
MAX_TERMS = 64
MAX_PHRASES = 16
LONGEST_OPENING = 200
"""How many characters of a question to search for an opening."""

_WORD = re.compile(r"[^\W_]+|\S")
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_HIRAGANA = re.compile("[\u3041-\u309f]+")
# Bounded, because every unmatched opening quote is followed to the end of the text.
_QUOTED = re.compile(
    r'"([^"]{0,300})"|“([^”]{1,300})”|„([^“”]{1,300})[“”]|«([^»]{1,300})»|`([^`]{1,300})`'
    r"|「([^」]{1,300})」|『([^』]{1,300})』"
)
_IDENTIFIER = re.compile(
    r"(?<![^\W_])[^\W_]++(?:(?:->|[-._/\\:@#+]{1,3})[^\W_]++)+|\b[^\W\d_]*[a-z0-9][A-Z]\w*"
)
# Longest first. A word stripped too far is still found: its pairs are all in the full word.
_PARTICLES = (
    *("에서", "으로", "에게", "한테", "처럼", "같이", "보다", "까지", "부터", "마다", "밖에", "대로"),
    *"은는이가을를의에로와과도만",
)
_AFTER_CONSONANT, _AFTER_VOWEL = frozenset("은이을과"), frozenset("는가를와")
_FIRST_SYLLABLE, _SYLLABLES_A_VOWEL = 0xAC00, 28


@dataclass(frozen=True, slots=True)
class Lookup:
    """Words in sequence; if `is_open`, the last one is a prefix.

    `counts_less` marks a word that only ends in the one asked for.
    """

    words: tuple[str, ...]
    is_open: bool = False
    counts_less: bool = False

    @property
    def fts5(self) -> str:
        """Return the lookup as an FTS5 string; nothing in it can act as an operator."""
        return f'"{" ".join(self.words)}"' + ("*" if self.is_open else "")


@dataclass(frozen=True, kw_only=True)
class KeywordQuery:
    """The words of a query that are worth looking up, usually through `match_any`.

    `terms` are words, pairs of CJK characters, or single characters if there is nothing else. `phrases` are
    quoted text and anything written like an identifier, path or date; their words are terms as well.
    `language` is the query's; if the index does not stem it, other forms of each term are looked up too.
    `names` are words written like names. `compounds` are indexed words that end in a term: they replace a
    term that is `unknown` to the index, and count less than one that is known.
    """

    terms: tuple[str, ...]
    phrases: tuple[str, ...]
    language: str = "en"
    names: frozenset[str] = frozenset()
    compounds: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    @cached_property
    def sought(self) -> tuple[tuple[Lookup, ...], ...]:
        """Return the alternatives for each term, its own spelling first, then those for each phrase."""
        return (
            *(
                (_sequence(term), *_other_forms(term, self.language), *self._compounds_of(term))
                for term in self.terms
            ),
            *((_sequence(phrase),) for phrase in self.phrases),
        )

    def _compounds_of(self, term: str) -> Iterator[Lookup]:
        for word in self.compounds.get(term, ()):
            yield Lookup((word,), counts_less=term not in self.unknown)

    @cached_property
    def groups(self) -> tuple[tuple[Lookup, ...], ...]:
        """Return the alternatives for each term, any of which will do, then those for each phrase.

        Those that count less come last.
        """
        less = (tuple(one for one in each if one.counts_less) for each in self.sought)
        return (
            *(tuple(one for one in each if not one.counts_less) for each in self.sought),
            *filter(None, less),
        )

    @cached_property
    def lookups(self) -> tuple[tuple[str, ...], ...]:
        """Return `groups` as FTS5 strings."""
        return tuple(tuple(one.fts5 for one in each) for each in self.groups)

    def match_any(self) -> str | None:
        """Return the FTS5 query for texts with any term; None if there is nothing to look up."""
        return " OR ".join(one for alternatives in self.lookups for one in alternatives) or None


def analyse(query: str) -> KeywordQuery:
    """Find the terms worth looking up in `query`; one of nothing but stop words is looked up as it is.

    Reads the first 8,000 characters, and keeps the first 64 distinct terms and 16 phrases.
    """
    query = plain(unicodedata.normalize("NFC", query[:MAX_CHARACTERS]))
    words = words_of(query)
    language = question_language(words, stop_words.BY_LANGUAGE, is_question="?" in query)
    # In German every noun has a capital, in a headline every word.
    has_names = language != "de" and not all(word[0].isupper() for word in words)
    names = frozenset(word for word in words[1:] if has_names and word[0].isupper())
    words = words_of(topic_of(query))
    content = [*_distinct(_content_terms(words, language))] or [*_distinct(_all_terms(words))]
    phrases = [*_distinct(_phrases(query))]
    return KeywordQuery(
        terms=tuple(content[:MAX_TERMS]),
        phrases=tuple(phrases[:MAX_PHRASES]),
        language=language,
        names=names,
    )


def topic_of(query: str) -> str:
    """Strip an opening that only asks for notes: "my notes about Lotte" becomes "Lotte".

    An opening that says more ("my notes from school about Lotte") is kept.
    """
    has_asked = False
    for word in _WORD.finditer(query, 0, LONGEST_OPENING):
        bare = folded(word[0])
        if has_asked and bare in stop_words.LEADS_TO_TOPIC:
            rest = query[word.end() :]
            return rest.strip() if words_of(rest) else query
        has_asked = has_asked or bare in stop_words.ASKS_FOR_NOTES
        if bare not in stop_words.ASKS_FOR_NOTES and bare not in stop_words.ANY_LATIN_OR_CYRILLIC:
            break
    return query


def question_language(
    words: Iterable[str], languages: Mapping[str, Collection[str]], *, is_question: bool
) -> str:
    """Detect the language of a query by its stop words; English if no other has more.

    A single stop word is enough in a question without English ones.
    """
    bare = [folded(word) for word in words]
    if 2 * sum(_CYRILLIC.match(word) is not None for word in bare) > len(bare):
        return "ru"
    counts = {language: sum(word in stops for word in bare) for language, stops in languages.items()}
    best = max(counts, key=lambda language: counts[language])  # English comes first, so it wins ties
    enough = 1 if is_question and not counts["en"] else 2
    return best if counts[best] >= enough else "en"


def _content_terms(words: list[str], language: str) -> Iterator[str]:
    stops = stop_words.BY_LANGUAGE[language] | stop_words.ALWAYS
    shouted = all(word.isupper() for word in words)
    for word in words:
        if word in stop_words.ALWAYS:
            continue
        if is_hangul(word):
            yield from _korean_terms(word)
        elif is_asian(word):
            yield from _chinese_terms(word)
        elif folded(word) not in stops or (len(word) > 1 and word.isupper() and not shouted):
            # In a mixed-case query, "IT" and "US" are names.
            yield word


def _all_terms(words: list[str]) -> Iterator[str]:
    for word in words:
        yield from pairs(word) if is_asian(word) else (word,)


def _korean_terms(word: str) -> Iterator[str]:
    """Yield the pairs of a word without its last particle; for a single syllable also the syllable itself."""
    particle = next((one for one in _PARTICLES if word.endswith(one)), "")
    bare = word.removesuffix(particle)
    if len(bare) > 1:
        yield from pairs(bare)
        return
    yield from pairs(word)
    if bare and _may_follow(particle, bare):
        yield bare


def _may_follow(particle: str, syllable: str) -> bool:
    """Return whether this particle can follow `syllable`: some have one form per kind of ending."""
    ends_in_consonant = (ord(syllable) - _FIRST_SYLLABLE) % _SYLLABLES_A_VOWEL > 0
    return particle not in (_AFTER_VOWEL if ends_in_consonant else _AFTER_CONSONANT)


def _chinese_terms(run: str) -> Iterator[str]:
    """Yield the meaningful pairs of a Chinese or Japanese run.

    A meaningful character between two function characters is looked up alone: its pairs with them vary from
    sentence to sentence.
    """
    all_pairs = pairs(run)
    asking = {at + more for at, pair in enumerate(all_pairs) if _only_asks(pair) for more in range(len(pair))}
    # Dictionaries keep order like a list, but are quick to look up in a run of thousands of characters.
    open_places = dict.fromkeys(at for at, char in enumerate(run) if not _only_joins(char))
    telling = {at for at in open_places if at + 1 in open_places and not _only_asks(all_pairs[at])}
    covered = asking | telling | {at + 1 for at in telling}
    for at in open_places:
        if at in telling:
            yield all_pairs[at]
        elif at not in covered:
            yield run[at]


def _only_asks(pair: str) -> bool:
    return pair in stop_words.CJK_PAIRS or _HIRAGANA.fullmatch(pair) is not None


def says_nothing(pair: str) -> bool:
    """Return whether a pair of CJK characters consists of question or function words only."""
    return _only_asks(pair) or all(map(_only_joins, pair))


def _only_joins(character: str) -> bool:
    return character in stop_words.CJK_CHARACTERS or character in stop_words.KANA_PARTICLES


def _phrases(query: str) -> Iterator[str]:
    for match in _QUOTED.finditer(query):
        if (quoted := next(filter(None, match.groups()), "")) and words_of(quoted):
            yield quoted.strip()
    for match in _IDENTIFIER.finditer(_QUOTED.sub(" ", query)):
        yield match[0]


def _other_forms(term: str, language: str) -> Iterator[Lookup]:
    """Yield lookups for other forms of a word."""
    if language in inflection.STEMS and not is_asian(term):
        for form, is_open in inflection.other_forms(term, language):
            yield Lookup((form,), is_open=is_open)


def _sequence(text: str) -> Lookup:
    """Return a lookup of words in this order; a single CJK character becomes the prefix of a pair."""
    found = tuple(_in_sequence(text))
    return Lookup(found, is_open=len(found[-1]) == 1 and is_asian(found[-1]))


def _in_sequence(text: str) -> Iterator[str]:
    """Yield the consecutive tokens that a text with this phrase has in the index."""
    *words, last = words_of(text) or [""]
    for word in words:
        yield from tokens(word)
    # The last run may continue in the text, so its last character is not looked up alone.
    yield from pairs(last) if is_asian(last) else tokens(last)


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for text in texts:
        if (key := text.casefold()) not in seen:
            seen.add(key)
            yield text
