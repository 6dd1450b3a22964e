"""The feedback store on a server: judgements, weights and golden questions that a team shares.

The store blocks, like the one in a file, so its connections live on an event loop in a separate thread.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Lock, Thread
from typing import Any, TypeVar

from composable_memory.errors import BackendError
from composable_memory.interfaces import FeedbackServices
from composable_memory_adapters.postgres.server import Connection, Record, Server, address_of
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_adapters.postgres.writing import storable
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.store.entries import Entries, Entry
from composable_memory_feedback.store.export_import import Imported, import_lines
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_ops_logs.private_files import replacing

T = TypeVar("T")

KIND = "feedback"
"""The payload of a notification of changes."""

CLOSE_S = 10.0
"""Seconds that closing waits for calls in progress."""

REVISION = "SELECT coalesce((SELECT revision FROM feedback_revisions WHERE tenant = $1), 0)"
FIRST = "INSERT INTO feedback_revisions (tenant) VALUES ($1) ON CONFLICT DO NOTHING"
LOCK = "SELECT FROM feedback_revisions WHERE tenant = $1 FOR UPDATE"
CHANGED = "UPDATE feedback_revisions SET revision = revision + 1 WHERE tenant = $1 RETURNING revision"
TELL = "SELECT pg_notify('cmem', format('%s:%s:%s', $1::int, $2::bigint, $3::text))"

# Each statement names the tenant: row-level security would do, but then Citus asks all its servers.
COLUMNS = "kind, key, at, detail, id"
READ = f"""
SELECT {COLUMNS} FROM entries
WHERE tenant = $1 AND kind = $2 AND at >= $3 AND ($4 = '' OR starts_with(key, $4)) ORDER BY id DESC LIMIT $5
"""  # noqa: S608 - our own names
FIND = f"SELECT {COLUMNS} FROM entries WHERE tenant = $1 AND kind = $2 AND key = ANY ($3)"  # noqa: S608
INDEX = "SELECT id, key FROM entries WHERE tenant = $1 AND kind = $2 AND at >= $3 AND at < $4 ORDER BY id"
COUNT = "SELECT count(*), max(id) FROM entries WHERE tenant = $1 AND kind = $2"
PUT = """
INSERT INTO entries (tenant, kind, key, at, detail) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, kind, key) DO UPDATE SET at = excluded.at, detail = excluded.detail
WHERE (entries.at, entries.detail) IS DISTINCT FROM (excluded.at, excluded.detail)
"""
REMOVE = "DELETE FROM entries WHERE tenant = $1 AND id = ANY ($2)"
CLEAR = "DELETE FROM entries WHERE tenant = $1"


class PostgresEntries(Entries):
    """The entries of a tenant, within one transaction."""

    def __init__(self, store: "PostgresFeedbackStore", connection: Connection, tenant: int) -> None:
        self._store = store
        self._server = connection
        self._tenant = tenant
        self.has_changed = False

    def read(self, kind: str, *, since: str = "", prefix: str = "", newest: int | None = None) -> list[Entry]:
        """Return entries in the order in which they were stored."""
        return [Entry(*row) for row in self.fetch(READ, kind, since, prefix, newest)][::-1]

    def find(self, kind: str, keys: Sequence[str]) -> dict[str, Entry]:
        """Return the entries that exist for some keys."""
        return {row["key"]: Entry(*row) for row in self.fetch(FIND, kind, [*map(storable, keys)])}

    def index(self, kind: str, *, since: str = "", before: str = "~") -> list[tuple[int, str]]:
        """Return id and key of the entries between two times."""
        return [(row["id"], row["key"]) for row in self.fetch(INDEX, kind, since, before)]

    def count(self, kind: str) -> tuple[int, int | None]:
        """Return the number of entries, and the id of the latest."""
        count, latest = self.fetch(COUNT, kind)[0]
        return count, latest

    def put(self, entries: Iterable[Entry]) -> None:
        """Store entries, replacing those with the same keys."""
        for entry in entries:
            self._change(PUT, *(one and storable(one) for one in entry[:4]))

    def remove(self, ids: Iterable[int | None]) -> None:
        """Remove the entries with some ids."""
        self._change(REMOVE, [*ids])

    def clear(self) -> None:
        """Remove all entries."""
        self._change(CLEAR)

    def fetch(self, statement: str, *values: object) -> Sequence[Record]:
        """Return the rows of a statement about the tenant."""
        return self._store.wait_for(self._server.fetch(statement, self._tenant, *values))

    def _change(self, statement: str, *values: object) -> None:
        status = self._store.wait_for(self._server.execute(statement, self._tenant, *values))
        self.has_changed |= not status.endswith(" 0")


class PostgresFeedbackStore(FeedbackStore):
    """What the memories of a workspace have learnt, in the tables of a server.

    Whoever has it open is notified of changes; missed ones show in `change_mark`.
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
        """Return the result of a coroutine that runs on the loop of the connections.

        Raises:
            FeedbackError: the store is closed, or closes meanwhile.
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
    def reading(self) -> Iterator[PostgresEntries]:
        """Hold a connection with one consistent snapshot."""
        with self._told(), self._within(is_writing=False) as entries:
            yield entries

    @contextmanager
    def writing(self) -> Iterator[PostgresEntries]:
        """Hold a connection for one transaction, rolled back if the block raises. Writers take turns."""
        with self._told(), self._within(is_writing=True) as entries:
            yield entries

    def add(self, judgements: Iterable[Judgement], /) -> int:
        """Add judgements, all or none, and return how many were new; the local log keeps what they judge."""
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
        """Return a number that grows with every change, whoever makes it."""
        with self.reading() as entries:
            return int(entries.fetch(REVISION)[0][0])

    def wait_for_change(self, seconds: float) -> None:
        """Return when a change is notified, or after this many seconds."""
        with suppress(FeedbackError), self._told():
            self.wait_for(self._listen())
        if not self._is_closed:
            self._news.wait(seconds)
            self._news.clear()

    def copy_into(self, target: Path) -> None:
        """Write everything that nothing else can restore into a file, as a SQLite store."""
        lines: list[bytes] = []
        self.export(lines.append, memory="")
        with replacing(target, survives="power cut") as scratch:
            scratch.unlink()
            with FeedbackStore.open(scratch, clock=self._clock) as copy:
                copy.import_(lines, memory="")

    def take_over(self, source: Path) -> None:
        """Replace the content of this store by that of a copy, all or nothing."""
        lines: list[bytes] = []
        with TemporaryDirectory() as folder:  # opening it may migrate it
            copied = Path(folder) / "feedback.sqlite"
            copied.write_bytes(source.read_bytes())
            with FeedbackStore.open(copied, clock=self._clock) as copy:
                copy.export(lines.append, memory="")
        with self.writing() as entries:
            entries.clear()
            import_lines(entries, lines, memory="")

    def import_(self, lines: Iterable[bytes], *, memory: str) -> Imported:
        """Add what an export has and the store does not; the lines are read before a transaction begins."""
        return super().import_([*lines], memory=memory)

    def scrub(self) -> None:
        """Do nothing: the server decides when deleted space is overwritten."""

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
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
        """Do nothing: the server has its own backups."""

    @contextmanager
    def _within(self, *, is_writing: bool) -> Iterator[PostgresEntries]:
        """Hold a transaction across the calls of a thread."""
        if self._tenant is None:
            with self._opening:
                self._tenant = self.wait_for(self._server.tenant("learn", self._workspace, is_new=True))
        assert self._tenant is not None
        opened = self._server.writing if is_writing else self._server.reading
        with ExitStack() as stack:
            block = opened("learn", tenant=self._tenant)
            connection = self.wait_for(block.__aenter__())
            stack.push(lambda *raised: self.wait_for(block.__aexit__(*raised)))
            entries = PostgresEntries(self, connection, self._tenant)
            if is_writing:
                entries.fetch(FIRST)
                entries.fetch(LOCK)
            yield entries
            if entries.has_changed:
                entries.fetch(TELL, entries.fetch(CHANGED)[0][0], KIND)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Raise server errors as store errors; `remark` reports them until they pass."""
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
        """Close the connections, and cancel what still waits for them."""
        await self._server.close()
        ending = {asyncio.current_task()}
        while others := asyncio.all_tasks() - ending:  # a cancelled statement starts another
            for one in others:
                one.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        if self._listener is not None:
            self._listener.terminate()
        await asyncio.sleep(0)  # terminated connections close in the next iteration of the loop
