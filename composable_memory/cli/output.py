"""Output of commands: text that notes cannot misuse, one JSON document, lines on stderr."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from unicodedata import east_asian_width

import typer

from composable_memory.paths import NOTES
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.config.layers import LoadedSettings
    from composable_memory.registry import Registry
    from composable_memory.runtime.warm_memory import WarmMemory
    from composable_memory.types import Degradation, MemoryProviderStatus

# Everything a terminal could take for a command, C0 without tab and newline, delete, and C1; and what makes
# it show characters in another order.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# A line of Chinese or Japanese may break after any character, unless a mark follows that cannot begin a line.
_WIDE = "\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_WORDS = Pattern(
    rf"\s*(?:[{_WIDE}][\u3001\u3002\u300d\u300f\uff01\uff09\uff0c\uff1a\uff1b\uff1f]*|[^\s{_WIDE}]+)"
)
WITHOUT_LINKS = frozenset({"dumb", "linux"})
"""Terminals that print the escape sequence of a link as garbage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client of the server: its request, its folder, its environment, and its output."""

    registry: "Registry"
    """The installed backends, which each command would otherwise look up again."""
    kept: "WarmMemory"
    """The memory that previous commands have left open."""
    installation: str
    folder: Path
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    out: TextIO
    err: TextIO
    frames: list[bytes]
    works: list[Any] = field(default_factory=list)
    """Receives the coroutine of the command, which runs on the server's loop."""

    def path(self, given: Path) -> Path:
        """Resolve a path as the client means it."""
        return self.folder / given.expanduser()


CLIENT: ContextVar[Client | None] = ContextVar("composable_memory_client", default=None)
"""The client for whom this code runs; None for this process itself."""


def client_stream(*, err: bool = False) -> TextIO | None:
    """Return the stream of a client; None makes Typer use that of this process."""
    client = CLIENT.get()
    return (client.err if err else client.out) if client else None


def output() -> TextIO:
    """Return the stream for results."""
    return client_stream() or sys.stdout


def environment() -> Mapping[str, str]:
    """Return the environment of the client, or of this process."""
    client = CLIENT.get()
    return client.environ if client else os.environ


def prepare_streams() -> None:
    """Make sure that no character can end a command because the terminal does not support it.

    A stream that was closed from outside is replaced by one that leads nowhere.
    """
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def print_line(text: str = "", *, bold: bool = False, dim: bool = False, colour: str | None = None) -> None:
    """Print a line to stdout, styled if that is a terminal."""
    typer.secho(plain(text), client_stream(), bold=bold or None, dim=dim or None, fg=colour, color=_colour())


def print_linked(before: str, text: str, after: str, *, link: str | None) -> None:
    """Print a line to stdout in bold; the text in the middle is a link if the terminal supports them."""
    knows_links = output().isatty() and environment().get("TERM", "dumb") not in WITHOUT_LINKS
    if link is None or not knows_links or environment().get("NO_COLOR"):
        print_line(f"{before}{text}{after}", bold=True)
        return
    # OSC 8: the address, the shown text, and an empty address.
    shown = f"\x1b]8;;{plain(link)}\x1b\\{plain(text)}\x1b]8;;\x1b\\"
    styled = typer.style(f"{plain(before)}{shown}{plain(after)}", bold=True)
    typer.echo(styled, client_stream(), color=_colour())


def print_marked(text: str, marks: Iterable[tuple[int, int]]) -> None:
    """Print a line to stdout, on a terminal with these parts of it in bold and in colour."""
    text, reached, parts = plain(text), 0, []
    for begin, end in marks:
        parts += [text[reached:begin], typer.style(text[begin:end], fg="yellow", bold=True)]
        reached = end
    typer.echo("".join([*parts, text[reached:]]), client_stream(), color=_colour())


def print_json(document: Mapping[str, object], *, compact: bool = False) -> None:
    """Print one JSON document to stdout, on one line if `compact`."""
    text = json.dumps(document, ensure_ascii=not can_draw(), indent=None if compact else 2)
    output().write(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    output().flush()


def columns() -> int | None:
    """Return the width of the terminal in characters; None if stdout is not one."""
    if not output().isatty():
        return None
    told = environment().get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(output().fileno()).columns or None
    except OSError:
        return None


def line_spans(text: str, room: int | None) -> Iterator[tuple[int, int]]:
    """Yield start and end of each line of a text, broken between words to fit into `room`."""
    begin = end = used = 0
    for word in _WORDS.finditer(text):
        width = sum(2 if east_asian_width(char) in "WF" else 1 for char in word[0])
        if room is not None and end > begin and used + width > room:
            yield begin, end
            gap = len(word[0]) - len(word[0].lstrip())
            begin, used = word.start() + gap, -gap
        end, used = word.end(), used + width
    yield begin, end


def print_text(text: str) -> None:
    """Print `text` to stdout as it is; on a terminal without control characters and with a last newline."""
    if output().isatty():
        text = plain(text) if text.endswith("\n") else plain(text) + "\n"
    output().write(text)


def warn(text: str) -> None:
    """Print a line to stderr."""
    typer.secho(plain(text), client_stream(err=True), err=True, fg="yellow", color=_colour())


def error(text: str) -> None:
    """Print `Error: …` as one line to stderr."""
    line = f"Error: {one_line(plain(text))}"
    typer.secho(line, client_stream(err=True), err=True, fg="red", color=_colour())


def warn_notes(loaded: "LoadedSettings") -> None:
    """Print to stderr what in the settings files is ignored, or could be better."""
    for note in loaded.notes:
        warn(f"note: {note}")


def warn_degraded(degraded: "Iterable[Degradation]") -> None:
    """Print to stderr what limits an answer."""
    for one in degraded:
        warn(f"degraded: {one.backend_id}: {one.code}: {one.reason}")


def warn_if_empty(status: "MemoryProviderStatus") -> None:
    """Print to stderr what a note is and where notes are looked for, if there are none."""
    if status.files == 0 and not status.dirty:
        match status.custom:
            case {"scope": {"refused": refusal}}:
                warn(f"hint: {refusal}")
                return
        warn(f"hint: no notes found in {status.workspace_dir}; notes are {NOTES}")


def tell_scope(status: "MemoryProviderStatus") -> None:
    """Print to stderr which part of the folder counts as notes, if that was just decided."""
    match status.custom:
        case {"scope": {"notes": "memory", "chosenBy": "now", "hint": hint}}:
            warn(f"note: {hint}")
        case {"scope": {"notes": "folder", "chosenBy": "now"}} if status.files:
            warn(
                f"note: {status.workspace_dir} has no MEMORY.md and no memory/, so the whole folder is "
                f"indexed as notes; memory.builtin.scope changes this"
            )


def plain(text: str) -> str:
    """Return `text` without the control characters by which a note could manipulate the terminal."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, room: int | None = None) -> str:
    """Return a text on one line, cut to `room` characters."""
    joined = " ".join(text.split())
    return joined if room is None or len(joined) <= room else f"{joined[: room - 1].rstrip()}…"


def format_bytes(count: float) -> str:
    """Format a number of bytes in a suitable unit."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.{0 if unit == 'bytes' else 1}f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def can_draw() -> bool:
    """Return whether stdout can show any character, such as the blocks of a bar."""
    return (output().encoding or "").lower().replace("-", "").startswith("utf")


def _colour() -> bool | None:
    """Return False if colours are unwanted, None to let the stream decide."""
    return False if environment().get("NO_COLOR") else None


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")
