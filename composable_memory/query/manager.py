"""The composite memory: routes a query, asks every backend under a deadline, merges, and logs each step."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import or_
from time import perf_counter
from typing import Self

from composable_memory.errors import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    ComposableMemoryError,
    ConfigError,
    InvalidArgument,
    MemoryPathError,
    UnsupportedOperation,
    require,
    require_all,
    require_text,
)
from composable_memory.forget.tombstones import Forgotten
from composable_memory.interfaces import (
    CAPABILITY_PROTOCOLS,
    Capability,
    Clock,
    MemorySearchManager,
    ProgressCallback,
    SupportsSync,
)
from composable_memory.paths import FOREIGN
from composable_memory.query.context_pack import DEFAULT_MAX_CHARS, PackBudget, pack_results
from composable_memory.query.fan_out import FanOut
from composable_memory.query.filters import combine, read_filters
from composable_memory.query.query_log import QueryLogger, log_context_pack
from composable_memory.query.ranking import (
    CalibrationRule,
    LiveWeights,
    MergePolicy,
    QueryContext,
    depth_for,
    is_weak,
    rank_active,
)
from composable_memory.query.routing import (
    BackendHandle,
    ComposableBackendEntry,
    IntentParser,
    read_intent,
    route,
)
from composable_memory.supervision.breaker import Breaker
from composable_memory.supervision.deadline import CLOSE_TIMEOUT_S, BoundedCalls, Failure
from composable_memory.time.local_time import LOCAL_TIME
from composable_memory.types import (
    BackendAnswer,
    ContextPack,
    Degradation,
    DegradationCode,
    JsonValue,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    MemorySource,
    QueryIntent,
    QueryRequest,
    QueryResponse,
    SearchAnswer,
    SearchFilters,
    SearchOptions,
    SyncReport,
)
from composable_memory_feedback.weights import IntentKind, WeightTable, intent_kind
from composable_memory_ops_logs import OpsLog, trace, utc_now
from composable_memory_ops_logs.tracing import new_id


class ComposableMemoryManager:
    """Asks several memories at once and merges their answers.

    It is itself a `MemorySearchManager` and a `QueryOrchestrator`, and declares its capabilities, so
    composites nest: an inner one logs under the trace of the outer one.
    """

    def __init__(
        self,
        backends: Sequence[ComposableBackendEntry],
        *,
        primary: str | None = None,
        intent_parser: IntentParser | None = None,
        ops_log: OpsLog | None = None,
        policy: MergePolicy | None = None,
        weights: WeightTable | LiveWeights | None = None,
        defaults: SearchOptions | None = None,
        unavailable: Sequence[Degradation] = (),
        id: str = "composite",  # noqa: A002 - the name that BackendSpec and the log use
        make_breaker: Callable[[], Breaker] = Breaker,
        memory_id: str | None = None,
        clock: Clock = utc_now,
        now: datetime | None = None,
        forgotten: Forgotten | None = None,
    ) -> None:
        """Compose `backends`.

        `primary` reads files and provides the status; the first backend by default. `weights` replaces the
        weights of the entries; what is put into a `LiveWeights` counts from the next query on. `unavailable`
        lists memories that should be here and are not; every answer reports them. `memory_id` is written to
        each query in the log, for when several memories share one. `now` is the default time of requests;
        without it, relative times are counted from `clock`. What is `forgotten` is removed from every answer,
        whatever a backend returns.

        Raises:
            ConfigError: two backends share an id, or `primary` is not one of them.
        """
        self._handles = {entry.id: BackendHandle.take(entry, make_breaker()) for entry in backends}
        if len(self._handles) < len(backends):
            raise ConfigError("backends", f"ids must differ: {', '.join(entry.id for entry in backends)}")
        if primary is not None and primary not in self._handles:
            raise ConfigError(
                "backend", f"{primary!r} is not one of {', '.join(self._handles) or 'no backends'}"
            )
        self.id = id
        self._primary = primary or next(iter(self._handles), None)
        self._intent_parser = intent_parser
        self._ops_log = ops_log or OpsLog(None)
        self._policy = policy or MergePolicy()
        own = weights or {entry.id: entry.weight for entry in backends}
        self._weights = own if isinstance(own, LiveWeights) else LiveWeights(own)
        self._rules = {
            id_: CalibrationRule(
                method=handle.entry.calibration, is_absolute=Capability.CALIBRATED in handle.capabilities
            )
            for id_, handle in self._handles.items()
        }
        self._memory_id = memory_id
        self._clock = clock
        self._now = now
        self._defaults = defaults or SearchOptions()
        self._unavailable = tuple(unavailable)
        self._fan_out = FanOut(forgotten)
        self._forgotten = forgotten
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities: calibrated scores, and whatever any backend can do."""
        own = frozenset({Capability.ANSWER, Capability.CALIBRATED})
        return own.union(*(handle.capabilities for handle in self._handles.values()))

    @property
    def backend_ids(self) -> tuple[str, ...]:
        """Return the ids of the backends, in their order."""
        return tuple(self._handles)

    def backends_with(self, capability: Capability) -> dict[str, MemorySearchManager]:
        """Return the backends that have a capability, by id, the primary first."""
        promise = CAPABILITY_PROTOCOLS.get(capability, object)
        able = {
            backend_id: handle.entry.manager
            for backend_id, handle in self._handles.items()
            if capability in handle.capabilities and isinstance(handle.entry.manager, promise)
        }
        return dict(sorted(able.items(), key=lambda one: one[0] != self._primary))

    def logging_to(self, ops_log: OpsLog) -> "ComposableMemoryManager":
        """Return a composite with the same backends, weights and breakers that logs to `ops_log`."""
        other = copy(self)
        other._ops_log = ops_log  # noqa: SLF001 - of our own class
        return other

    @property
    def unavailable(self) -> tuple[Degradation, ...]:
        """Return the memories that should be here and are not."""
        return self._unavailable

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        """Return the merged results, best first.

        Raises:
            BackendUnavailable: every backend that was asked failed, or the composite is closed.
        """
        return list((await self.answer(query, options)).results)

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search as one backend among others: returns an answer, or raises if every backend failed."""
        require_text("query", query)
        options = options or self._defaults
        if not (query.strip() or options.filters):
            return SearchAnswer(results=())
        response = await self.query(QueryRequest(query=query, options=options))
        asked = [answer for answer in response.answers if answer.skipped is None]
        if asked and all(answer.error is not None for answer in asked):
            raise BackendUnavailable(
                self.id,
                "every backend failed: " + "; ".join(str(answer.error) for answer in asked),
                fix="run `cmem status --deep`",
                operation="search",
            ) from asked[0].error
        engines = {one.backend_id: _engine_names(one) for one in asked if one.error is None}
        return SearchAnswer(
            results=response.results, degraded=response.degraded, engines=engines, is_filtered=True
        )

    def asked_at(self) -> datetime:
        """Return the default time of a request, in the caller's time zone."""
        return self._now or self._clock().astimezone(LOCAL_TIME)

    async def query(
        self,
        request: QueryRequest | str,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        session_key: str | None = None,
        backends: Sequence[str] | None = None,
        filters: SearchFilters | None = None,
        now: datetime | None = None,
    ) -> QueryResponse:
        """Ask, and return the results with everything that explains them.

        A failing backend is listed in `degraded`, never raised. `request` may be just the query's text; the
        keyword arguments override the request and the defaults, and `filters` are added to those of the
        request.

        Raises:
            ConfigError: a named backend does not exist.
            InvalidArgument: an argument has the wrong type, or the query asks for nothing.
            BackendUnavailable: the composite is closed, or in use on another event loop.
        """
        self.require_usable("search")
        request = self._request(request, max_results, min_score, session_key, backends, filters, now)
        if not (request.query.strip() or request.options.filters):
            raise InvalidArgument("query", "words to look for, or a filter", request.query)
        is_cut = min_score is not None or request.options.min_score > 0.0
        self._check_names(request.backends)
        started = perf_counter()
        with trace(session_key=request.options.session_key) as trace_id:
            return await self._ask_all(request, trace_id, started, is_cut=is_cut)

    async def context_pack(
        self,
        request: QueryRequest | str,
        *,
        max_chars: int = DEFAULT_MAX_CHARS,
        max_tokens: int | None = None,
    ) -> ContextPack:
        """Return the best results as one text of at most `max_chars` characters, or else `max_tokens` tokens.

        A bare text is asked to the full depth, since the budget is what limits a pack.

        Raises:
            BackendUnavailable: the composite is closed.
            ValueError: the budget is less than 1.
        """
        budget = PackBudget.of(max_chars, max_tokens)
        with trace():
            deep = max(self._policy.depth, self._defaults.max_results) if isinstance(request, str) else None
            return self.pack(await self.query(request, max_results=deep), budget)

    def pack(self, response: QueryResponse, budget: PackBudget) -> ContextPack:
        """Return the results of a response as one text."""
        with trace(response.trace_id):
            pack, sources = pack_results(response.results, budget)
            log_context_pack(self._ops_log, pack, len(sources), budget)
        return ContextPack(pack=pack, sources=sources, trace_id=response.trace_id)

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Read from the primary; if it does not have the file, try the other backends that read files.

        A file that no backend has is returned with empty text.

        Raises:
            MemoryPathError: no backend may read this path.
            BackendError: a backend that might have it is unavailable.
            UnsupportedOperation: no backend reads files.
        """
        self.require_usable("read a file")
        require_text("rel_path", rel_path)
        require("from_line", from_line, int | None, "a whole number")
        require("lines", lines, int | None, "a whole number")
        refusals: list[MemoryPathError] = []
        missing: MemoryFileSlice | None = None
        for handle in self._readers(rel_path):
            try:
                found = await handle.entry.manager.read_file(rel_path, from_line=from_line, lines=lines)
            except UnsupportedOperation:
                continue
            except MemoryPathError as error:
                refusals.append(error)
            else:
                if found.text:
                    return await self._with_forgotten_hidden(found)
                missing = missing or found
        if missing is None:
            raise _joined_refusal(refusals) if refusals else self._unsupported("read a file")
        return missing

    async def _read_forgotten(self) -> None:
        """Refresh what was forgotten, also by other processes."""
        if self._forgotten is not None:
            await asyncio.to_thread(self._forgotten.now)

    async def _with_forgotten_hidden(self, found: MemoryFileSlice) -> MemoryFileSlice:
        if self._forgotten is None:
            return found
        source: MemorySource = "sessions" if found.path.endswith(".jsonl") else "memory"
        return replace(found, text=await asyncio.to_thread(self._forgotten.hide, found.text, source))

    def status(self) -> MemoryProviderStatus:
        """Return the primary's status, with the composite's own under `custom`."""
        if self._primary is None:
            return MemoryProviderStatus(backend=self.id, provider="none", custom=self._custom_status())
        own = _status_of(self._primary, self._handles[self._primary].entry.manager)
        return replace(own, custom={**own.custom, **self._custom_status()})

    def backend_statuses(self) -> dict[str, MemoryProviderStatus]:
        """Return the status of every backend."""
        return {name: _status_of(name, handle.entry.manager) for name, handle in self._handles.items()}

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Sync every backend that keeps an index, concurrently.

        One that fails is named in `problems`.

        Raises:
            BackendError: every one of them failed or is unavailable, or the list of forgotten text cannot be
            read. UnsupportedOperation: no backend keeps an index.
        """
        self.require_usable("sync")
        require_text("reason", reason)
        if progress is not None and not callable(progress):
            raise InvalidArgument("progress", "a function", progress)
        syncing = [
            (backend_id, handle.entry.manager)
            for backend_id, handle in self._handles.items()
            if isinstance(handle.entry.manager, SupportsSync)
        ]
        if not syncing:
            raise self._unsupported("sync")
        await self._read_forgotten()
        with trace():
            outcomes = await asyncio.gather(
                *(one.sync(reason=reason, force=force, progress=progress) for _, one in syncing),
                return_exceptions=True,
            )
        for number, ((backend_id, _), outcome) in enumerate(zip(syncing, outcomes, strict=True)):
            if isinstance(outcome, SyncReport):
                self._handles[backend_id].breaker.record_success()  # what was broken may be repaired now
            elif not isinstance(outcome, BaseException):
                problem = f"it returned a {type(outcome).__name__}, not a SyncReport"
                outcomes[number] = BackendError(backend_id, "sync", problem)
        return _joined_report(reason, [backend_id for backend_id, _ in syncing], outcomes)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Return whether any backend can embed."""
        self.require_usable("probe")
        probes = await asyncio.gather(
            *(handle.entry.manager.probe_embedding_availability() for handle in self._handles.values()),
            return_exceptions=True,
        )
        if any(isinstance(probe, MemoryEmbeddingProbeResult) and probe.ok for probe in probes):
            return MemoryEmbeddingProbeResult(ok=True)
        reasons = [getattr(probe, "error", None) or str(probe) for probe in probes]
        return MemoryEmbeddingProbeResult(ok=False, error="; ".join(reasons) or "there are no backends")

    async def probe_vector_availability(self) -> bool:
        """Return whether any backend can search vectors."""
        self.require_usable("probe")
        probes = await asyncio.gather(
            *(handle.entry.manager.probe_vector_availability() for handle in self._handles.values()),
            return_exceptions=True,
        )
        return any(probe is True for probe in probes)

    async def close(self) -> None:
        """Close every backend, even if one of them fails to close; calling it again does nothing.

        Raises:
            BackendError: a backend failed to close, or not in time.
        """
        if self._closed:
            return
        self.require_usable("close")
        self._closed = True
        calls = BoundedCalls()

        async def close(backend: MemorySearchManager) -> None:
            await backend.close()  # in a coroutine: one that raises at once must not stop the others

        outcomes = await asyncio.gather(
            *(
                calls.run(id_, "close", close(handle.entry.manager), CLOSE_TIMEOUT_S)
                for id_, handle in self._handles.items()
            )
        )
        await self._fan_out.close()
        failures = [
            f"{id_}: {outcome.reason}"
            for id_, outcome in zip(self._handles, outcomes, strict=True)
            if isinstance(outcome, Failure)
        ]
        if failures:
            raise BackendError(self.id, "close", "; ".join(failures))

    async def _ask_all(
        self, request: QueryRequest, trace_id: str, started: float, *, is_cut: bool
    ) -> QueryResponse:
        text, filters = read_filters(request.query, request.now or self.asked_at())
        filters = combine(request.options.filters, filters)
        intent, troubles = read_intent(self._intent_parser, text, manager_id=self.id)
        context = self._query_context(intent)
        log = QueryLogger(self._ops_log, context)
        plan = route(self._handles, wanted=request.backends, intent=intent)
        depth = depth_for(request.options.max_results, self._policy.depth)
        log.start(request, intent, [handle.entry.id for handle in plan.asked], plan.skipped, filters)
        options = SearchOptions(
            max_results=depth,
            session_key=request.options.session_key,
            intent=intent,
            filters=filters,
            now=request.now,
        )
        await self._read_forgotten()
        answers = await self._fan_out.ask_all(plan.asked, text, options, log.backend_result)
        answers += [BackendAnswer(backend_id=one, skipped=why) for one, why in plan.skipped.items()]
        weak = not (is_cut or filters.narrow or any(map(_is_by_vectors_alone, answers))) and is_weak(
            {one.backend_id: one.results for one in answers},
            context.rules,
            weights=context.weights,
            policy=self._policy,
            hybrid={one.backend_id for one in answers if "vector" in one.engines},
        )
        ranking, draw = rank_active(answers, context, request.options, min_depth=depth, trace_id=trace_id)
        response = QueryResponse(
            trace_id=trace_id,
            results=ranking.merged.results,
            attributions=ranking.merged.attributions,
            dropped=ranking.merged.dropped,
            overflow=ranking.merged.overflow,
            answers=tuple(answers),
            degraded=self._degradations(answers, (*troubles, *plan.troubles)),
            intent=intent,
            weak=weak,
            narrowed=filters.narrow,
            weights_version=context.active_weights.version,
            latency_ms=(perf_counter() - started) * 1000,
        )
        log.merged(request, response, ranking, draw)
        return response

    def _query_context(self, intent: QueryIntent | None) -> QueryContext:
        """Return the context of a query that begins now."""
        active_weights = self._weights.now
        read = intent or QueryIntent()
        kind = intent_kind(entities=read.entities, topics=read.topics, time_hints=read.time_hints)
        return QueryContext(
            query_id=new_id()[:8],
            manager_id=self.id,
            active_weights=active_weights,
            kind=kind,
            weights=_weights_of(active_weights.table, self._handles, kind),
            rules=self._rules,
            policy=self._policy,
            memory=self._memory_id,
        )

    def _request(
        self,
        request: QueryRequest | str,
        max_results: int | None,
        min_score: float | None,
        session_key: str | None,
        backends: Sequence[str] | None,
        filters: SearchFilters | None,
        now: datetime | None,
    ) -> QueryRequest:
        """Return the request with the keyword arguments applied; a bare text starts from the defaults."""
        if isinstance(request, str):
            request = QueryRequest(query=request, options=self._defaults)
        require("query", request, QueryRequest, "a text or a QueryRequest")
        options = request.options
        return QueryRequest(
            query=request.query,
            options=SearchOptions(
                max_results=options.max_results if max_results is None else max_results,
                min_score=options.min_score if min_score is None else min_score,
                session_key=session_key or options.session_key,
                filters=options.filters if filters is None else combine(options.filters, filters),
            ),
            backends=request.backends if backends is None else _as_tuple(backends),
            now=now or request.now or options.now or self._now,
        )

    def _check_names(self, backends: Sequence[str] | None) -> None:
        for backend_id in backends or ():
            if backend_id not in self._handles:
                known = ", ".join(self._handles) or "none"
                raise ConfigError("backend", f"{backend_id!r} is not open; open backends: {known}")

    def _degradations(
        self, answers: Sequence[BackendAnswer], troubles: Sequence[Degradation]
    ) -> tuple[Degradation, ...]:
        found = [*troubles, *self._unavailable]
        for answer in answers:
            found.extend(answer.degraded)
            if answer.error is not None:
                code: DegradationCode = "timeout" if isinstance(answer.error, BackendTimeout) else "failed"
                found.append(
                    Degradation(backend_id=answer.backend_id, code=code, reason=_describe(answer.error))
                )
            elif answer.skipped == "breaker-open":
                found.append(self._breaker_open(answer.backend_id))
        if all(answer.skipped is not None for answer in answers):
            found.append(self._no_backend_asked(answers))
        return tuple(found)

    def _breaker_open(self, backend_id: str) -> Degradation:
        wait_s = self._handles[backend_id].breaker.retry_in_s
        reason = f"not asked after repeated failures; the next attempt is in {wait_s:.0f} s"
        return Degradation(backend_id=backend_id, code="breaker-open", reason=reason)

    def _no_backend_asked(self, answers: Sequence[BackendAnswer]) -> Degradation:
        why = ", ".join(f"{answer.backend_id}: {answer.skipped}" for answer in answers)
        reason = f"no backend was asked ({why})" if why else "no backend is open; run `cmem backends list`"
        return Degradation(backend_id=self.id, code="no-backends", reason=reason)

    def _readers(self, path: str) -> list[BackendHandle]:
        if FOREIGN in path and (owner := self._handles.get(path.partition(FOREIGN)[0])):
            return [owner]
        able = [
            handle
            for backend_id, handle in self._handles.items()
            if Capability.READ_FILE in handle.capabilities or backend_id == self._primary
        ]
        return sorted(able, key=lambda handle: handle.entry.id != self._primary)

    def _custom_status(self) -> dict[str, JsonValue]:
        idle = [
            handle.entry.id
            for handle in self._handles.values()
            if handle.entry.condition is not None and self._intent_parser is None
        ]
        active_weights = self._weights.now
        custom: dict[str, JsonValue] = {
            "composable": True,
            "backends": list(self._handles),
            "primary": self._primary,
            "weights": {**_weights_of(active_weights.table, self._handles, None)},
            "weightsVersion": active_weights.version,
            "breakers": {
                backend_id: handle.breaker.state.value for backend_id, handle in self._handles.items()
            },
            "unavailable": [{"backendId": one.backend_id, "reason": one.reason} for one in self._unavailable],
        }
        if active_weights.experiment is not None:
            custom["experiment"] = active_weights.experiment.id
        if active_weights.set_aside is not None:
            custom["weightsSetAside"] = active_weights.set_aside
        if idle:
            custom["neverAsked"] = dict.fromkeys(idle, "it has a condition, but there is no intent parser")
        return custom

    def _unsupported(self, operation: str) -> BackendError:
        """Return why no open backend supports this: one is missing, or none was ever configured."""
        if self._unavailable:
            return BackendError(self.id, operation, "; ".join(one.reason for one in self._unavailable))
        return UnsupportedOperation(self.id, operation)

    def require_usable(self, operation: str) -> None:
        """Refuse calls after `close`, or from another event loop than that of the first call.

        A closed loop is forgotten.

        Raises:
            BackendUnavailable: the composite is closed, or in use on another event loop.
        """
        if self._closed:
            raise BackendUnavailable(self.id, "it is closed", fix="open it again", operation=operation)
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
        if self._loop is not loop:
            raise BackendUnavailable(
                self.id,
                "it is in use on another event loop",
                fix="open one on this loop, or pass the call to the other with "
                "asyncio.run_coroutine_threadsafe",
                operation=operation,
            )


def _as_tuple(backends: Sequence[str]) -> tuple[str, ...]:
    require_all("backends", backends, str, "a list of backend ids")
    return tuple(backends)


def _weights_of(table: WeightTable, backend_ids: Iterable[str], kind: IntentKind | None) -> dict[str, float]:
    return {backend_id: table.of(backend_id, kind) for backend_id in backend_ids}


def _is_by_vectors_alone(answer: BackendAnswer) -> bool:
    """Return whether only vectors were searched, which cannot tell whether the words were found."""
    return bool(answer.results) and any(one.code == "vector-only" for one in answer.degraded)


def _engine_names(answer: BackendAnswer) -> str:
    return ", ".join(f"{leg} {engine}" for leg, engine in answer.engines.items()) or "its own"


def _status_of(backend_id: str, manager: MemorySearchManager) -> MemoryProviderStatus:
    """Return the status of a backend; a failure to report it becomes part of the status."""
    try:
        status = manager.status()
        require("status", status, MemoryProviderStatus, "a MemoryProviderStatus")
    except Exception as error:  # noqa: BLE001 - a third-party backend may raise anything
        problem = f"it cannot report its status: {_describe(error)}"
        return MemoryProviderStatus(backend=backend_id, provider="none", custom={"problem": problem})
    return status


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, ComposableMemoryError) else f"{type(error).__name__}: {error}"


def _joined_refusal(refusals: Sequence[MemoryPathError]) -> MemoryPathError:
    """Merge refusals: the problem of the first, with all paths that any of them allows."""
    first, allowed = refusals[0], dict.fromkeys(path for one in refusals for path in one.allowed)
    return MemoryPathError(first.path, first.problem, allowed=tuple(allowed))


def _joined_report(
    reason: str, backend_ids: Sequence[str], outcomes: Sequence[SyncReport | BaseException]
) -> SyncReport:
    reports = [outcome for outcome in outcomes if isinstance(outcome, SyncReport)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    if failures and not reports:
        raise failures[0]
    problems = [problem for report in reports for problem in report.problems]
    problems += [
        f"{backend_id}: {outcome}"
        for backend_id, outcome in zip(backend_ids, outcomes, strict=True)
        if isinstance(outcome, BaseException)
    ]
    # Backends index the same files: a file that two have indexed counts once.
    indexed = max(report.files_indexed for report in reports)
    return SyncReport(
        reason=reason,
        files_indexed=indexed,
        files_unchanged=max(one.files_indexed + one.files_unchanged for one in reports) - indexed,
        files_removed=max(report.files_removed for report in reports),
        chunks_written=max(report.chunks_written for report in reports),
        embedded=sum(report.embedded for report in reports),
        embeddings_pending=sum(report.embeddings_pending for report in reports),
        problems=tuple(problems),
        passed_over=reduce(or_, (Counter(one.passed_over) for one in reports)),
    )
