"""Two memories as one: while the primary fails, the fallback is asked, until the primary recovers."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import Self, TypeAlias, TypeVar

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
from composable_memory.runtime.failover_state import Failover, FailoverState
from composable_memory.supervision.breaker import Breaker
from composable_memory.supervision.deadline import CLOSE_TIMEOUT_S, BoundedCalls, Failure
from composable_memory.supervision.resource import LazyResource, Once
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
from composable_memory_ops_logs.quick_dataclass import dataclass

OPEN_TIMEOUT_S = 120.0
OPEN_GRACE_S = 0.1
REOPEN_AFTER = 2
"""After this many failures in a row a probe reopens the primary before searching it."""

PROBE = "memory"
"""What a probe searches for; any answer counts as success, even an empty one."""

OpenMemory: TypeAlias = Callable[[], AbstractAsyncContextManager[MemorySearchManager]]
"""Opens a memory; leaving the context manager closes it."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverMember:
    """One of the two memories, not open yet.

    `timeout_s` is the deadline of one call, including the time to open the memory if needed.
    """

    id: str
    open: OpenMemory
    timeout_s: float
    capabilities: frozenset[Capability]


class FallbackMemoryManager:
    """Asks `primary`, and while that fails `fallback`, which is opened when needed.

    After the first failure of any kind, calls go to the fallback at once. When the cool-down is over, the
    next call starts a probe in the background (half-open): the primary is opened if needed, and searched. So
    a primary that is installed later is found then. A disallowed path or an unsupported operation does not
    count as a failure.

    The breaker here is the primary's; the composite's breaker only counts what neither of the two could
    answer.

        memory = FallbackMemoryManager(
            FailoverMember(id="qmd", open=open_qmd, timeout_s=4.0, capabilities=QMD),
            FailoverMember(id="builtin", open=open_builtin, timeout_s=4.0, capabilities=BUILTIN),
        )
        async with memory:
            await memory.search("ferry")

    Whoever creates it must close it, even if `open` failed; `async with` does both. Use from one event loop
    only.
    """

    def __init__(
        self,
        primary: FailoverMember,
        fallback: FailoverMember,
        *,
        open_timeout_s: float = OPEN_TIMEOUT_S,
        ops_log: OpsLog | None = None,
        clock: Clock = utc_now,
        breaker: Breaker | None = None,
    ) -> None:
        """Combine the two; nothing is opened yet. `breaker` defaults to that of `FailoverState`."""
        self._primary = _Member(primary, open_timeout_s)
        self._fallback = _Member(fallback, open_timeout_s)
        self._capabilities = _combined(primary.capabilities, fallback.capabilities)
        self._open_timeout_s = open_timeout_s + OPEN_GRACE_S
        self._state = FailoverState(
            primary.id, fallback.id, clock=clock, ops_log=ops_log or OpsLog(None), breaker=breaker
        )
        self._calls = BoundedCalls()
        self._probe: asyncio.Task[None] | None = None
        self._release = Once(self._close_both, name=f"close {primary.id}")

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
        """Return what either can do; scores are calibrated only if both calibrate theirs."""
        return self._capabilities

    @property
    def primary(self) -> MemorySearchManager | None:
        """Return the primary if it is open, whether or not it is in use."""
        return self._primary.resource.value

    @property
    def fallback(self) -> MemorySearchManager | None:
        """Return the fallback if it is open."""
        return self._fallback.resource.value

    async def members(self) -> dict[str, MemorySearchManager]:
        """Return both by id, opening them if needed; one that cannot be opened is left out."""
        found = {}
        for member in (self._primary, self._fallback):
            await self._try_open(member)
            if (memory := member.resource.value) is not None:
                found[member.id] = memory
        return found

    async def open(self) -> None:
        """Open the primary, or the fallback if that fails; what cannot be opened now is tried again later.

        Raises:
            ConfigError: a setting of either is invalid.
        """
        self._require_open("open")
        failure = await self._try_open(self._primary)
        if failure is not None:
            self._state.note_failure(failure.reason, "open")
            await self._try_open(self._fallback)

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return the results of the primary, or else of the fallback.

        Raises:
            BackendUnavailable: both failed; the error names both.
        """
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search; an answer of the fallback says so in `degraded`, with the code `fallback`.

        Each of its results does too, as `answered_by` in the metadata.
        """
        found, failover = await self._ask("search", lambda member: member.answer(query, options))
        if failover is None:
            return found
        reason = self._state.describe(failover)
        degradation = Degradation(backend_id=self._primary.id, code="fallback", reason=reason)
        engines = {f"{self._fallback.id} {leg}": engine for leg, engine in found.engines.items()}
        by = {"answered_by": self._fallback.id}
        results = tuple(replace(one, metadata={**one.metadata, **by}) for one in found.results)
        degraded = (degradation, *found.degraded)
        return replace(found, results=results, degraded=degraded, engines=engines)

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Read from the primary, or else from the fallback.

        Raises:
            MemoryPathError: the path may not be read.
            BackendUnavailable: both failed; or the primary failed and the path belongs to it alone.
            UnsupportedOperation: neither reads files.
        """
        self._require("read_file", Capability.READ_FILE)
        try:
            part, _ = await self._ask("read_file", lambda one: one.read_file(rel_path, from_line, lines))
        except MemoryPathError as error:
            if (failover := self._state.active) and rel_path.startswith(f"{self._primary.id}/"):
                raise self._state.error(failover, "read_file") from error
            raise
        return part

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Sync the index of the primary, or else that of the fallback, which `problems` then says.

        A sync has no deadline here: it takes as long as the memory allows itself.

        Raises:
            BackendUnavailable: both failed.
            UnsupportedOperation: neither keeps an index.
        """
        self._require("sync", Capability.SYNC)
        report, failover = await self._ask(
            "sync", lambda member: member.sync(reason, force, progress), has_deadline=False
        )
        if failover is None:
            return report
        return replace(report, problems=(self._state.describe(failover), *report.problems))

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Return whether the active one can embed."""
        return (await self._ask("probe", _Member.probe_embedding))[0]

    async def probe_vector_availability(self) -> bool:
        """Return whether the active one can search vectors."""
        return (await self._ask("probe", _Member.probe_vectors))[0]

    def status(self) -> MemoryProviderStatus:
        """Return the status of the active one; `custom` says under `fallback` which one and why."""
        failover = self._state.latest
        own = (self._fallback if failover else self._primary).status()
        if failover is not None:
            own = replace(own, fallback=FallbackStatus(from_=self._primary.id, reason=failover.reason))
        return replace(own, custom={**own.custom, "fallback": self._state.as_json()})

    async def close(self) -> None:
        """Close both, whatever state they are in; calling it again does nothing.

        Cancelling a call stops the waiting, not the closing.

        Raises:
            BackendError: one of them failed to close.
        """
        await self._release()

    # --- asking one or the other ----------------------------------------------------------------------------

    async def _ask(
        self,
        operation: str,
        call: "Callable[[_Member], Coroutine[object, object, R]]",
        *,
        has_deadline: bool = True,
    ) -> tuple[R, Failover | None]:
        """Call the primary if it is active; if it is not, or fails, call the fallback and return why."""
        self._require_open(operation)
        failover = self._failover()
        if failover is None:
            first = await self._run(self._primary, operation, call, has_deadline=has_deadline)
            if not isinstance(first, Failure):
                self._state.note_success()
                return first, None
            if isinstance(first.error, MemoryPathError | UnsupportedOperation):
                self._state.note_success()
                raise first.error
            failover = self._state.note_failure(first.reason, operation)
        second = await self._run(self._fallback, operation, call, has_deadline=has_deadline)
        if not isinstance(second, Failure):
            return second, failover
        if isinstance(second.error, MemoryPathError):
            raise second.error
        raise self._state.error(failover, operation, second=second.reason) from second.error

    async def _run(
        self,
        member: "_Member",
        operation: str,
        call: "Callable[[_Member], Coroutine[object, object, R]]",
        *,
        has_deadline: bool = True,
        limit_s: float | None = None,
    ) -> R | Failure:
        self._require_open(operation)
        limit_s = limit_s or (member.timeout_s if has_deadline else None)
        outcome = await self._calls.run(member.id, operation, call(member), limit_s)
        if isinstance(outcome, Failure):
            self._require_open(operation)  # or being closed would count as a failure
        return outcome

    async def _try_open(self, member: "_Member") -> Failure | None:
        outcome = await self._run(member, "open", _Member.memory, limit_s=self._open_timeout_s)
        if not isinstance(outcome, Failure):
            return None
        if isinstance(outcome.error, ConfigError):
            raise outcome.error
        return outcome

    # --- failing back ---------------------------------------------------------------------------------------

    def _failover(self) -> Failover | None:
        """Return the failover if the primary must not be asked; start a probe if one is due.

        No call waits for a probe: that would slow down the first query after every cool-down.
        """
        if self._probe is None and self._state.active is not None and self._state.begin_probe():
            # In its own context: what a probe opens outlives the request that started it.
            self._probe = asyncio.create_task(self._probe_primary(), context=Context())
        return self._state.active

    async def _probe_primary(self) -> None:
        try:
            with trace():
                failure = await self._run_probe()
                if failure is None:
                    self._state.note_success(in_probe=True)
                else:
                    self._state.note_failure(failure.reason, "try", in_probe=True)
        finally:
            self._probe = None
            self._state.end_probe()

    async def _run_probe(self) -> Failure | None:
        """Open the primary if it is closed, or reopen it if it keeps failing, and search it."""
        member = self._primary
        if self._state.failures >= REOPEN_AFTER:
            await self._calls.run(member.id, "close", member.resource.close(), CLOSE_TIMEOUT_S)
        opened = await self._calls.run(member.id, "open", member.memory(), self._open_timeout_s)
        if isinstance(opened, Failure):
            return opened
        search = member.answer(PROBE, SearchOptions(max_results=1))
        found = await self._calls.run(member.id, "search", search, member.timeout_s)
        return found if isinstance(found, Failure) else None

    async def _close_both(self) -> None:
        if self._probe is not None:
            self._probe.cancel()
        await self._calls.cancel()
        close = partial(self._calls.run, operation="close", limit_s=CLOSE_TIMEOUT_S)
        members = self._primary, self._fallback
        outcomes = await asyncio.gather(*(close(one.id, call=one.resource.close()) for one in members))
        failures = [outcome.reason for outcome in outcomes if isinstance(outcome, Failure)]
        if failures:
            raise BackendError(self._primary.id, "close", "; ".join(failures))

    def _require(self, operation: str, capability: Capability) -> None:
        self._require_open(operation)
        if capability not in self._capabilities:
            raise UnsupportedOperation(self._primary.id, operation)

    def _require_open(self, operation: str) -> None:
        if self._release.has_begun:
            problem, fix = "it is closed", "open it again"
            raise BackendUnavailable(self._primary.id, problem, fix=fix, operation=operation)


class _Member:
    """One of the two memories: its id, how to open it, and the calls it supports."""

    def __init__(self, member: FailoverMember, open_timeout_s: float) -> None:
        self.id = member.id
        self.timeout_s = member.timeout_s
        self.resource = LazyResource(member.open, limit_s=open_timeout_s)

    async def memory(self) -> MemorySearchManager:
        return await self.resource.get()

    async def answer(self, query: str, options: SearchOptions | None) -> SearchAnswer:
        """Ask for an answer, or for bare results if that is all the memory supports."""
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
        memory = self.resource.value
        unknown = MemoryProviderStatus(backend=self.id, provider="none")
        try:
            return memory.status() if memory is not None else unknown
        except BackendError:  # someone else closed it
            return unknown


def _combined(first: frozenset[Capability], second: frozenset[Capability]) -> frozenset[Capability]:
    either = (first | second) & {Capability.READ_FILE, Capability.SYNC}
    both = first & second & {Capability.CALIBRATED}
    return either | both | {Capability.ANSWER}
