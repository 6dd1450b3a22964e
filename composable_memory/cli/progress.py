"""The progress bar on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from composable_memory.cli.screen import plain

__all__ = ["ShowProgress", "progress_bar"]

ShowProgress = Callable[[int, int | None, str], None]
"""Takes how much is done, of how much if that is known, and what is being done."""


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
