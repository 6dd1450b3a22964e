"""Says when two results are the same place, or the same in nearly the same words (pure)."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from itertools import chain, combinations, product
from operator import add, itemgetter
from typing import NamedTuple, TypeAlias

from composable_memory.paths import FOREIGN
from composable_memory.types import MemorySearchResult, Origin
from composable_memory_ops_logs import Candidate, TakenFrom

Passage: TypeAlias = MemorySearchResult | Candidate
"""A result as its backend gave it, or as the log tells it."""

OVERLAP_SHARE = 0.5
NEAR_SHARE = 0.85


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
    folded = text.casefold()
    words = frozenset(folded.split())
    return words if len(folded) <= 16 * len(words) else frozenset(map(add, folded, folded[1:]))


def nearly_equal(one: frozenset[str], other: frozenset[str]) -> bool:
    """Compare by Jaccard similarity; two texts without words are not evidence of anything."""
    shared = len(one & other)
    return shared > 0 and shared >= NEAR_SHARE * (len(one) + len(other) - shared)


class _Sketch(NamedTuple):
    """A bit for each word of a text, and in how many bits a text that is near it can differ.

    Two words may be one bit, so that bits tell less than words do; they tell nearly all texts apart.
    """

    text: str
    bits: int
    most: int


_BITS = 1024  # a power of two


# Questions find the same passages again and again: benchmarks/orchestrator.py says how often.
@lru_cache(maxsize=2048)
def _sketch(text: str) -> _Sketch:
    folded = text.casefold()
    words: Collection[str] = folded.split()
    bits = _bits(words)
    if len(folded) > 16 * bits.bit_count():  # so there may be few words: `words_of` counts them
        words = words_of(text)
        bits = _bits(words)
    # The words that only one of two near texts has are at most so many for each word of either.
    return _Sketch(text, bits, int(len(words) * (1 / NEAR_SHARE - 1)) + 1)


def _bits(words: Iterable[str]) -> int:
    bits = bytearray(b"0" * _BITS)
    last, is_set = _BITS - 1, ord("1")
    for one in words:
        bits[hash(one) & last] = is_set
    return int(bits, 2)


def are_near(one: Passage, other: Passage) -> bool:
    """Return whether the snippets of two results share nearly all their words."""
    return _are_near(_sketch(one.snippet), _sketch(other.snippet))


def _are_near(one: _Sketch, other: _Sketch) -> bool:
    text, bits, most = one
    text_of_other, bits_of_other, most_of_other = other
    if not most >= (bits ^ bits_of_other).bit_count() <= most_of_other:
        return False
    return nearly_equal(words_of(text), words_of(text_of_other))


def near_pairs(
    results: Sequence[MemorySearchResult], places: Iterable[int] | None = None
) -> Iterator[tuple[int, int]]:
    """Yield the places of all pairs with nearly equal snippets, except those that are the same lines.

    With `places` only the results there are compared. Pairs come in the order of the second place, then of
    the first.
    """
    of_text: dict[str, list[int]] = {}
    for place in range(len(results)) if places is None else sorted(places):
        of_text.setdefault(results[place].snippet, []).append(place)
    pairs = [pair for equal in of_text.values() for pair in combinations(equal, 2)]
    for one_text, other_text in combinations(map(_sketch, of_text), 2):
        if _are_near(one_text, other_text):
            near = product(of_text[one_text.text], of_text[other_text.text])
            pairs += [(min(pair), max(pair)) for pair in near]
    for first, second in sorted(pairs, key=itemgetter(1, 0)):
        one, other = results[first], results[second]
        if one.path == other.path and same_lines(one, other):
            continue
        if one.snippet != other.snippet or are_near(one, other):  # equal texts may have no words
            yield first, second


def near_pairs_shown(lists: Sequence[Sequence[MemorySearchResult]], most: int) -> Iterator[tuple[int, int]]:
    """Yield the near pairs that decide on the first `most` results, under any weights and fusion.

    `lists` are what the backends found, best first; places count as if they were laid end to end.

    Whatever the weights, of the results of one backend with an exact hit the better come before each that
    cannot be grouped, and so do those without one as far as `min_score` lets it pass. Each of them, or what
    it is grouped with, then takes a place of the answer, or is left out as nearly equal to one before; only
    facts can lose their score. So no further is looked than to the first `most` of both kinds, and as many
    more as have a twin, and at all that can be grouped, whose score others can raise. Beside foreign texts,
    at all notes: one that is a copy gives its place to the note.
    """
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
        if wanted == seen or not (pairs := list(near_pairs(results, wanted))):
            yield from pairs
            return
        seen = wanted


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
        if len(stretches) == 1:
            continue
        stretches.sort()
        for at, (start, end, place) in enumerate(stretches, 1):
            for start_of_other, end_of_other, other in stretches[at:]:
                if start_of_other > end:
                    break
                shared = min(end, end_of_other) - start_of_other + 1
                if shared >= OVERLAP_SHARE * (min(end - start, end_of_other - start_of_other) + 1):
                    grouped |= {place, other}
    return grouped
