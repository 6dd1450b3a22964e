"""A memory with a stand-in: asks the primary, while it fails the stand-in, and notices when it is back."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import Context
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Self, TypeAlias, TypeVar

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendUnavailable,
    ConfigError,
    MemoryPathError,
    UnsupportedOperation,
)
from composable_memory.interfaces import (
    Capability,
    Clock,
    MemorySearchManager,
    ProgressCallback,
    SupportsAnswer,
    SupportsSync,
)
from composable_memory.runtime.failover_state import Outage, Outages
from composable_memory.supervision.breaker import Breaker
from composable_memory.supervision.deadline import BoundedCalls, Failure
from composable_memory.supervision.resource import LazyResource
from composable_memory.types import (
    Degradation,
    FallbackStatus,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_ops_logs import OpsLog, trace, utc_now

__all__ = ["FallbackMemoryManager", "OpenMemory"]

OPEN_TIMEOUT_S = 120.0
OPEN_GRACE_S = 0.1
CLOSE_TIMEOUT_S = 30.0

PROBE = "memory"
"""What a trial searches for: any answer, also an empty one, is good."""

OpenMemory: TypeAlias = Callable[[], AbstractAsyncContextManager[MemorySearchManager]]
"""Opens a memory; leaving the context manager closes it."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply(Generic[R]):
    """What came of a call; with an `outage` it came from the stand-in."""

    value: R
    outage: Outage | None = None


