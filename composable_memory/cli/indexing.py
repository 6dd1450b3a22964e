"""`cmem index`, with its progress bar."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from composable_memory.cli.documents import IndexDocument
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import plain, say, tell_degraded, tell_if_empty, warn, write_json
from composable_memory.interfaces import ProgressCallback
from composable_memory.runtime.opening import Memory, open_memory
from composable_memory.types import MemoryProviderStatus, MemorySyncProgressUpdate

__all__ = ["index", "show_report", "sync"]


async def index(place: Place, *, force: bool, strict: bool, as_json: bool) -> ExitCode:
    """Sync every backend and say what was done."""
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        if force:
            _tell_cost(memory)
        report = await sync(memory, force=force)
        degraded, status = memory.unavailable(), memory.status()
    without_vectors = _why_without_vectors(status)
    if as_json:
        write_json(report.as_json())
    else:
        show_report(report)
    for problem in report.problems:
        warn(f"problem: {problem}")
    if without_vectors:
        warn(f"problem: nothing is embedded: {without_vectors}")
    tell_degraded(degraded)
    tell_if_empty(status)
    is_partial = bool(report.problems or degraded or report.embeddings_pending or without_vectors)
    return ExitCode.DEGRADED if strict and is_partial else ExitCode.FINE


def _why_without_vectors(status: MemoryProviderStatus) -> str | None:
    """Return why no provider embeds although one is wanted."""
    reason = status.custom.get("providerUnavailableReason")
    return str(reason) if reason and status.requested_provider != "none" else None


def _tell_cost(memory: Memory) -> None:
    """Say what a rebuild takes, before it is paid."""
    for name, status in memory.backend_statuses().items():
        match status.custom.get("rebuild"):
            case {"tokens": tokens, "passages": passages}:
                warn(
                    f"{name}: about {tokens} tokens in {passages} passages to embed"
                    f" with {status.provider} ({status.model})"
                )


async def sync(memory: Memory, *, force: bool = False) -> IndexDocument:
    """Sync under a progress bar."""
    started = perf_counter()
    with _progress() as progress:
        report = await memory.sync(reason="cli", force=force, progress=progress)
    return IndexDocument.of(report, took_ms=(perf_counter() - started) * 1000)


def show_report(report: IndexDocument) -> None:
    """Write what a sync did."""
    say(
        f"Indexed {report.files_indexed} files ({report.files_unchanged} unchanged, "
        f"{report.files_removed} removed), {report.chunks_written} chunks, {report.embedded} embedded, "
        f"{report.embeddings_pending} to embed, in {report.took_ms / 1000:.1f} s."
    )


@contextmanager
def _progress() -> Iterator[ProgressCallback | None]:
    """Show a bar with elapsed and remaining time on stderr, if that is a terminal."""
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
        task = bars.add_task("indexing", total=None)

        def show(update: MemorySyncProgressUpdate) -> None:
            label = plain(update.label or "indexing")
            bars.update(task, completed=update.completed, total=update.total, description=label)

        yield show
