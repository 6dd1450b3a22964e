"""Says when two results are the same place, or the same in nearly the same words (pure)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, combinations, islice, product
from operator import add, itemgetter
from threading import Lock
from typing import TypeAlias

from composable_memory.paths import FOREIGN
from composable_memory.types import MemorySearchResult, Origin
from composable_memory_ops_logs import Candidate, TakenFrom

Passage: TypeAlias = MemorySearchResult | Candidate
"""A result as its backend gave it, or as the log tells it."""

OVERLAP_SHARE = 0.5
NEAR_SHARE = 0.85
FAR_SHARE = 1.0 - NEAR_SHARE
FEW_WORDS = 16
"""So many words of a text are looked for before all are compared."""


def same_lines(one: Passage, other: Passage) -> bool:
    """Return whether two results of one file are the same lines, or the same piece of a line."""
    return (
        one.start_line == other.start_line
        and one.end_line == other.end_line
        and (one.start_char or 0) == (other.start_char or 0)
    )


def are_apart(one: Passage, other: Passage) -> bool:
    """Return whether one of two results of a file begins in the middle of the line that the other ends in."""
    first, second = sorted((one, other), key=lambda result: (result.start_line, result.start_char or 0))
    return first.end_line == second.start_line and bool(second.start_char)


def overlap(lines: Passage | Origin | TakenFrom, better: Passage | Origin | TakenFrom) -> bool:
    """Return whether most of `lines` stands in `better`; what they add beyond is then not worth a place."""
    shared = min(lines.end_line, better.end_line) - max(lines.start_line, better.start_line) + 1
    return shared >= (lines.end_line - lines.start_line + 1) * OVERLAP_SHARE


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, or its character pairs where the script writes no spaces."""
    return frozenset(_words_in(text))


def _words_in(text: str) -> list[str]:
    """Return the same in their order, some of them several times."""
    folded = text.casefold()
    words = folded.split()
    if len(folded) > 16 * len(words):
        return [*map(add, folded, folded[1:])]
    return words


def nearly_equal(one: frozenset[str], other: frozenset[str]) -> bool:
    """Compare by Jaccard similarity; two texts without words are not evidence of anything."""
    smaller, larger = len(one), len(other)
    if smaller > larger:
        smaller, larger = larger, smaller
    if not smaller or smaller < larger * NEAR_SHARE:
        return False
    # A few words tell nearly all texts apart: those that the other lacks cannot be shared.
    most = len(one) - len({*islice(one, FEW_WORDS)} - other)
    if most < NEAR_SHARE * (smaller + larger - most):
        return False
    shared = len(one & other)
    return shared >= NEAR_SHARE * (smaller + larger - shared)


class NearTexts:
    """Compares the snippets of the results of one query.

    A text with more new words than `NEAR_SHARE` allows is near none of those before it, and nearly every text
    is such. So only the words of the others, and of what these are compared with, are kept as sets: the
    memory that those of all texts take cost a tenth of the time of a logged query.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._places: dict[str, int] = {}
        self._new: set[str] = set()
        self._words: dict[str, frozenset[str]] = {}
        self._placing = Lock()  # the thread of the log goes on where the query stopped

    def __call__(self, one: Passage, other: Passage) -> bool:
        """Return whether two snippets share nearly all their words."""
        text, near = one.snippet, other.snippet
        later = text if self._place(text) > self._place(near) else near
        if later in self._new and text != near:
            return False
        return nearly_equal(self._words_of(text), self._words_of(near))

    def pairs(self, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield each two of some texts, all of them different, that share nearly all their words."""
        ordered = sorted(texts, key=self._place)
        for at, text in enumerate(ordered):
            if text not in self._new:
                words = self._words_of(text)
                for other in ordered[:at]:
                    if nearly_equal(words, self._words_of(other)):
                        yield other, text

    def _place(self, text: str) -> int:
        """Return how many texts came before this one."""
        place = self._places.get(text)
        return self._placed(text) if place is None else place

    def _placed(self, text: str) -> int:
        words = _words_in(text)
        with self._placing:
            known = len(self._seen)
            self._seen.update(words)
            new = len(self._seen) - known
            if new > FAR_SHARE * len(words) or new > FAR_SHARE * len({*words}):
                self._new.add(text)
            return self._places.setdefault(text, len(self._places))

    def _words_of(self, text: str) -> frozenset[str]:
        words = self._words.get(text)
        if words is None:
            words = self._words[text] = words_of(text)
        return words