class FallbackMemoryManager:
    """Asks the memory `primary_id`, and while that fails `fallback_id`, which is opened when it is needed.

    After the first failure of any kind calls go to the stand-in at once. When the primary's rest is over, the
    next call begins a trial in the background: the primary is opened if it is not, and searched. So what was
    not installed at the start is found once it is. After `reopen_after` failures in a row it is closed and
    opened anew. A path that is not allowed, or an operation that is not offered, is no failure.

    Without a stand-in errors reach the caller; while the primary rests calls fail at once, and those that
    find a trial under way wait for it.

    Who makes it closes it, whatever came of `open`; `async with` does both. Used from one event loop only.
    """

    def __init__(
        self,
        primary_id: str,
        open_primary: OpenMemory,
        fallback_id: str | None = None,
        open_fallback: OpenMemory | None = None,
        *,
        primary_timeout_s: float,
        fallback_timeout_s: float,
        primary_capabilities: frozenset[Capability],
        fallback_capabilities: frozenset[Capability] = frozenset(),
        open_timeout_s: float = OPEN_TIMEOUT_S,
        sync_timeout_s: float | None = None,
        ops_log: OpsLog | None = None,
        clock: Clock = utc_now,
        breaker: Breaker | None = None,
        reopen_after: int = 2,
    ) -> None:
        """Put the two together; nothing is opened yet, and without `open_fallback` there is no stand-in.

        `primary_timeout_s` and `fallback_timeout_s` are the deadlines of one call to either, including the
        wait for one that is not open yet. `open_timeout_s` is the limit of opening, `sync_timeout_s` that of
        a sync, which otherwise takes as long as the memory allows itself. `breaker` says when and for how
        long the primary rests: by default from the first failure on, for 5 s, doubling to 5 minutes.
        """
        self._primary = _Side(primary_id, LazyResource(open_primary, limit_s=open_timeout_s))
        self._fallback: _Side | None = None
        if open_fallback is not None:
            self._fallback = _Side(
                fallback_id or "fallback", LazyResource(open_fallback, limit_s=open_timeout_s)
            )
        self._capabilities = _joined(
            primary_capabilities, fallback_capabilities if self._fallback else primary_capabilities
        )
        self._primary_timeout_s = primary_timeout_s
        self._fallback_timeout_s = fallback_timeout_s
        self._open_timeout_s = open_timeout_s + OPEN_GRACE_S
        self._sync_timeout_s = sync_timeout_s
        self._reopen_after = reopen_after
        self._outages = Outages(
            primary_id,
            self._fallback.id if self._fallback else None,
            clock=clock,
            ops_log=ops_log or OpsLog(None),
            breaker=breaker,
        )
        self._calls = BoundedCalls()
        self._trial: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.close)
            await self.open()
            stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what either can do; scores are only calibrated where both calibrate theirs."""
        return self._capabilities

    @property
    def primary(self) -> MemorySearchManager | None:
        """Return the primary if it is open, be it in use or not."""
        return self._primary.door.value

    @property
    def fallback(self) -> MemorySearchManager | None:
        """Return the stand-in if there is one and it is open."""
        return self._fallback.door.value if self._fallback else None

    async def open(self) -> None:
        """Open the primary, and the stand-in if that fails; what cannot be opened now is tried again later.

        Raises:
            ConfigError: a setting of either cannot be used.
        """
        self._require_open("open")
        failure = await self._opened(self._primary)
        if failure is None:
            return
        self._outages.note_failure(failure.reason, "open")
        if self._fallback is not None:
            await self._opened(self._fallback)

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return what the primary finds, or the stand-in.

        Raises:
            BackendUnavailable: both failed, which names both, or the primary rests and has no stand-in.
            BackendError: the primary failed and has no stand-in.
        """
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search; an answer of the stand-in says so in `degraded`, under the code `fallback`.

        Each of its results does as well, as `answered_by` in the metadata.
        """
        reply = await self._ask("search", lambda side: side.answer(query, options))
        if reply.outage is None or self._fallback is None:
            return reply.value
        reason = self._outages.told(reply.outage)
        told = Degradation(backend_id=self._primary.id, code="fallback", reason=reason)
        engines = {f"{self._fallback.id} {leg}": engine for leg, engine in reply.value.engines.items()}
        by = {"answered_by": self._fallback.id}
        results = tuple(replace(one, metadata={**one.metadata, **by}) for one in reply.value.results)
        degraded = (told, *reply.value.degraded)
        return replace(reply.value, results=results, degraded=degraded, engines=engines)

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Read from the primary, or from the stand-in.

        Raises:
            MemoryPathError: the path is none that may be read.
            BackendUnavailable: both failed; or only the primary, below whose id the path is.
            UnsupportedOperation: neither reads files.
        """
        self._require("read_file", Capability.READ_FILE)
        try:
            reply = await self._ask("read_file", lambda side: side.read_file(rel_path, from_line, lines))
        except MemoryPathError as error:
            if (rest := self._outages.rest) and rel_path.startswith(f"{self._primary.id}/"):
                raise self._outages.error(rest, "read_file") from error
            raise
        return reply.value

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Bring the index of the primary up to date, or that of the stand-in, which `problems` then says.

        Raises:
            BackendUnavailable: both failed.
            UnsupportedOperation: neither keeps an index.
        """
        self._require("sync", Capability.SYNC)
        limits_s = self._sync_timeout_s, self._sync_timeout_s
        reply = await self._ask("sync", lambda side: side.sync(reason, force, progress), limits_s)
        if reply.outage is None:
            return reply.value
        return replace(reply.value, problems=(self._outages.told(reply.outage), *reply.value.problems))

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Say whether the one that serves can embed."""
        return (await self._ask("probe", _Side.probe_embedding)).value

    async def probe_vector_availability(self) -> bool:
        """Say whether the one that serves can search vectors."""
        return (await self._ask("probe", _Side.probe_vectors)).value

    def status(self) -> MemoryProviderStatus:
        """Return the status of the one that serves; `custom` says under `fallback` who that is and why."""
        outage = self._outages.latest
        replaced = self._fallback if outage else None
        own = (replaced or self._primary).status()
        if outage is not None and replaced is not None:
            own = replace(own, fallback=FallbackStatus(from_=self._primary.id, reason=outage.reason))
        return replace(own, custom={**own.custom, "fallback": self._outages.as_json()})

    async def close(self) -> None:
        """Close both, in whatever state they are; calling it again does nothing.

        A call that is cancelled waits no longer, but all of that is done.

        Raises:
            BackendError: one of them could not be closed.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._let_go(), name=f"close {self._primary.id}")
        await asyncio.shield(self._closing)

    # --- asking one or the other ----------------------------------------------------------------------------

    async def _ask(
        self,
        operation: str,
        call: "Callable[[_Side], Coroutine[object, object, R]]",
        limits_s: tuple[float | None, float | None] | None = None,
    ) -> _Reply[R]:
        """Put a call to the primary if it serves, else or if it fails to the stand-in."""
        self._require_open(operation)
        first_s, second_s = limits_s or (self._primary_timeout_s, self._fallback_timeout_s)
        outage = await self._rest()
        if outage is None:
            first = await self._run(self._primary, operation, call, first_s)
            if not isinstance(first, Failure):
                self._outages.note_success()
                return _Reply(value=first)
            if isinstance(first.error, MemoryPathError | UnsupportedOperation):
                self._outages.note_success()
                raise first.error
            outage = self._outages.note_failure(first.reason, operation)
            if self._fallback is None:
                raise first.error
        if self._fallback is None:
            raise self._outages.error(outage, operation)
        second = await self._run(self._fallback, operation, call, second_s)
        if not isinstance(second, Failure):
            return _Reply(value=second, outage=outage)
        if isinstance(second.error, MemoryPathError):
            raise second.error
        raise self._outages.error(outage, operation, second=second.reason) from second.error

    async def _run(
        self,
        side: "_Side",
        operation: str,
        call: "Callable[[_Side], Coroutine[object, object, R]]",
        limit_s: float | None,
    ) -> R | Failure:
        self._require_open(operation)
        outcome = await self._calls.run(side.id, operation, call(side), limit_s)
        if isinstance(outcome, Failure):
            self._require_open(operation)  # or being closed would count as a failure
        return outcome

    async def _opened(self, side: "_Side") -> Failure | None:
        outcome = await self._run(side, "open", _Side.memory, self._open_timeout_s)
        if not isinstance(outcome, Failure):
            return None
        if isinstance(outcome.error, ConfigError):
            raise outcome.error
        return outcome

    # --- coming back ----------------------------------------------------------------------------------------

    async def _rest(self) -> Outage | None:
        """Return the outage if the primary rests; begin the trial that is due.

        Nobody waits for a trial but those who would have no answer otherwise.
        """
        rest = self._outages.rest
        if rest is None:
            return None
        if self._trial is None and self._outages.begin_trial():
            # In a context of its own: what a trial opens outlives the request that began it.
            self._trial = asyncio.create_task(self._try_primary(), context=Context())
        if self._fallback is None and self._trial is not None:
            await asyncio.wait([self._trial], timeout=self._primary_timeout_s)
            return self._outages.rest
        return rest

    async def _try_primary(self) -> None:
        try:
            with trace():
                failure = await self._tried()
                if failure is None:
                    self._outages.note_success(in_trial=True)
                else:
                    self._outages.note_failure(failure.reason, "try", in_trial=True)
        finally:
            self._trial = None
            self._outages.end_trial()

    async def _tried(self) -> Failure | None:
        """Open the primary if it is not, anew if it keeps failing, and search it."""
        side = self._primary
        if self._outages.failures >= self._reopen_after:
            await self._calls.run(side.id, "close", side.door.close(), CLOSE_TIMEOUT_S)
        opened = await self._calls.run(side.id, "open", side.memory(), self._open_timeout_s)
        if isinstance(opened, Failure):
            return opened
        probe = side.answer(PROBE, SearchOptions(max_results=1))
        found = await self._calls.run(side.id, "search", probe, self._primary_timeout_s)
        return found if isinstance(found, Failure) else None

    async def _let_go(self) -> None:
        if self._trial is not None:
            self._trial.cancel()
        await self._calls.cancel()
        close = partial(self._calls.run, operation="close", limit_s=CLOSE_TIMEOUT_S)
        sides = [side for side in (self._primary, self._fallback) if side is not None]
        outcomes = await asyncio.gather(*(close(side.id, call=side.door.close()) for side in sides))
        failures = [outcome.reason for outcome in outcomes if isinstance(outcome, Failure)]
        if failures:
            raise BackendError(self._primary.id, "close", "; ".join(failures))

    def _require(self, operation: str, capability: Capability) -> None:
        self._require_open(operation)
        if capability not in self._capabilities:
            raise UnsupportedOperation(self._primary.id, operation)

    def _require_open(self, operation: str) -> None:
        if self._closing is not None:
            problem, fix = "it is closed", "open it again"
            raise BackendUnavailable(self._primary.id, problem, fix=fix, operation=operation)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two memories: who it is, the way to it, and what may be asked of it."""

    id: str
    door: LazyResource[MemorySearchManager]

    async def memory(self) -> MemorySearchManager:
        return await self.door.get()

    async def answer(self, query: str, options: SearchOptions | None) -> SearchAnswer:
        """Ask for an answer, or for bare results where that is all the memory knows."""
        memory = await self.memory()
        if isinstance(memory, SupportsAnswer):
            answer: object = await memory.answer(query, options)
            if isinstance(answer, SearchAnswer):
                return answer
            raise BackendGarbled(self.id, "search", excerpt=repr(answer), expected="a SearchAnswer")
        results: object = await memory.search(query, options)
        if isinstance(results, list | tuple):
            return SearchAnswer(results=tuple(results), engines={"search": self.id})
        raise BackendGarbled(self.id, "search", excerpt=repr(results), expected="a list of results")

    async def read_file(self, rel_path: str, from_line: int | None, lines: int | None) -> MemoryFileSlice:
        return await (await self.memory()).read_file(rel_path, from_line=from_line, lines=lines)

    async def sync(self, reason: str, force: bool, progress: ProgressCallback | None) -> SyncReport:
        memory = await self.memory()
        if not isinstance(memory, SupportsSync):
            raise UnsupportedOperation(self.id, "sync")
        return await memory.sync(reason=reason, force=force, progress=progress)

    async def probe_embedding(self) -> MemoryEmbeddingProbeResult:
        return await (await self.memory()).probe_embedding_availability()

    async def probe_vectors(self) -> bool:
        return await (await self.memory()).probe_vector_availability()

    def status(self) -> MemoryProviderStatus:
        unknown = MemoryProviderStatus(backend=self.id, provider="none")
        try:
            return self.door.value.status() if self.door.value is not None else unknown
        except BackendError:  # it was closed by somebody else
            return unknown


def _joined(first: frozenset[Capability], second: frozenset[Capability]) -> frozenset[Capability]:
    either = (first | second) & {Capability.READ_FILE, Capability.SYNC}
    both = first & second & {Capability.CALIBRATED}
    return either | both | {Capability.ANSWER}
