"""Reads the elements of a large JSON document one by one, and as far as a damaged one goes.

The document is never in memory whole: of the text there is one element and a piece of what follows it.
"""

import io
import json
import re
from collections.abc import Iterator
from typing import TextIO

PIECE = 2**20
"""Characters that are read at once, or as many as there are already of an element that goes on."""
NEAR_END = 16
"""What is wrong so near to the end of a piece may be right with the next one, as `tru` or `\\u00e`."""

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\n\r]*")
_NO_TEXT = re.compile("[\udc80-\udcff]")
"""Bytes that are not in the encoding of the file, as `surrogateescape` decodes them."""


class Unreadable(ValueError):
    """A document, or an element of it, that cannot be read; says from where on, never what stands there."""


def elements(file: TextIO, *names: str) -> Iterator[object]:
    """Yield the elements of a list; of an object those of the lists with these names, or else itself.

    An element that is no text is yielded as the `Unreadable` that says so. The file is to be opened with
    `errors="surrogateescape"`.

    Raises:
        Unreadable: what follows is no JSON, or the document ends too early.
    """
    text = _Text(file)
    match text.next():
        case "[":
            yield from text.items()
        case "{":
            yield from text.members(names)
        case _:
            value = text.value()
            # some agent files are packed twice
            yield from elements(io.StringIO(value), *names) if isinstance(value, str) else [value]
    if text.next():
        raise text.wrong("more follows behind its end")


class _Text:
    """The text of a document from a place on, of which more is read as it is needed."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._before = 0
        """Characters before the text."""
        self._is_over = False

    def next(self) -> str:
        """Return the next character that is not blank; empty at the end."""
        while True:
            blank = _BLANK.match(self._text, self._at)
            self._at = blank.end() if blank else self._at
            if self._at < len(self._text) or self._is_over:
                return self._text[self._at : self._at + 1]
            self._read_on()

    def take(self, *expected: str) -> str:
        """Pass over the next character, which is one of these, and return it."""
        if (found := self.next()) not in expected or not found:
            raise self.wrong(f"{' or '.join(expected)} is missing" if found else "it ends too early")
        self._at += 1
        return found

    def value(self) -> object:
        """Return the next value; an `Unreadable` in its place where it is no text."""
        while True:
            self.next()
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated") or error.pos > len(self._text) - NEAR_END
                if is_open and not self._is_over:
                    self._read_on()
                    continue
                if is_open:
                    raise self.wrong("it ends too early", len(self._text)) from None
                raise self.wrong(error.msg, error.pos) from None
            if end + NEAR_END < len(self._text) or self._is_over:
                break
            self._read_on()  # a number may go on
        if end == len(self._text) and isinstance(value, (int, float)):
            raise self.wrong("it ends too early", end)
        begin, self._at = self._at, end
        if not self._text.isascii() and _NO_TEXT.search(self._text, begin, end):
            return self.wrong("it is no text in UTF-8; save it as UTF-8", begin)
        return value

    def items(self) -> Iterator[object]:
        """Yield the items of a list."""
        self.take("[")
        if self.next() == "]":
            self._at += 1
            return
        yield self.value()
        while self.take(",", "]") == ",":
            yield self.value()

    def members(self, names: tuple[str, ...]) -> Iterator[object]:
        """Yield the items of the lists of an object that have these names; itself where there are none."""
        self.take("{")
        rest, is_found = dict[object, object](), False
        while self.next() != "}":
            name = self.value()
            self.take(":")
            if name in names and self.next() == "[":
                yield from self.items()
                is_found = True
            else:
                rest[name] = self.value()
            if self.take(",", "}") == "}":
                break
        else:
            self._at += 1
        if not is_found:
            yield next((rest[name] for name in names if name in rest), rest)

    def wrong(self, why: str, at: int | None = None) -> Unreadable:
        """Return the problem with what stands at a place of the text, by default where it is read on."""
        return Unreadable(f"{why} (character {self._before + (self._at if at is None else at):,})")

    def _read_on(self) -> None:
        kept = self._text[self._at :]
        self._before += self._at
        piece = self._file.read(max(PIECE, len(kept)))
        self._text, self._at, self._is_over = kept + piece, 0, not piece
