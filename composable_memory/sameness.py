"""Says when two results are the same place, or the same in nearly the same words (pure)."""

from itertools import pairwise

from composable_memory.types import MemorySearchResult, Origin

__all__ = ["nearly_equal", "overlap", "same_lines", "words_of"]

OVERLAP_SHARE = 0.5
NEAR_SHARE = 0.85


def same_lines(one: MemorySearchResult, other: MemorySearchResult) -> bool:
    """Say whether two results of one file are the same lines."""
    return one.start_line == other.start_line and one.end_line == other.end_line


def overlap(lines: MemorySearchResult | Origin, better: MemorySearchResult | Origin) -> bool:
    """Say whether most of `lines` stands in `better`; what they add beyond is then not worth a place."""
    shared = min(lines.end_line, better.end_line) - max(lines.start_line, better.start_line) + 1
    return shared >= (lines.end_line - lines.start_line + 1) * OVERLAP_SHARE


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text, or its character pairs where the script writes no spaces."""
    folded = text.casefold()
    words = frozenset(folded.split())
    if len(folded) <= 16 * len(words):
        return words
    return frozenset(one + other for one, other in pairwise(folded))


def nearly_equal(one: frozenset[str], other: frozenset[str]) -> bool:
    """Compare by Jaccard similarity; two texts without words are not evidence of anything."""
    smaller, larger = sorted((len(one), len(other)))
    if not smaller or smaller < larger * NEAR_SHARE:
        return False
    shared = len(one & other)
    return shared >= NEAR_SHARE * (smaller + larger - shared)
