"""`cmem ingest`: extracts facts from files or a text."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Backend, Strict, check_names, parse_moment
from composable_memory.cli.output import error, print_json, print_line, warn, warn_degraded
from composable_memory.cli.render import progress_bar
from composable_memory.content import IngestReport
from composable_memory.ingest.note_reader import TRANSCRIPT_SUFFIX, WrittenSource, contents_of
from composable_memory.json_documents import document
from composable_memory.paths import NO_TEXT, Reading, decoded, expanded, opened_file, relative_key
from composable_memory.runtime.memory import Memory
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

SHOWN_WARNINGS = 5
COUNTED = ("stored", "known", "pending", "failed", "entities", "facts")
"""What is counted for each backend; each content is in exactly one of the first four."""

app = typer.Typer()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file to ingest: its path, and its name in results."""

    real: Path
    key: str


SUFFIXES = (".md", ".markdown", ".txt", TRANSCRIPT_SUFFIX)
NOTHING = f"it holds no file ending in {', '.join(SUFFIXES)}"
MAX_NOTE_BYTES = 8 * 1024 * 1024
MAX_TRANSCRIPT_BYTES = 256 * 1024 * 1024


@command(app, "ingest", epilog="Example: cmem ingest MEMORY.md memory/")
async def ingest(
    target: Target,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Notes, transcripts, or folders of them; - for stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    text: Annotated[str | None, typer.Option("--text", metavar="T", help="Ingest this text.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Ingest the text on stdin.")] = False,
    title: Annotated[
        str | None, typer.Option("--title", metavar="T", help="A title for what is ingested.")
    ] = None,
    observed_at: Annotated[
        str | None,
        typer.Option(
            "--observed-at", metavar="TIME", help="When it was said or observed; overrides dates in the text."
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="The conversation it belongs to.")
    ] = None,
    no_wait: Annotated[
        bool,
        typer.Option("--no-wait", help="Return once everything is safely stored, without waiting for facts."),
    ] = False,
    backend: Backend = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Extract facts from notes or a text and store them."""
    said_of_all = WrittenSource(
        text="",
        written_at=utc_now().astimezone(),
        title=title,
        observed_at=parse_moment(observed_at, "--observed-at"),
        session_key=session,
    )
    named = tuple(path for path in paths or () if path != "-")
    given = _text_of(named, text, from_stdin=stdin or "-" in (paths or ()))
    async with target.open() as memory:
        check_names(memory, (backend,) if backend else ())
        run = _Run(memory=memory, source=said_of_all, backend=backend, wait=not no_wait)
        if named:
            await run.files(named)
        else:
            await run.text(given)
        degraded = memory.unavailable()
    warn_degraded(degraded)
    if as_json:
        print_json(run.document())
    elif not run.is_vain:
        _print_run(run)
    _warn_of_problems(run)
    if run.is_vain:
        error("nothing could be ingested")
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and (run.is_partial or degraded) else ExitCode.FINE


def _text_of(named: tuple[str, ...], text: str | None, *, from_stdin: bool) -> str:
    """Return the text to ingest if no files are named.

    Raises:
        typer.BadParameter: there is not exactly one source, or it is blank or not text.
    """
    if not all(path.strip() for path in named):
        raise typer.BadParameter("a path is blank", param_hint="PATH")
    if bool(named) + (text is not None) + from_stdin != 1:
        problem = "give either files and folders, or --text, or --stdin"
        raise typer.BadParameter(problem, param_hint="PATH")
    given = _read_stdin() if from_stdin else text or ""
    if not named and not given.strip():
        raise typer.BadParameter("the text is blank", param_hint="--stdin" if from_stdin else "--text")
    return given


def _read_stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        hint = f"it is not UTF-8 (byte {problem.start})"
        raise typer.BadParameter(hint, param_hint="stdin") from problem


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run of the command, and its results so far; with `wait` false, safely queued is enough."""

    memory: Memory
    source: WrittenSource
    """What the user says about everything that is ingested."""
    backend: str | None
    wait: bool
    started: float = field(default_factory=perf_counter)
    backends: dict[str, Counter[str]] = field(default_factory=dict)
    warnings: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: dict[str, None] = field(default_factory=dict)
    passed_over: list[tuple[str, str]] = field(default_factory=list)
    sources: int = 0
    contents: int = 0

    async def files(self, names: tuple[str, ...]) -> None:
        """Ingest every file as everything it now says, so that what vanished from it no longer holds."""
        files, problems = await asyncio.to_thread(find_files, names, self.memory.workspace_dir)
        self.passed_over += problems
        with progress_bar("ingesting") as show:
            for done, file in enumerate(files):
                if show:
                    show(done, len(files), file.key)
                await self._file(file)

    async def text(self, text: str) -> None:
        """Ingest a text that is in no file."""
        contents = contents_of(replace(self.source, text=text))
        self.contents = len(contents)
        if contents:
            self._add(await self.memory.ingest(contents, backend=self.backend, wait=self.wait))

    async def _file(self, file: FoundFile) -> None:
        try:
            text, written_at = await asyncio.to_thread(read_text, file)
        except OSError as problem:
            self.passed_over.append((file.key, problem.strerror or str(problem)))
            return
        source = replace(self.source, text=text, written_at=written_at, path=file.key)
        contents = await asyncio.to_thread(contents_of, source)
        self._add(await self.memory.ingest_source(file.key, contents, backend=self.backend, wait=self.wait))
        self.sources += 1
        self.contents += len(contents)

    def _add(self, reports: Mapping[str, IngestReport]) -> None:
        for backend_id, report in reports.items():
            counts = self.backends.setdefault(backend_id, Counter(dict.fromkeys(COUNTED, 0)))
            counts.update({one: getattr(report, one) for one in COUNTED})
            self.warnings.update((warning.code, warning.message) for warning in report.warnings)
            self.problems.update(dict.fromkeys(report.problems))

    @property
    def is_partial(self) -> bool:
        """Return whether anything was skipped, is pending, or failed."""
        waiting = any(one["pending"] or one["failed"] for one in self.backends.values())
        return bool(self.passed_over or self.problems or waiting)

    @property
    def is_vain(self) -> bool:
        """Return whether nothing at all could be ingested."""
        kept = sum(one["stored"] + one["known"] + one["pending"] for one in self.backends.values())
        return not kept and (self.contents > 0 or not self.sources)

    def document(self) -> dict[str, JsonValue]:
        """Return the results as JSON."""
        return document(
            files=self.sources,
            contents=self.contents,
            passed_over=[{"path": path, "reason": why} for path, why in self.passed_over],
            backends=self.backends,
            warnings=[
                {"code": code, "message": message, "count": count}
                for (code, message), count in self.warnings.most_common()
            ],
            problems=[*self.problems],
            took_ms=round((perf_counter() - self.started) * 1000, 3),
        )


def _print_run(run: _Run) -> None:
    files = f"{counted(run.sources, 'file')}, " if run.sources else ""
    what = files + counted(run.contents, "episode")
    took = f"in {perf_counter() - run.started:.1f} s"
    if len(run.backends) == 1:
        (made,) = run.backends.values()
        print_line(f"Ingested {what}: {_format_counts(made)}, {took}.")
        return
    print_line(f"Ingested {what}, {took}.")
    for backend_id, made in run.backends.items():
        print_line(f"  {backend_id}: {_format_counts(made)}")


def _format_counts(made: Mapping[str, int]) -> str:
    return (
        f"{', '.join(f'{made[one]} {one}' for one in COUNTED[:4])}; "
        f"{counted(made['entities'], 'entity', 'entities')}, {counted(made['facts'], 'fact')}"
    )


def _warn_of_problems(run: _Run) -> None:
    """Print to stderr what went wrong, and what is worth knowing."""
    for path, reason in run.passed_over:
        warn(f"passed over: {path}: {reason}")
    for problem in run.problems:
        warn(f"problem: {problem}")
    for (code, message), count in run.warnings.most_common(SHOWN_WARNINGS):
        warn(f"warning: {code}: {message}{f' ({count} times)' if count > 1 else ''}")
    if (left := len(run.warnings) - SHOWN_WARNINGS) > 0:
        warn(f"… and {left} more warnings; --json shows all")
    if any(made["pending"] for made in run.backends.values()):
        warn("hint: what is pending is kept and retried; `cmem index` retries it now")


# --- the named files: all of this reads the disk, so it is called in a thread -------------------------------


def find_files(names: Sequence[str], workspace: Path) -> tuple[list[FoundFile], list[tuple[str, str]]]:
    """Return the files that `names` refer to, in order, and why some cannot be used.

    A file stands for itself, a folder for all notes and transcripts in it.

    A relative name is looked up in the workspace, then in the current folder, and must refer to something in
    the workspace; an absolute one, or one that begins with `~`, may refer to anything. Links that lead out of
    what was named, and files and folders whose names begin with a dot, are skipped.
    """
    found: dict[Path, FoundFile] = {}
    problems: list[tuple[str, str]] = []
    for name in names:
        try:
            start = _start(name, workspace)
        except OSError as error:
            problems.append((name, _reason(error)))
            continue
        unreadable: list[OSError] = []
        files = {path: _named(path, workspace) for path in _files(start, unreadable)}
        problems += [(str(error.filename), _reason(error)) for error in unreadable]
        if not files and not unreadable:
            problems.append((name, NOTHING))
        found = files | found
    return sorted(found.values(), key=lambda file: file.key), problems


def read_text(file: FoundFile) -> tuple[str, datetime]:
    """Return the text of a file, and when it was written.

    Raises:
        OSError: it cannot be read, is too large, or is not text.
    """
    limit = MAX_TRANSCRIPT_BYTES if file.real.suffix.lower() == TRANSCRIPT_SUFFIX else MAX_NOTE_BYTES
    with (
        opened_file(file.real, max_bytes=limit) as (descriptor, looked),
        os.fdopen(descriptor, "rb", closefd=False) as opened,
    ):
        data = opened.read(limit)
    text, reading = decoded(data)
    if reading == Reading.NO_TEXT:
        raise OSError(f"it is {NO_TEXT}")
    return text, _written(looked.st_mtime)


def _start(name: str, workspace: Path) -> Path:
    """Return the real path of a name.

    Raises:
        OSError: it does not exist, or is outside the workspace without saying so.
    """
    given = Path(expanded(name))
    if given.is_absolute():
        return given.resolve(strict=True)
    inside = workspace / given
    real = (inside if inside.exists() else given).resolve(strict=True)
    if not real.is_relative_to(workspace):
        raise PermissionError(f"it is outside the workspace; to use it anyway, write {real}")
    return real


def _files(start: Path, unreadable: list[OSError]) -> Iterator[Path]:
    if not start.is_dir():
        yield start
        return
    for folder, folders, names in os.walk(start, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            is_wanted = path.suffix.lower() in SUFFIXES and not name.startswith(".")
            if is_wanted and (not path.is_symlink() or _stays_in(path, start)):
                yield path.resolve()


def _stays_in(link: Path, folder: Path) -> bool:
    return link.exists() and link.resolve().is_relative_to(folder)


def _named(path: Path, workspace: Path) -> FoundFile:
    """Name a file relative to the workspace, below `~`, or in full."""
    home = Path.home().resolve()
    if path.is_relative_to(workspace):
        key = relative_key(path, workspace)
    elif path.is_relative_to(home):
        key = f"~/{path.relative_to(home).as_posix()}"
    else:
        key = path.as_posix()
    return FoundFile(real=path, key=key)


def _written(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # some file systems have dates beyond the calendar
        return datetime.now(UTC).astimezone()


def _reason(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file or folder"
    return error.strerror or str(error)
