"""Finds out whether the notes of a workspace already say what is to be retained, and where.

Careful rather than clever: a sentence stored twice costs one line, one wrongly taken for known is lost. All
words must agree in order, including numbers and negations. Only case, punctuation, articles, short forms, and
whether a phrase is first or last are ignored.
"""

import asyncio
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from composable_memory.errors import ComposableMemoryError
from composable_memory.interfaces import Capability, MemorySearchManager
from composable_memory.memory_interface import OpenMemory
from composable_memory.retain.retained_lines import RetainedLine, format_retained_line, retained_lines
from composable_memory.time.expressions import time_mentions
from composable_memory.types import Degradation, MemorySearchResult, Origin, SearchOptions
from composable_memory_ops_logs.quick_dataclass import dataclass

LOOK_S = 5.0
"""How long to search older notes."""
MOST_RESULTS = 10
WHOLE_NOTE = 10_000_000
OF_A_DAY = frozenset({"experience", "observation", "opinion"})
"""Types that depend on the day: the same on another day is new, or new evidence for an opinion."""

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!.*\d{4}-\d{2}-\d{2})")
_ITEM = re.compile(r"\s*(?:[-*+>]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?|\s*#{1,6}\s+")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?。！？])\s+")

LEAST_WORDS_TO_MOVE = 4
"""In shorter sentences no phrase is moved: "Tom, Ann" may be another statement than "Ann, Tom"."""

_WORD = re.compile(r"(?<![\w-])-?\d+(?:[.,:/-]\d+)*|\d+(?:[.,:/-]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)*|[^\w\s]")
_MARKS = frozenset(".,;:!…\"'`_()[]“”„«»‘’–—-、。，！；：「」『』（）")
_MINUS = re.compile(r"(?<![\w-])[-‐‑–—−]\s*(?=\d)")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\w)([^*\n]*[^*\s])\1(?![\w*])")
"""Words between asterisks; any other asterisk is part of the text, as in "*.py"."""
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

