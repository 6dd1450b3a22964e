"""`cmem index`: brings every backend up to date, under a progress bar."""

from time import perf_counter
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Strict
from composable_memory.cli.output import (
    counted,
    print_json,
    print_line,
    tell_scope,
    warn,
    warn_degraded,
    warn_if_empty,
    warn_notes,
)
from composable_memory.cli.render import progress_bar
from composable_memory.json_documents import document
from composable_memory.runtime.memory import Memory
from composable_memory.types import MemorySyncProgressUpdate, SyncReport

app = typer.Typer()


@command(app, "index")
async def index(
    target: Target,
    *,
    force: Annotated[bool, typer.Option("--force", help="Rebuild the index instead of updating it.")] = False,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Update the index from the notes."""
    async with target.open() as memory:
        if force:
            _warn_of_cost(memory)
        report, took_ms = await sync(memory, force=force)
        degraded, status = memory.unavailable(), memory.status()
        is_changed = report.files_indexed or report.files_removed
        languages = await memory.language_hint() if is_changed else None
        warn_notes(memory.loaded)
    without_vectors = status.embedder_problem
    if as_json:
        print_json(index_document(report, took_ms))
    else:
        print_report(report, took_ms)
        match status.custom:
            case {"documents": {"hint": hint}}:
                print_line(f"Hint: {hint}.")
    for problem in report.problems:
        warn(f"problem: {problem}")
    if without_vectors:
        warn(f"problem: nothing is embedded: {without_vectors}")
    warn_degraded(degraded)
    tell_scope(status)
    if languages:
        warn(f"hint: {languages}")
    warn_if_empty(status)
    is_partial = bool(report.problems or degraded or report.embeddings_pending or without_vectors)
    return ExitCode.DEGRADED if strict and is_partial else ExitCode.FINE


async def sync(memory: Memory, *, force: bool = False) -> tuple[SyncReport, float]:
    """Sync under a progress bar; return what was done, and how many milliseconds it took."""
    started = perf_counter()
    with progress_bar("indexing") as show:

        def progress(update: MemorySyncProgressUpdate) -> None:
            if show:
                show(update.completed, update.total, update.label or "indexing")

        report = await memory.sync(reason="cli", force=force, progress=progress if show else None)
    return report, (perf_counter() - started) * 1000


def index_document(report: SyncReport, took_ms: float) -> dict[str, JsonValue]:
    """Return what a sync did, as JSON."""
    return document(report, took_ms=round(took_ms, 3))


def print_report(report: SyncReport, took_ms: float) -> None:
    """Print what a sync did."""
    print_line(
        f"Indexed {counted(report.files_indexed, 'file')} ({report.files_unchanged} unchanged, "
        f"{report.files_removed} removed), {counted(report.chunks_written, 'chunk')}, "
        f"{report.embedded} embedded, {report.embeddings_pending} to embed, in {took_ms / 1000:.1f} s."
    )
    if report.passed_over:
        counts = ", ".join(f"{why} ({count})" for why, count in report.passed_over.items())
        print_line(f"Passed over {counts}.")


def _warn_of_cost(memory: Memory) -> None:
    """Warn of what a rebuild takes, before it is paid."""
    for name, status in memory.backend_statuses().items():
        match status.rebuild:
            case {"tokens": int(tokens), "passages": int(passages)}:
                warn(
                    f"{name}: about {tokens} tokens in {counted(passages, 'passage')} to embed"
                    f" with {status.provider} ({status.model})"
                )
