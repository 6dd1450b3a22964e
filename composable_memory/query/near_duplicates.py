"""Decides whether two results are the same place, or say the same in nearly the same words (pure)."""

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
"""A result as its backend returned it, or as the log recorded it."""

OVERLAP_SHARE = 0.5
NEAR_SHARE = 0.85


def same_lines(one: Passage, other: Passage) -> bool:
    """Return whether two results of one file cover the same lines, or the same piece of a line."""
    return (
        one.start_line == other.start_line
        and one.end_line == other.end_line
        and (one.start_char or 0) == (other.start_char or 0)
    )


def are_apart(one: Passage, other: Passage) -> bool:
    """Return whether one result begins in the middle of the line in which the other ends."""
    first, second = sorted((one, other), key=lambda result: (result.start_line, result.start_char or 0))
    return first.end_line == second.start_line and bool(second.start_char)


def overlap(lines: Passage | Origin | TakenFrom, better: Passage | Origin | TakenFrom) -> bool:
    """Return whether most of `lines` lies in `better`; the rest is not worth a place of its own."""
    shared = min(lines.end_line, better.end_line) - max(lines.start_line, better.start_line) + 1
    return shared >= (lines.end_line - lines.start_line + 1) * OVERLAP_SHARE


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, or its character pairs where the script has no spaces."""
    folded = text.casefold()
    words = frozenset(folded.split())
    return words if len(folded) <= 16 * len(words) else frozenset(map(add, folded, folded[1:]))


def nearly_equal(one: frozenset[str], other: frozenset[str]) -> bool:
    """Compare by Jaccard similarity; texts without words are never nearly equal."""
    shared = len(one & other)
    return shared > 0 and shared >= NEAR_SHARE * (len(one) + len(other) - shared)


class _Sketch(NamedTuple):
    """A bit for each word of a text, and in how many bits a near text may differ.

    Two words may share a bit, so bits tell less than words do, but enough to tell nearly all texts apart.
    """

    text: str
    bits: int
    most: int


_BITS = 1024  # a power of two


# Questions find the same passages again and again: benchmarks/orchestrator.py measures how often.
@lru_cache(maxsize=2048)
def _sketch(text: str) -> _Sketch:
    folded = text.casefold()
    words: Collection[str] = folded.split()
    bits = _bits(words)
    if len(folded) > 16 * bits.bit_count():  # seemingly few words: `words_of` counts them
        words = words_of(text)
        bits = _bits(words)
    # How many words two near texts may not have in common, at most, given the words of this one.
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
    """Yield index pairs of results with nearly equal snippets, except those with the same lines.

    With `places`, only the results there are compared. Pairs are ordered by the second index, then the first.
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
    """Yield the near pairs that can affect the first `most` results, under any weights and fusion.

    `lists` are what the backends found, best first; indices count as if they were laid end to end.

    Whatever the weights, the results of one backend that cannot be grouped keep their order: exact hits among
    themselves, and so do the rest, as far as they pass `min_score`. Each of them, or the group it is in,
    takes a place of the answer, or is dropped as nearly equal to an earlier one; only facts can lose score.
    So it is enough to compare the first `most` of both kinds, one more for each that has a twin, and
    everything that can be grouped, because others can raise its score. If there are results of other
    memories, all notes are compared too: a note takes the place of its copy.
    """
    results = [result for found in lists for result in found]
    grouped = _groupable(results)
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
    """Yield indices until their results fill an answer; results of one file may all become one.

    Results in files with `twins` may not take a place: the group they join may represent them.
    """
    files: set[str] = set()
    for place in places:
        yield place
        files.add(results[place].path)
        if len(files - twins) >= most:
            return


def _groupable(results: Sequence[MemorySearchResult]) -> set[int]:
    """Return the indices of facts with an origin, and of results that overlap most of another's lines."""
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
