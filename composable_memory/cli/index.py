"""`cmem index`: brings every backend up to date, with a progress bar."""

from time import perf_counter
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Strict
from composable_memory.cli.output import (
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
from composable_memory_ops_logs.plurals import counted

INDEXING = "indexing"
LONG_MS = 5000.0
"""For a sync that takes longer, show how long its steps took."""
LEAST_TOLD_S = 0.1

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
        report, took_ms, parts = await sync(memory, force=force)
        degraded, status = memory.unavailable(), memory.status()
        is_changed = report.files_indexed or report.files_removed
        languages = await memory.language_hint() if is_changed else None
        warn_notes(memory.loaded)
    without_vectors = status.embedder_problem
    if as_json:
        print_json(index_document(report, took_ms))
    else:
        print_report(report, took_ms)
        if took_ms > LONG_MS and len(parts) > 1:
            told = (f"{took_s:.1f} s {label}" for label, took_s in parts.items() if took_s >= LEAST_TOLD_S)
            print_line(f"Of that, {', '.join(told)}.")
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


async def sync(memory: Memory, *, force: bool = False) -> tuple[SyncReport, float, dict[str, float]]:
    """Sync with a progress bar; return the report, the time in milliseconds, and seconds by step."""
    started = last = perf_counter()
    label, parts, is_told = INDEXING, dict[str, float](), False
    with progress_bar(INDEXING) as show:

        def progress(update: MemorySyncProgressUpdate) -> None:
            nonlocal last, label, is_told
            now = perf_counter()
            parts[label] = parts.get(label, 0.0) + now - last
            last, label = now, (update.label or INDEXING).lower()
            if show:
                show(update.completed, update.total, label)
            elif not is_told and parts.get(label, 0.0) * 1000 > LONG_MS:
                is_told = True
                warn(f"{label}: {update.completed} of {update.total}")

        report = await memory.sync(reason="cli", force=force, progress=progress)
    ended = perf_counter()
    parts[label] = parts.get(label, 0.0) + ended - last
    return report, (ended - started) * 1000, parts


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
    """Warn of the cost of a rebuild before it is incurred."""
    for name, status in memory.backend_statuses().items():
        match status.rebuild:
            case {"tokens": int(tokens), "passages": int(passages)}:
                warn(
                    f"{name}: about {counted(tokens, 'token')} in {counted(passages, 'passage')} to embed"
                    f" with {status.provider} ({status.model})"
                )
