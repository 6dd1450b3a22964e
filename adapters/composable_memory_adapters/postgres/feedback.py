"""The feedback store on a server: judgements, weights and golden questions that a team shares.

The statements are those of the SQLite store; what PostgreSQL says otherwise is translated here. The store
blocks, as the other one does, so the connections live on an event loop in a thread of its own.
"""

import asyncio
import re
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from functools import cache
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, TypeVar

from composable_memory.errors import BackendError
from composable_memory.interfaces import FeedbackServices
from composable_memory_adapters.postgres.server import Connection, Server, address_of
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_adapters.postgres.writing import storable
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.store.export_import import Imported, import_lines
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_ops_logs.private_files import replacing

T = TypeVar("T")

KIND = "feedback"
"""What a notification says has changed."""

CLOSE_S = 10.0
"""How long closing waits for what is under way."""

TABLES = (
    "judgements",
    "evaluations",
    "weight_tables",
    "weight_changes",
    "experiments",
    "outcomes",
    "golden",
    "marks",
)
REVISION = "SELECT coalesce((SELECT revision FROM feedback_revisions WHERE tenant = $1), 0)"
FIRST = "INSERT INTO feedback_revisions (tenant) VALUES ($1) ON CONFLICT DO NOTHING"
LOCK = "SELECT FROM feedback_revisions WHERE tenant = $1 FOR UPDATE"
CHANGED = "UPDATE feedback_revisions SET revision = revision + 1 WHERE tenant = $1 RETURNING revision"
TELL = "SELECT pg_notify('cmem', format('%s:%s:%s', $1::int, $2::bigint, $3::text))"

SPOKEN = (
    (re.compile(r"\bchecked_(\w+)"), r"\1"),  # of SQLite, which does not check what it reads
    # Each statement names the tenant, $1: row-level security would do, but Citus then asks all its servers.
    (re.compile(r"^(UPDATE|DELETE FROM) (.*?)\s+WHERE (.*)", re.DOTALL), r"\1 \2 WHERE tenant = $1 AND (\3)"),
    (re.compile(r"^(DELETE FROM \w+)$"), r"\1 WHERE tenant = $1"),
    (re.compile(r"^(INSERT .*?)\((.*?VALUES \()", re.DOTALL), r"\1(tenant, \2$1, "),
    (re.compile(r"(?<!DELETE )\b(FROM|JOIN) (\w+)\b(?! AS)"), r"\1 \2 AS \2"),
    (re.compile(r"\b(FROM|JOIN) (\w+) AS"), r"\1 (SELECT * FROM \2 WHERE tenant = $1) AS"),
    (re.compile(r"\bIS NOT (?=[(:?]|excluded)"), "IS DISTINCT FROM "),
    (re.compile(r"\bIS (?=[(:?])"), "IS NOT DISTINCT FROM "),
    (re.compile(r"\binstr\("), "strpos("),
    (re.compile(r"\bON CONFLICT \("), "ON CONFLICT (tenant, "),
    (re.compile(r"^INSERT OR IGNORE(.*)$", re.DOTALL), r"INSERT\1 ON CONFLICT DO NOTHING"),
    (re.compile(r"^(INSERT INTO evaluations \(tenant, reserved_at\).*)$", re.DOTALL), r"\1 RETURNING id"),
)
PARAMETER = re.compile(r"\?|(?<!:):([a-z_]+)")


