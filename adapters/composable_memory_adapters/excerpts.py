"""Excerpts of a text by line number, for `read_file` (pure)."""

from collections.abc import Sequence


def excerpt(text: str, from_line: int | None, lines: int | None) -> str:
    """Return `lines` lines of a text starting at the 1-based `from_line`; all of it if neither is given.

    Values below 1 count as 1; without `lines`, everything to the end is returned.
    """
    if not from_line and not lines:
        return text
    start = max(1, from_line or 1) - 1
    end = start + max(1, lines) if lines else None
    return "\n".join(text.split("\n")[start:end])


def numbered_excerpt(text: str, numbers: Sequence[int], from_line: int | None, lines: int | None) -> str:
    """Return an excerpt of a text whose lines have their own `numbers`, such as page numbers."""
    start = max(1, from_line or 1)
    end = start + max(1, lines) if lines else max(numbers, default=0) + 1
    numbered = zip(numbers, text.split("\n"), strict=False)
    return "\n".join(line for number, line in numbered if start <= number < end).strip("\n")
