"""`cmem ingest`: files, or a text, become facts."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter

import typer

from composable_memory.cli.ingest_documents import IngestDocument, IngestedDocument
from composable_memory.cli.ingest_paths import FoundFile, find_files, read_text
from composable_memory.cli.options import check_names
from composable_memory.cli.progress import progress_bar
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import complain, counted, say, tell_degraded, warn, write_json
from composable_memory.content import IngestReport
from composable_memory.ingest.reading_files import WrittenSource, contents_of
from composable_memory.runtime.opening import Memory, open_memory
from composable_memory_ops_logs import utc_now

__all__ = ["IngestRequest", "ingest", "read_stdin"]

SHOWN_WARNINGS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestRequest:
    """What to ingest: `paths`, or else a `text`.

    `title`, `observed_at` and `session_key` are said of all of it. `backend` is the only one that gets it.
    With `wait` false it is enough that everything is kept safely.
    """

    paths: tuple[str, ...] = ()
    text: str = ""
    title: str | None = None
    observed_at: datetime | None = None
    session_key: str | None = None
    backend: str | None = None
    wait: bool = True


async def ingest(place: Place, request: IngestRequest, *, strict: bool, as_json: bool) -> ExitCode:
    """Ingest and say what became of it."""
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        check_names(memory, (request.backend,) if request.backend else ())
        run = _Run(memory=memory, request=request)
        if request.paths:
            await run.files()
        else:
            await run.text()
        degraded = memory.unavailable()
    tell_degraded(degraded)
    document = run.document()
    if as_json:
        write_json(document.as_json())
    elif not document.is_vain:
        _show(document)
    _tell(document)
    if document.is_vain:
        complain("nothing could be ingested")
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and (document.is_partial or degraded) else ExitCode.FINE


def read_stdin() -> str:
    """Return all that comes on stdin.

    Raises:
        typer.BadParameter: it is no text.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"it is not UTF-8 (byte {error.start})", param_hint="stdin") from error


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of the command, and what has come of it so far."""

    memory: Memory
    request: IngestRequest
    started: float = field(default_factory=perf_counter)
    reports: list[Mapping[str, IngestReport]] = field(default_factory=list)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    sources: int = 0
    contents: int = 0

    async def files(self) -> None:
        """Ingest every file as all that it says now, so that what vanished from it holds no more."""
        found = await asyncio.to_thread(find_files, self.request.paths, self.memory.workspace_dir)
        self.passed_over += found.problems
        with progress_bar("ingesting") as show:
            for done, file in enumerate(found.files):
                if show:
                    show(done, len(found.files), file.key)
                await self._file(file)

    async def text(self) -> None:
        """Ingest the text, which is in no file."""
        contents = contents_of(self._source(self.request.text, utc_now()))
        self.contents = len(contents)
        if contents:
            request = self.request
            self.reports.append(
                await self.memory.ingest(contents, backend=request.backend, wait=request.wait)
            )

    def document(self) -> IngestDocument:
        """Return what has come of it."""
        return IngestDocument.of(
            self.reports,
            files=self.sources,
            contents=self.contents,
            passed_over=self.passed_over,
            took_ms=(perf_counter() - self.started) * 1000,
        )

    async def _file(self, file: FoundFile) -> None:
        try:
            text, written_at = await asyncio.to_thread(read_text, file)
        except OSError as error:
            self.passed_over.append((file.key, error.strerror or str(error)))
            return
        contents = await asyncio.to_thread(contents_of, self._source(text, written_at, path=file.key))
        request = self.request
        self.reports.append(
            await self.memory.ingest_source(file.key, contents, backend=request.backend, wait=request.wait)
        )
        self.sources += 1
        self.contents += len(contents)

    def _source(self, text: str, written_at: datetime, *, path: str | None = None) -> WrittenSource:
        return WrittenSource(
            text=text,
            written_at=written_at,
            path=path,
            title=self.request.title,
            observed_at=self.request.observed_at,
            session_key=self.request.session_key,
        )


def _show(document: IngestDocument) -> None:
    files = f"{counted(document.files, 'file')}, " if document.files else ""
    what = files + counted(document.contents, "episode")
    took = f"in {document.took_ms / 1000:.1f} s"
    if len(document.backends) == 1:
        (made,) = document.backends.values()
        say(f"Ingested {what}: {_told(made)}, {took}.")
        return
    say(f"Ingested {what}, {took}.")
    for backend_id, made in document.backends.items():
        say(f"  {backend_id}: {_told(made)}")


def _told(made: IngestedDocument) -> str:
    return (
        f"{made.stored} stored, {made.known} known, {made.pending} pending, {made.failed} failed; "
        f"{counted(made.entities, 'entity', 'entities')}, {counted(made.facts, 'fact')}"
    )


def _tell(document: IngestDocument) -> None:
    """Write to stderr what went wrong, and what is worth knowing."""
    for one in document.passed_over:
        warn(f"passed over: {one.path}: {one.reason}")
    for problem in document.problems:
        warn(f"problem: {problem}")
    for warning in document.warnings[:SHOWN_WARNINGS]:
        times = f" ({warning.count} times)" if warning.count > 1 else ""
        warn(f"warning: {warning.code}: {warning.message}{times}")
    _tell_rest(len(document.warnings) - SHOWN_WARNINGS)
    if any(made.pending for made in document.backends.values()):
        warn("hint: what is pending is kept and tried again; `cmem index` tries it now")


def _tell_rest(count: int) -> None:
    if count > 0:
        warn(f"… and {count} further warnings; --json shows all")
