"""Runs `qmd update` and `qmd embed`, parses their reports, and erases forgotten lines from the index."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Literal

from composable_memory.errors import BackendTimeout, BackendUnavailable, IndexProblem
from composable_memory.forget.report import Forgetting
from composable_memory.forget.statement_matching import contains, statements_of, words_of
from composable_memory.supervision.backoff import Pace, RetryPolicy, Verdict, retry
from composable_memory.supervision.file_lock import file_lock
from composable_memory.supervision.run_command import Reply, run_command
from composable_memory_adapters.qmd.settings import UpdateSettings
from composable_memory_adapters.qmd.transport.replies import BUSY, ESCAPES, refusal
from composable_memory_adapters.qmd.types import BACKEND_ID, Home, Installation
from composable_memory_adapters.sqlite_file import Connection, SqliteFile, remove_set_aside, set_aside
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

INDEX = ("--index", "index")
"""Without it, QMD would use a `.qmd` folder in the working directory or above it."""

PATIENT = RetryPolicy(tries=3, first_wait_s=0.5, jitter=0.0, max_wait_s=1.0)
ONCE = RetryPolicy(tries=1)
SPARE_S = 30.0
"""Added to QMD's own time limit, for loading its model and shutting down."""

KEEP_BYTES = 256 * 1024
"""QMD's reports are short; of other output, such as progress, only the end is kept."""