def near_pairs(
    results: Sequence[MemorySearchResult],
    places: Iterable[int] | None = None,
    is_near: NearTexts | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield the places of all pairs with nearly equal snippets, except those that are the same lines.

    With `places` only the results there are compared. Pairs come in the order of the second place, then of
    the first.
    """
    is_near = is_near or NearTexts()
    of_text: dict[str, list[int]] = {}
    for place in range(len(results)) if places is None else sorted(places):
        of_text.setdefault(results[place].snippet, []).append(place)
    pairs = [pair for equal in of_text.values() for pair in combinations(equal, 2)]
    for text, near in is_near.pairs(of_text):
        pairs += [(min(pair), max(pair)) for pair in product(of_text[text], of_text[near])]
    for first, second in sorted(pairs, key=itemgetter(1, 0)):
        one, other = results[first], results[second]
        if one.path == other.path and same_lines(one, other):
            continue
        if one.snippet != other.snippet or is_near(one, other):  # equal texts may have no words
            yield first, second


def near_pairs_shown(
    lists: Sequence[Sequence[MemorySearchResult]],
    most: int,
    is_near: NearTexts | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield the near pairs that decide on the first `most` results, under any weights and fusion.

    `lists` are what the backends found, best first; places count as if they were laid end to end.

    Whatever the weights, of the results of one backend with an exact hit the better come before each that
    cannot be grouped, and so do those without one as far as `min_score` lets it pass. Each of them, or what
    it is grouped with, then takes a place of the answer, or is left out as nearly equal to one before; only
    facts can lose their score. So no further is looked than to the first `most` of both kinds, and as many
    more as have a twin, and at all that can be grouped, whose score others can raise. Beside foreign texts,
    at all notes: one that is a copy gives its place to the note.
    """
    is_near = is_near or NearTexts()
    results = [result for found in lists for result in found]
    grouped = _that_can_be_grouped(results)
    if any(FOREIGN in result.path for result in results):
        grouped |= {place for place, result in enumerate(results) if FOREIGN not in result.path}
    ordered: list[list[int]] = []
    start = 0
    for found in lists:
        places = [at for at in range(start, start + len(found)) if results[at].origin is None]
        ordered += [[at for at in places if results[at].exact is exact] for exact in (True, False)]
        start += len(found)
    pairs: list[tuple[int, int]] = []
    seen: set[int] | None = None
    while True:
        twins = {results[place].path for place in chain.from_iterable(pairs)}
        wanted = grouped.union(*(_until_full(places, results, most, twins) for places in ordered))
        if wanted == seen:
            yield from pairs
            return
        seen, pairs = wanted, list(near_pairs(results, wanted, is_near))


def _until_full(
    places: Iterable[int], results: Sequence[MemorySearchResult], most: int, twins: Set[str]
) -> Iterator[int]:
    """Yield places until what stands there fills an answer; those of a file may all be one result.

    What stands in files with `twins` may take no place: whatever it is grouped with speaks for it.
    """
    files: set[str] = set()
    for place in places:
        yield place
        files.add(results[place].path)
        if len(files - twins) >= most:
            return


def _that_can_be_grouped(results: Sequence[MemorySearchResult]) -> set[int]:
    """Return the places of facts that say where they are from, and of what shares most of its lines."""
    by_path = defaultdict[str, list[tuple[int, int, int]]](list)
    grouped: set[int] = set()
    for place, result in enumerate(results):
        by_path[result.path].append((result.start_line, result.end_line, place))
        if (origin := result.origin) is not None:
            grouped.add(place)
            by_path[origin.path].append((origin.start_line, origin.end_line, place))
    for stretches in by_path.values():
        stretches.sort()
        for at, (start, end, place) in enumerate(stretches, 1):
            for start_of_other, end_of_other, other in islice(stretches, at, None):
                if start_of_other > end:
                    break
                shorter = min(end - start, end_of_other - start_of_other) + 1
                if min(end, end_of_other) - start_of_other + 1 >= shorter * OVERLAP_SHARE:
                    grouped |= {place, other}
    return grouped