_TIED_TO_ITS_PLACE = frozenset(
    "not no never nor without only nicht nie kein keine keinen keinem keiner nur ne pas non jamais no nunca"
    " solo sólo mai".split()
)
"""Words whose meaning depends on what they precede."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLine:
    """A sentence in a note; `line` is None if it is plain text, `day` if the note has no day."""

    origin: Origin
    text: str
    words: tuple[str, ...]
    line: RetainedLine | None = None

    @property
    def day(self) -> str | None:
        """Return the day of its note."""
        found = _DAY.search(self.origin.path)
        return found[0] if found else None

    def is_before(self, later: "KnownLine") -> bool:
        """Return whether it may have been said before another one, which has a day."""
        if self.origin.path == later.origin.path:
            return self.origin.start_line < later.origin.start_line
        return self.day is None or (later.day or "") > self.day


async def find_known(
    memory: OpenMemory, line: RetainedLine, day_note: str
) -> tuple[KnownLine | None, tuple[Degradation, ...]]:
    """Return where the notes say the same, `day_note` first, and what could not be searched.

    Types that depend on the day, and sentences that name a relative time, only count if the day's note says
    them. A sentence that a later line contradicts in much the same words does not count.
    """
    searched, degraded = await _searched(memory, line.text)
    places = [Origin(path=day_note, start_line=1, end_line=WHOLE_NOTE), *_places(searched, day_note)]
    texts = await asyncio.gather(*(_text_of(memory, place) for place in places))
    return known_in(zip(places, texts, strict=True), line, day_note), degraded


def known_in(texts: Iterable[tuple[Origin, str]], line: RetainedLine, day_note: str) -> KnownLine | None:
    """Return where parts of notes say the same; for an opinion, the confidence must match too."""
    words = words_said(line.text, line.entities)
    clue = max(words, key=len, default="")
    known = [one for place, text in texts for one in _sentences(text, place.path, place.start_line, clue)]
    same = [one for one in known if say_the_same(words, one.words)]
    if line.type in OF_A_DAY or _depends_on_the_day(line.text):
        same = [one for one in same if one.origin.path == day_note]
    if line.type == "opinion" and line.confidence is not None:
        same = [one for one in same if one.line is None or one.line.confidence == line.confidence]
    rivals = [one for one in known if one.day and are_rivals(words, one.words)]
    standing = (one for one in same if not any(one.is_before(rival) for rival in rivals))
    return next(standing, None)


def indexes(memory: OpenMemory) -> dict[str, MemorySearchManager]:
    """Return the open backends that index notes, by id; a graph learns lines in another way."""
    told = memory.manager.backends_with(Capability.INGEST)
    able = memory.manager.backends_with(Capability.SYNC)
    return {backend_id: one for backend_id, one in able.items() if backend_id not in told}


async def _text_of(memory: OpenMemory, place: Origin) -> str:
    """Return lines of a note; empty if they do not exist or may not be read."""
    count = place.end_line - place.start_line + 1
    try:
        return (await memory.manager.read_file(place.path, from_line=place.start_line, lines=count)).text
    except ComposableMemoryError:
        return ""


async def _searched(
    memory: OpenMemory, text: str
) -> tuple[list[MemorySearchResult], tuple[Degradation, ...]]:
    # Ask the backends directly: these are no questions to learn weights from, so they must not be logged.
    backends = indexes(memory)
    options = SearchOptions(max_results=MOST_RESULTS)
    outcomes = await asyncio.gather(
        *(asyncio.wait_for(one.search(text, options), LOOK_S) for one in backends.values()),
        return_exceptions=True,
    )
    found: list[MemorySearchResult] = []
    degraded: list[Degradation] = []
    for backend_id, outcome in zip(backends, outcomes, strict=True):
        if isinstance(outcome, ComposableMemoryError | TimeoutError):
            reason = (
                f"could not check whether it is already known: {str(outcome) or f'no answer in {LOOK_S:g} s'}"
            )
            degraded.append(Degradation(backend_id=backend_id, code="failed", reason=reason))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found += outcome
    return found, tuple(degraded)


def _places(found: Sequence[MemorySearchResult], day_note: str) -> list[Origin]:
    """Return the passages of notes; what was only said in a conversation does not count as retained."""
    places = (
        Origin(path=one.path, start_line=one.start_line, end_line=one.end_line)
        for one in found
        if one.source == "memory" and one.start_line > 0 and one.path != day_note
    )
    return list(dict.fromkeys(places))


def _sentences(text: str, path: str, first: int, clue: str) -> Iterator[KnownLine]:
    """Yield the retained lines of a passage, then the sentences of its other lines."""
    taken: set[int] = set()
    for line in retained_lines(text, everywhere=True):
        taken.update(range(line.start_line, line.end_line + 1))
        yield KnownLine(
            origin=Origin(
                path=path, start_line=line.start_line + first - 1, end_line=line.end_line + first - 1
            ),
            text=format_retained_line(line),
            words=words_said(line.text, line.entities),
            line=line,
        )
    for number, row in enumerate(text.split("\n"), start=1):
        if number not in taken and clue in row.casefold():
            origin = Origin(path=path, start_line=number + first - 1, end_line=number + first - 1)
            mark = _ITEM.match(row)
            for sentence in _SENTENCE_ENDS.split(row[mark.end() if mark else 0 :].strip()):
                yield KnownLine(origin=origin, text=row.strip(), words=words_said(sentence))


def _depends_on_the_day(text: str) -> bool:
    """Return whether a sentence names a relative time, such as "next week"."""
    hints = [one.hint for one in time_mentions(text)]
    return any(one.date is None or one.date.startswith("-") for one in hints)


def words_said(text: str, entities: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the significant words of a sentence, in order, preceded by `entities` that it does not name."""
    said = _words(text)
    absent = (_words(name) for name in sorted(entities, key=str.casefold))
    return (*(word for name in absent if not set(name) <= set(said) for word in name), *said)


def say_the_same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two sentences, given as words, state the same."""
    if not one or len(one) != len(other):
        return False
    if one == other:
        return True
    may_move = len(one) >= LEAST_WORDS_TO_MOVE and _TIED_TO_ITS_PLACE.isdisjoint(one)
    return may_move and any(one[at:] + one[:at] == other for at in range(1, len(one)))


def are_rivals(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether two sentences differ but have much the same words, so that one may end the other."""
    shared = len(set(one) & set(other))
    return not say_the_same(one, other) and 2 * shared >= len(set(one) | set(other))


@lru_cache(maxsize=4096)  # the lines of a note are compared again whenever one is added
def _words(text: str) -> tuple[str, ...]:
    plain = _MINUS.sub("-", _EMPHASIS.sub(r"\2", _in_plain_letters(text).replace("’", "'")))
    for short, long in _SHORT_FORMS:
        plain = short.sub(long, plain)
    words = [word for word in _WORD.findall(plain) if word not in _MARKS]
    return tuple(
        word.casefold()
        for number, word in enumerate(words)
        if not (word.casefold() in _ARTICLES and _may_be_article(word, is_first=not number))
    )


def _may_be_article(word: str, *, is_first: bool) -> bool:
    """Return whether a word is spelt like an article: "A" within a sentence is a name, and so is "UN"."""
    return word.islower() or (is_first and (len(word) == 1 or not word.isupper()))


def _in_plain_letters(text: str) -> str:
    """Return a text in ordinary letters, keeping superscripts and subscripts, as 10³ is not 103."""
    if text.isascii():
        return text
    letters = unicodedata.normalize("NFC", text)
    plain = (one if _is_raised(one) else unicodedata.normalize("NFKC", one) for one in letters)
    return unicodedata.normalize("NFC", "".join(plain))


def _is_raised(letter: str) -> bool:
    return unicodedata.decomposition(letter).startswith(("<super>", "<sub>"))