_COLLECTION = re.compile(r"\[\d+/\d+\] (?P<name>.+?) \(")
_COUNTS = re.compile(r"Indexed: (\d+) new, (\d+) updated, (\d+) unchanged, (\d+) removed")
_EMBEDDED = re.compile(r"Embedded ([\d,.]+) chunks from ([\d,.]+) documents")
_FAILED = re.compile(
    r"(?<![\d,.])([\d,.]+) chunks still failed after retries[^\n]*(?:\n\s*(?P<why>\S[^\n]*))?"
)
_ELSEWHERE = "Another embed process is already running"
_DAMAGED = re.compile(r"database disk image is malformed|file is not a database|SQLITE_CORRUPT|SQLITE_NOTADB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many documents of a collection an update added, changed, left unchanged and removed."""

    new: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0

    @property
    def files(self) -> int:
        """Return the present number of files."""
        return self.new + self.updated + self.unchanged


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOutcome:
    """What an update did in each collection; empty if QMD's report cannot be parsed.

    `set_aside` is where a damaged database was moved before everything was indexed into a new one.
    """

    counts: Mapping[str, Counts] = field(default_factory=dict)
    set_aside: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOutcome:
    """The result of an embedding: `elsewhere` if another process is doing it; `problem` if chunks failed."""

    state: Literal["done", "elsewhere"] = "done"
    chunks: int = 0
    problem: str | None = None


class IndexCommands:
    """Runs QMD's index commands; `pace` is the clock for pauses between tries."""

    def __init__(
        self,
        installation: Installation,
        home: Home,
        settings: UpdateSettings,
        *,
        pace: Pace | None = None,
    ) -> None:
        self._command = (*installation.command, *INDEX)
        self._home = home
        self._settings = settings
        self._pace = pace

    async def update(self, *, is_patient: bool = False, force: bool = False) -> UpdateOutcome:
        """Run `qmd update`, which checks all files of its collections.

        If the database is busy or time runs out, `is_patient` makes up to three attempts. With `force` a
        damaged database is set aside under another name, and a new one is made.

        Raises:
            BackendError: QMD failed; what it had indexed stays.
        """
        return await retry(
            lambda: self._update(force=force),
            judge=_judge,
            policy=PATIENT if is_patient else ONCE,
            pace=self._pace,
        )

    async def embed(self, *, force: bool = False) -> EmbedOutcome:
        """Run `qmd embed`, which embeds what has no vectors yet, or everything with `force`.

        Raises:
            BackendError: QMD failed; the vectors it had made stay.
        """
        limit_s = self._settings.embed_timeout_ms / 1000
        options = ("--timeout", f"{limit_s / 60:g}", *(("--force",) if force else ()))
        async with file_lock(self._home.root / "embed.lock", owner=BACKEND_ID, patience_s=0.0) as is_ours:
            if not is_ours:
                return EmbedOutcome(state="elsewhere")
            reply = await self._run("embed", *options, limit_s=limit_s + SPARE_S)
        if reply.code != 0:
            raise refusal(reply.code, reply.stdout, reply.stderr, operation="embed")
        return _embedded(ESCAPES.sub("", reply.stdout))

    async def clean_up(self) -> None:
        """Run `qmd cleanup`, which drops what no document needs: texts, vectors, cached replies.

        Raises:
            BackendError: QMD failed, or another process is updating its index.
        """
        async with self._updating("clean up") as limit_s:
            reply = await self._run("cleanup", limit_s=limit_s)
        if reply.code != 0:
            raise refusal(reply.code, reply.stdout, reply.stderr, operation="clean up")

    async def _update(self, *, force: bool) -> UpdateOutcome:
        async with self._updating("update") as limit_s:
            reply = await self._run("update", limit_s=limit_s)
            aside = None
            if force and reply.code != 0 and _DAMAGED.search(reply.stderr + reply.stdout):
                await asyncio.to_thread(remove_set_aside, self._home.index_file)
                aside = await asyncio.to_thread(set_aside, self._home.index_file)
                reply = await self._run("update", limit_s=limit_s)
        if reply.code != 0:
            raise refusal(reply.code, reply.stdout, reply.stderr, operation="update")
        return _updated(ESCAPES.sub("", reply.stdout), aside)

    @asynccontextmanager
    async def _updating(self, operation: str) -> AsyncIterator[float]:
        """Hold the lock for changing the index; yield the time limit of a command."""
        limit_s = self._settings.update_timeout_ms / 1000
        lock = self._home.root / "update.lock"
        async with file_lock(lock, owner=BACKEND_ID, patience_s=limit_s) as is_ours:
            if not is_ours:
                raise BackendUnavailable(BACKEND_ID, BUSY, fix="wait for it to end", operation=operation)
            yield limit_s

    async def _run(self, verb: str, *options: str, limit_s: float) -> Reply:
        return await run_command(
            (*self._command, verb, *options),
            environ=self._home.environ,
            cwd=self._home.root,
            timeout_s=limit_s,
            owner=BACKEND_ID,
            operation=verb,
            max_output_bytes=KEEP_BYTES,
            overflow="keep-end",
        )


def _judge(error: Exception) -> Verdict:
    is_busy = isinstance(error, BackendUnavailable) and error.missing == BUSY
    return Verdict(may_pass=is_busy or isinstance(error, BackendTimeout))


# --- QMD's reports ------------------------------------------------------------------------------------------


def _updated(report: str, aside: Path | None) -> UpdateOutcome:
    counts: dict[str, Counts] = {}
    name = None
    for line in report.splitlines():
        if header := _COLLECTION.match(line):
            name = header["name"]
        elif (found := _COUNTS.match(line)) and name is not None:
            new, updated, unchanged, removed = map(int, found.groups())
            counts[name] = Counts(new=new, updated=updated, unchanged=unchanged, removed=removed)
    return UpdateOutcome(counts=counts, set_aside=aside)


def _embedded(report: str) -> EmbedOutcome:
    if _ELSEWHERE in report:
        return EmbedOutcome(state="elsewhere")
    done, failed = _EMBEDDED.search(report), _FAILED.search(report)
    problem = None
    if failed is not None:
        why = f": {failed['why'].strip()}" if failed["why"] else ""
        problem = f"QMD could not embed {counted(_number(failed[1]), 'chunk')}{why}"
    return EmbedOutcome(chunks=_number(done[1]) if done else 0, problem=problem)


def _number(text: str) -> int:
    return int(re.sub(r"\D", "", text))


WITH_WORD = """
SELECT DISTINCT path, doc FROM documents JOIN content USING (hash) WHERE active = 1 AND doc LIKE ? ESCAPE '!'
"""


async def documents_saying(index_file: Path, wanted: Forgetting) -> tuple[str, ...]:
    """Return the paths of the documents in an index that contain some lines; none if it is unreadable."""
    phrases = {one.said for text in wanted.texts for one in statements_of(text) if one.is_recognisable}

    def find(connection: Connection) -> set[str]:
        found = set[str]()
        for words in phrases:
            like = max(words, key=len).replace("!", "!!").replace("%", "!%").replace("_", "!_")
            rows = connection.execute(WITH_WORD, (f"%{like}%",))
            found |= {path for path, doc in rows if contains(words_of(doc), words)}
        return found

    with suppress(IndexProblem):
        async with SqliteFile.open(index_file, readers=1) as file:
            return tuple(sorted(await file.read(find)))
    return ()


async def scrub(index_file: Path) -> None:
    """Scrub what QMD has deleted from an index; a damaged copy that was set aside is removed.

    Raises:
        BackendUnavailable: another process prevents it.
    """
    try:
        async with SqliteFile.open(index_file, readers=1) as file:
            await file.scrub()
    except IndexProblem as error:
        fix = "stop whatever else uses it, then try again"
        raise BackendUnavailable(BACKEND_ID, str(error), fix=fix, operation="forget") from error
