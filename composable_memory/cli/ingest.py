"""`cmem ingest`: files, or a text, become facts."""

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from time import perf_counter
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.ingest_paths import FoundFile, find_files, read_text
from composable_memory.cli.options import AsJson, Backend, Strict, check_names, parse_moment
from composable_memory.cli.output import counted, error, print_json, print_line, warn, warn_degraded
from composable_memory.cli.render import progress_bar
from composable_memory.content import IngestReport
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.json_documents import document
from composable_memory.runtime.memory import Memory
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.quick_dataclass import dataclass

SHOWN_WARNINGS = 5
COUNTED = ("stored", "known", "pending", "failed", "entities", "facts")
"""What is counted of each backend; each content is in exactly one of the first four."""

app = typer.Typer()


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
            "--observed-at", metavar="TIME", help="When it was said or seen; overrides dates in the text."
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
        written_at=utc_now(),
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
    """Return the text to ingest where no files are named.

    Raises:
        typer.BadParameter: the source is not exactly one, or it is blank or no text.
    """
    if not all(path.strip() for path in named):
        raise typer.BadParameter("a path is blank", param_hint="PATH")
    if bool(named) + (text is not None) + from_stdin != 1:
        problem = "name files or folders, or give --text, or --stdin: exactly one of them"
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
    """One run of the command, and what has come of it so far; with `wait` false, kept safely is enough."""

    memory: Memory
    source: WrittenSource
    """What the user says of everything that is ingested."""
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
        """Ingest every file as all that it says now, so that what vanished from it holds no more."""
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
        """Return whether anything was passed over, waits, or failed."""
        waiting = any(one["pending"] or one["failed"] for one in self.backends.values())
        return bool(self.passed_over or self.problems or waiting)

    @property
    def is_vain(self) -> bool:
        """Return whether nothing at all could be ingested."""
        kept = sum(one["stored"] + one["known"] + one["pending"] for one in self.backends.values())
        return not kept and (self.contents > 0 or not self.sources)

    def document(self) -> dict[str, JsonValue]:
        """Return what has come of it as JSON."""
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
        warn(f"… and {left} further warnings; --json shows all")
    if any(made["pending"] for made in run.backends.values()):
        warn("hint: what is pending is kept and tried again; `cmem index` tries it now")
