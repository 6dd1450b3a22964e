"""Writes to the terminal: text that notes cannot misuse, one JSON document, and the lines on stderr."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

import typer

from composable_memory.paths import NOTES

if TYPE_CHECKING:
    from composable_memory.types import Degradation, MemoryProviderStatus

__all__ = [
    "Line",
    "can_draw",
    "complain",
    "counted",
    "one_line",
    "plain",
    "prepare_streams",
    "say",
    "say_lines",
    "tell_degraded",
    "tell_if_empty",
    "warn",
    "write_json",
    "write_text",
]

Line = tuple[str, Literal["bold", "dim", "plain"]]
"""A line of text and how it is shown."""

# Everything a terminal could take for a command, C0 without tab and newline, delete, and C1; and what makes
# it show characters in another order than they have.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def prepare_streams() -> None:
    """Make sure that no character can end a command because the terminal does not know it.

    A stream that was closed from outside is replaced by one that leads nowhere.
    """
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def plain(text: str) -> str:
    """Return `text` without the control characters by which a note could steer the terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def say(text: str = "", *, bold: bool = False, dim: bool = False, colour: str | None = None) -> None:
    """Write a line to stdout, styled where that is a terminal."""
    typer.secho(plain(text), bold=bold or None, dim=dim or None, fg=colour, color=_colour())


def say_lines(lines: Iterable[Line]) -> None:
    """Write lines to stdout, each in its style."""
    for text, style in lines:
        say(text, bold=style == "bold", dim=style == "dim")


def warn(text: str) -> None:
    """Write a line to stderr."""
    typer.secho(plain(text), err=True, fg="yellow", color=_colour())


def complain(text: str) -> None:
    """Write `Error: …` as one line to stderr."""
    typer.secho(f"Error: {' '.join(plain(text).split())}", err=True, fg="red", color=_colour())


def tell_degraded(degraded: "Iterable[Degradation]") -> None:
    """Write to stderr in which ways an answer is less than it could be."""
    for one in degraded:
        warn(f"degraded: {one.backend_id}: {one.code}: {one.reason}")


def tell_if_empty(status: "MemoryProviderStatus") -> None:
    """Write to stderr what a note is and where it is looked for, if there is none."""
    if status.files == 0 and not status.dirty:
        warn(f"hint: there are no notes in {status.workspace_dir}; notes are {NOTES}")


def write_json(document: Mapping[str, object], *, compact: bool = False) -> None:
    """Write one JSON document to stdout, on one line if `compact`."""
    text = json.dumps(document, ensure_ascii=not _is_unicode(sys.stdout), indent=None if compact else 2)
    sys.stdout.write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    sys.stdout.flush()


def write_text(text: str) -> None:
    """Write `text` to stdout as it is; on a terminal without control characters and with a last newline."""
    if sys.stdout.isatty():
        text = plain(text) if text.endswith("\n") else plain(text) + "\n"
    sys.stdout.write(text)


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return `1 fact`, `2 facts`; `many` is a plural that is not made with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def one_line(text: str, room: int | None = None) -> str:
    """Return a text on one line, cut to `room` characters."""
    joined = " ".join(text.split())
    return joined if room is None or len(joined) <= room else f"{joined[: room - 1].rstrip()}…"


def can_draw() -> bool:
    """Say whether stdout can show the blocks of a bar."""
    return _is_unicode(sys.stdout)


def _is_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _colour() -> bool | None:
    """Return False where colours are not wanted, None to let the stream decide."""
    return False if os.environ.get("NO_COLOR") else None


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
