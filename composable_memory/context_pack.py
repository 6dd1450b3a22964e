"""Packs the best results into one text under a budget of characters (pure)."""

from collections.abc import Sequence

from composable_memory.types import MemorySearchResult

__all__ = ["DEFAULT_MAX_CHARS", "pack_results"]

DEFAULT_MAX_CHARS = 2000
SEPARATOR = "\n\n"
SHORTEST_USEFUL = 40
"""A last piece is cut to fit only if at least this many characters of it remain."""


def pack_results(
    results: Sequence[MemorySearchResult], *, max_chars: int = DEFAULT_MAX_CHARS
) -> tuple[str, tuple[MemorySearchResult, ...]]:
    """Return the pack and the results in it, best first, at most `max_chars` characters in all.

    Each piece is `#n path:start-end (score 0.00)` and the snippet below it; the last one may be cut.
    """
    pieces: list[str] = []
    packed: list[MemorySearchResult] = []
    room = max_chars
    for number, result in enumerate(results, 1):
        piece = f"#{number} {_place(result)} (score {result.score:.2f})\n{result.snippet.strip()}"
        room -= len(SEPARATOR) if pieces else 0
        if len(piece) > room:
            if room >= SHORTEST_USEFUL:
                pieces.append(piece[:room].rstrip())
                packed.append(result)
            break
        pieces.append(piece)
        packed.append(result)
        room -= len(piece)
    return SEPARATOR.join(pieces), tuple(packed)


def _place(result: MemorySearchResult) -> str:
    return f"{result.path}:{result.start_line}-{result.end_line}" if result.start_line else result.path