@cache
def _spoken(statement: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement of SQLite as PostgreSQL takes it, and the names of its parameters behind the first.

    That one is the tenant.
    """
    text = statement.strip()
    for pattern, replacement in () if "$1" in text else SPOKEN:
        text = pattern.sub(replacement, text)
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        name = match[1] or f"?{len(names)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 2}"

    text = PARAMETER.sub(numbered, text)
    return text, () if any(one.startswith("?") for one in names) else tuple(names)


class _Rows(list[Any]):
    """What a statement returned."""

    rowcount = 0

    def fetchone(self) -> Any:
        return self[0] if self else None

    def fetchall(self) -> list[Any]:
        return self

    @property
    def lastrowid(self) -> int:
        return int(self[0]["id"])


class _Blocking:
    """An asynchronous block, entered and left by a thread that waits for both."""

    def __init__(
        self, store: "PostgresFeedbackStore", block: AbstractAsyncContextManager[Connection]
    ) -> None:
        self._store = store
        self._block = block

    def __enter__(self) -> Connection:
        return self._store.wait_for(self._block.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._store.wait_for(self._block.__aexit__(kind, error, trace))


class _Session:
    """Passes by as a connection of SQLite, as far as the store uses one, within one transaction."""

    def __init__(self, store: "PostgresFeedbackStore", connection: Connection, tenant: int) -> None:
        self._store = store
        self._connection = connection
        self._tenant = tenant
        self.changes = 0

    def execute(self, statement: str, values: Mapping[str, object] | Sequence[object] = (), /) -> _Rows:
        if statement in ("BEGIN", "ROLLBACK"):  # `export` reads one moment, which every transaction here does
            return _Rows()
        return self._store.wait_for(self._run(statement, values))

    def executemany(self, statement: str, rows: Iterable[Sequence[object]], /) -> None:
        for row in rows:
            self.execute(statement, row)

    async def _run(self, statement: str, values: Mapping[str, object] | Sequence[object]) -> _Rows:
        text, names = _spoken(statement)
        given = [values[name] for name in names] if isinstance(values, Mapping) else values
        if any(isinstance(one, float) and isnan(one) for one in given):
            raise FeedbackError(
                "the feedback store refused a value", subject="a number is none", advice="see the cause"
            )
        arguments = [self._tenant, *(storable(one) if isinstance(one, str) else one for one in given)]
        if text.startswith("SELECT") or " RETURNING " in text:
            found = _Rows(await self._connection.fetch(text, *arguments))
            self.changes += not text.startswith("SELECT")
            return found
        done = _Rows()
        status = await self._connection.execute(text, *arguments)
        done.rowcount = int(status.rsplit(" ", 1)[-1])
        self.changes += done.rowcount
        return done


class PostgresFeedbackStore(FeedbackStore):
    """What the memories of a workspace have learnt, in the tables of a server.

    A change is told to all who have it open; who misses that sees it by what `change_mark` returns.
    """

    def __init__(self, settings: PostgresSettings, services: FeedbackServices) -> None:
        self.remark = None
        self._clock = services.clock
        self._keep_traces = services.keep_traces
        self._kept: set[str] = set()
        self._workspace = settings.workspace or services.workspace_id
        address = address_of(settings, services.environ, services.backend_id)
        self._address = str(address)
        self._server = Server(settings, address, services.backend_id)
        self._tenant: int | None = None
        self._listener: Connection | None = None
        self._news = Event()
        self._opening = Lock()
        self._asking = Lock()
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="feedback-store", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what comes of something that runs on the loop of the connections.

        Raises:
            FeedbackError: the store is closed, or is while that goes on.
        """
        with self._asking:
            if self._is_closed:
                work.close()
                raise self._closed()
            coming = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return coming.result()
        except CancelledError:
            raise self._closed() from None

    def _closed(self) -> FeedbackError:
        return FeedbackError("the feedback store is closed", subject=self._address, advice="open it again")

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """Hold a connection that sees one moment."""
        with self._told(), self._within(is_writing=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """Hold a connection for one transaction; it is undone when the block raises. Writers take turns."""
        with self._told(), self._within(is_writing=True) as session:
            yield session

    def add(self, judgements: Iterable[Judgement], /) -> int:
        """Add judgements, all or none, and return how many were new; the log here keeps what they judge."""
        judgements = [*judgements]
        if new := {one.trace_id for one in judgements} - self._kept:
            try:
                self._keep_traces(new)
            except OSError as error:
                advice = "nothing was changed; fix the problem and try again"
                raise FeedbackError("no judgement was stored", subject=str(error), advice=advice) from error
            self._kept |= new
        return super().add(judgements)

    def change_mark(self) -> int:
        """Return a number that grows when anyone has changed something."""
        with self.reading() as session:
            return int(session.execute(REVISION)[0][0])

    def wait_for_change(self, seconds: float) -> None:
        """Return when somebody tells of a change, or after so many seconds."""
        with suppress(FeedbackError), self._told():
            self.wait_for(self._listen())
        if not self._is_closed:
            self._news.wait(seconds)
            self._news.clear()

    def copy_into(self, target: Path) -> None:
        """Write all that nothing else can bring back into a file, as a store of SQLite."""
        lines: list[bytes] = []
        self.export(lines.append, memory="")
        with replacing(target, survives="power cut") as scratch:
            scratch.unlink()
            with FeedbackStore.open(scratch, clock=self._clock) as copy:
                copy.import_(lines, memory="")

    def take_over(self, source: Path) -> None:
        """Make a copy the content of this store, all or nothing."""
        lines: list[bytes] = []
        with TemporaryDirectory() as folder:  # opening it may bring it up to date
            copied = Path(folder) / "feedback.sqlite"
            copied.write_bytes(source.read_bytes())
            with FeedbackStore.open(copied, clock=self._clock) as copy:
                copy.export(lines.append, memory="")
        with self.writing() as connection:
            for table in TABLES:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            import_lines(connection, lines, memory="")

    def import_(self, lines: Iterable[bytes], *, memory: str) -> Imported:
        """Add what an export holds and the store does not; the lines are read before the server waits."""
        return super().import_([*lines], memory=memory)

    def scrub(self) -> None:
        """Leave it to the server when the space of what was deleted is written over."""

    def close(self) -> None:
        """End the connections; a second time is fine."""
        with self._asking:
            if self._is_closed:
                return
            self._is_closed = True
            ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._news.set()
        with suppress(TimeoutError):
            ending.result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _renew_copy(self) -> None:
        """Keep no copies: the server is backed up as it is."""

    @contextmanager
    def _within(self, *, is_writing: bool) -> Iterator[_Session]:
        """Hold a transaction over the calls of a thread."""
        if self._tenant is None:
            with self._opening:
                self._tenant = self.wait_for(self._server.tenant("learn", self._workspace, is_new=True))
        assert self._tenant is not None
        opened = self._server.writing if is_writing else self._server.reading
        with _Blocking(self, opened("learn", tenant=self._tenant)) as connection:
            session = _Session(self, connection, self._tenant)
            if is_writing:
                session.execute(FIRST)
                session.execute(LOCK)
                session.changes = 0
            yield session
            if session.changes:
                revision = session.execute(CHANGED)[0][0]
                session.execute(TELL, (revision, KIND))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise errors of the server as those of the store; `remark` tells of them until they pass."""
        try:
            yield
        except BackendError as error:
            self.remark = (
                f"what is learnt can be neither read nor stored now, so the weights are unchanged: {error}"
            )
            advice = "nothing was changed; try again when the server answers"
            raise FeedbackError(str(error), subject=self._address, advice=advice) from error
        self.remark = None

    async def _listen(self) -> None:
        if self._listener is None or self._listener.is_closed():
            self._listener = await self._server.listen(self._heard)

    def _heard(self, *told: object) -> None:
        tenant, _, kind = str(told[-1]).split(":")
        if kind == KIND and tenant == str(self._tenant):
            self._news.set()

    async def _end(self) -> None:
        """End the connections, and what still waits for them."""
        await self._server.close()
        ending = {asyncio.current_task()}
        while others := asyncio.all_tasks() - ending:  # a cancelled statement begins another
            for one in others:
                one.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        if self._listener is not None:
            self._listener.terminate()
        await asyncio.sleep(0)  # what was cut off is closed with the next turn of the loop
