"""Prints tables, nested values and progress with rich; only imported by commands that need it.

To a pipe or a file everything is plain text, and no line is cut or wrapped.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from composable_memory.cli.output import can_draw, environment, format_bytes, output, plain, print_line

UNBOUNDED = 100_000
"""The width of output that is not a terminal."""
LONG_ITEM = 40
"""A list with an item longer than this gets one line per item."""
BLOCKS = "▁▂▃▄▅▆▇█"
STROKES = "__..--^^"
"""Replacement for the blocks if the terminal has none."""

ShowProgress = Callable[[int, int | None, str], None]
"""Takes how much is done, of how much if that is known, and what is being done."""


def print_table(
    rows: Iterable[Sequence[str]],
    *,
    head: Sequence[str] = (),
    right: Sequence[int] = (),
    styles: Mapping[int, str] | None = None,
    indent: int = 0,
) -> None:
    """Print rows in columns; those in `right` are right-aligned, `styles` are those of rows."""
    rows = list(rows)
    if not rows and not head:
        return
    table = Table(
        box=None,
        show_header=bool(head),
        header_style="dim",
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for number, name in enumerate(head or rows[0]):
        table.add_column(plain(name) if head else "", justify="right" if number in right else "left")
    for number, row in enumerate(rows):
        # A space, as rich draws an empty column one character wide, but does not count that one.
        table.add_row(*(Text(plain(cell) or " ") for cell in row), style=(styles or {}).get(number))
    # No wider than necessary: otherwise each line would be padded to the width of what is not a terminal.
    _print(Padding(table, (0, 0, 0, indent), expand=False))


def print_pairs(pairs: Iterable[tuple[str, str]], *, indent: int = 2) -> None:
    """Print labels and their values, the values in one column."""
    print_table(pairs, indent=indent)


def print_details(title: str, values: Mapping[str, object]) -> None:
    """Print a title and below it every value by name; a value with parts becomes a block of its own."""
    print_line(title, bold=True)
    print_pairs(row for name, value in values.items() for row in _lines(name, value, ""))


def _lines(name: str, value: object, margin: str) -> Iterator[tuple[str, str]]:
    label, parts = f"{margin}{_words(name)}", _parts(value)
    if parts:
        yield label, ""
        for inner, part in parts.items():
            yield from _lines(inner, part, f"{margin}  ")
        return
    items = [format_value(one) for one in value] if isinstance(value, list | tuple) else []
    if any(len(one) > LONG_ITEM for one in items):
        yield label, items[0]
        yield from (("", one) for one in items[1:])
    else:
        yield label, format_value(value, name)


def format_value(value: object, name: str = "") -> str:
    """Format a value on one line; the name decides whether it is a number of bytes."""
    if parts := _parts(value):
        known = [
            f"{_words(inner)} {format_value(part, inner)}"
            for inner, part in parts.items()
            if part is not None
        ]
        return ", ".join(known) or "-"
    match value:
        case None | "" | [] | () | {}:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if name.endswith("bytes"):
            return format_bytes(value)
        case float():
            return f"{value:g}"
        case list() | tuple():
            return ", ".join(format_value(one) for one in value)
    return str(value)


def sparkline(values: Sequence[float | None], low: float, high: float) -> str:
    """Return a line of blocks as high as the values are between `low` and `high`; a gap for None."""
    strokes = BLOCKS if can_draw() else STROKES
    top = len(strokes) - 1
    shares = [None if one is None else (min(max(one, low), high) - low) / (high - low) for one in values]
    return "".join(" " if one is None else strokes[round(one * top)] for one in shares)


@contextmanager
def progress_bar(label: str) -> Iterator[ShowProgress | None]:
    """Show a bar with elapsed and remaining time, if stderr is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task(label, total=None)

        def show(completed: int, total: int | None, what: str) -> None:
            bars.update(task, completed=completed, total=total, description=plain(what))

        yield show


def _print(renderable: Padding) -> None:
    is_terminal = output().isatty()
    console = Console(
        file=output(),
        force_terminal=is_terminal,
        width=None if is_terminal else UNBOUNDED,
        highlight=False,
        markup=False,
        emoji=False,
        _environ=environment(),
    )
    with console.capture() as captured:
        console.print(renderable)
    # rich pads each cell to the width of its column, even the last one.
    output().write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _parts(value: object) -> Mapping[str, object]:
    """Return the named parts of a value; empty for any other."""
    if is_dataclass(value):
        return {one.name.rstrip("_"): getattr(value, one.name) for one in fields(value)}
    return value if isinstance(value, Mapping) else {}


def _words(name: str) -> str:
    """Return the words of a name, whether written `like_this` or `likeThis`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).replace("_", " ").lower()


def format_setting(value: object) -> str:
    """Format a value as in a settings file."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
