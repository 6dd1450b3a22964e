"""Texts that repeat one piece again and again: what a stretch of them holds, the next ones hold as well."""

from typing import Self

from composable_memory_ops_logs.redaction.scanner import Span

_SAMPLE = 64
"""How much has to come again for a look at how long it goes on."""
_LONGEST = 1_000
"""How long a piece may be. Tables are looked for in steps of as much, so a stretch holds two of them."""
_REACH = 8_192
"""No rule looks so far ahead or back, or it says by the end of a span how far it has read."""


class Flood:
    """A part of a text that is one piece repeated, from a place on to `end`.

    Rules look at a bounded part of the text around a word. So if each has read equally far beyond the start
    and beyond the end of a stretch of whole pieces, all stretches hold the same, until the end is in reach.
    """

    def __init__(self, start: int, piece: int, end: int) -> None:
        self.end = end
        self.next_cut = start + _REACH
        self._stretch = 2 * piece * -(-_LONGEST // piece)
        self._last: tuple[int, list[int]] | None = None

    @classmethod
    def at(cls, raw: str, start: int) -> Self | None:
        """Return the flood that begins at a place, if it is long enough."""
        piece = raw.find(raw[start : start + _SAMPLE], start + 1, start + _SAMPLE + _LONGEST) - start
        if piece <= 0:
            return None
        end, step = start, _SAMPLE
        while step:
            is_same = raw[end : end + step] == raw[end + piece : end + piece + step]
            end, step = (end + step, step * 2) if is_same and end + step <= len(raw) else (end, step // 2)
        return cls(start, piece, end) if end - start > 3 * _REACH else None

    def cut(self, found: list[Span], read: list[int]) -> int:
        """Repeat what was found since the last cut if all rules stand as they stood there.

        Returns the place to go on from, with `read` as it is there.
        """
        place, length, beyond = self.next_cut, self._stretch, self.end - _REACH
        standing = [one if one >= beyond else max(one - place, -_SAMPLE) for one in read]
        count, before = self._last or (0, [])
        times = (beyond - place) // length
        if standing != before or times <= 0:
            self._last, self.next_cut = (len(found), standing), place + length
            return place
        found += [
            Span(span.start + shift, span.end + shift, span.is_token)
            for shift in range(length, length * (times + 1), length)
            for span in found[count:]
        ]
        read[:] = [one if one >= beyond else one + length * times for one in read]
        self.next_cut = self.end
        return place + length * times
