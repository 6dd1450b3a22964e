"""An open memory: everything that it can be asked or told, in one place."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from composable_memory.citations import cite, is_wanted
from composable_memory.config.layers import LoadedSettings
from composable_memory.config.settings import Settings
from composable_memory.errors import (
    ComposableMemoryError,
    ConfigError,
    MemoryPathError,
    require_all,
    require_text,
)
from composable_memory.forget.tombstones import Forgotten
from composable_memory.interfaces import (
    BackendSpec,
    Capability,
    MemorySearchManager,
    ProgressCallback,
    SupportsBackup,
    SupportsCheck,
    SupportsFacts,
    SupportsForget,
    SupportsIngest,
)
from composable_memory.learning.active_weights import RecentResults
from composable_memory.learning.context import LearningContext
from composable_memory.paths import is_note
from composable_memory.query.context_pack import DEFAULT_MAX_CHARS
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import LiveWeights
from composable_memory.recall.items import DEFAULT_MAX_ITEMS, Recall
from composable_memory.recall.retained_notes import RetainedNotes
from composable_memory.registry import Registry
from composable_memory.runtime.embedder_choice import EmbedderChoice
from composable_memory.state.folders import OPS_LOG_FOLDER
from composable_memory.types import (
    ContextPack,
    Degradation,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    MemorySource,
    Origin,
    QueryRequest,
    QueryResponse,
    SearchFilters,
    SearchOptions,
    SyncReport,
)
from composable_memory_ops_logs import MemoryRead, OpsLog, trace
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.content import IngestReport, MemoryContentObject
    from composable_memory.forget.forgetting import ForgettingScope
    from composable_memory.forget.report import ForgetPlan, ForgetReport
    from composable_memory.learning import Learning
    from composable_memory.reflect.report import Reflection
    from composable_memory.retain.remember import Remembered
    from composable_memory.runtime.failover import FallbackMemoryManager


LINES_AFTER = 50
"""A statement that begins in a passage is assumed to end within this many lines after it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """An open memory: the composite of all enabled backends, with its settings and folders."""

    manager: ComposableMemoryManager
    context: LearningContext
    """The context of learning: where judgements and weights are kept."""
    weights: LiveWeights
    """The active weights."""
    loaded: LoadedSettings
    registry: Registry
    workspace_dir: Path
    state_dir: Path
    ops_log: OpsLog
    forgotten: Forgotten
    """What was forgotten in this workspace, as hashes."""
    embedder: EmbedderChoice = field(default_factory=EmbedderChoice)
    """The embedding provider, and the ones passed over, with the reasons."""
    pair: "FallbackMemoryManager | None" = None
    """The primary with its fallback, if there is one."""
    recent: RecentResults = field(default_factory=RecentResults)
    """The latest results, to find out what an answer quotes."""
    notes: RetainedNotes = field(default_factory=RetainedNotes)
    """The retained lines of the notes, as last read."""

    @property
    def settings(self) -> Settings:
        """Return the active settings."""
        return self.loaded.settings

    @property
    def ops_log_dir(self) -> Path:
        """Return the folder of the ops log."""
        return self.state_dir / OPS_LOG_FOLDER

    @property
    def learning(self) -> "Learning":
        """Return the learning service, which judges, replays, advises and experiments on this memory."""
        from composable_memory.learning import Learning  # imports a lot that a search does not need

        return Learning(self.context, self.weights)

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Bring every index up to date; `force` rebuilds them.

        Raises:
            BackendError: no index could be synced.
        """
        return await self.manager.sync(reason=reason, force=force, progress=progress)

    async def query(
        self,
        query: str | QueryRequest,
        *,
        max_results: int | None = None,
        min_score: float | None = None,
        session_key: str | None = None,
        backends: Sequence[str] | None = None,
        filters: SearchFilters | None = None,
        now: datetime | None = None,
    ) -> QueryResponse:
        """Ask all memories; defaults come from the settings. Failures are listed in `degraded`.

        `filters` are added to those in the query; `now` is the time that "yesterday" is counted from.

        Raises:
            ConfigError: a backend named in `backends` is not open.
            InvalidArgument: an argument has the wrong type, or the query asks for nothing.
            BackendUnavailable: the memory is closed, or in use on another event loop.
        """
        response = await self.manager.query(
            query,
            max_results=max_results,
            min_score=min_score,
            session_key=session_key,
            backends=backends,
            filters=filters,
            now=now,
        )
        if away := self._learning_problems():
            response = replace(response, degraded=(*response.degraded, *away))
        self.recent.note(_text_of(query), response.trace_id, response.results)
        shown = self._without_unwanted_citations(response.results, session_key or _session_of(query))
        return response if shown is response.results else replace(response, results=shown)

    def record_answer(self, trace_id: str, answer: str, *, session_key: str | None = None) -> int:
        """Record what an agent answered after a search; return how many results the answer quotes.

        The answer itself is not kept: only which results it quotes goes into the log, where learning finds
        it. Only the latest searches of this open memory are remembered; for any other, 0 is returned.
        """
        require_text("trace_id", trace_id)
        require_text("answer", answer)
        event = self.recent.quoted_in(answer, trace_id)
        if event is None:
            return 0
        with trace(session_key=session_key):
            self.ops_log.emit(event)
        return len(event.quoted)

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        """Return the merged results, best first.

        Raises:
            BackendUnavailable: every backend failed.
        """
        found = await self.manager.search(query, options)
        return list(self._without_unwanted_citations(tuple(found), options.session_key if options else None))

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Read a memory file, or `lines` lines of it from the 1-based `from_line` on.

        `^` and the id of a retained line, as in `^1xyg5am`, read that line wherever it is now. The read is
        logged: opening a result after a search shows that it was useful.

        Raises:
            MemoryPathError: the path is not a memory file, or no retained line has the id.
        """
        if isinstance(rel_path, str) and rel_path.startswith("^"):
            place = await self._place_of(rel_path)
            rel_path, from_line = place.path, place.start_line
            lines = place.end_line - place.start_line + 1
        part = await self.manager.read_file(rel_path, from_line=from_line, lines=lines)
        if part.text:
            read = MemoryRead(
                path=part.path,
                from_line=from_line,
                lines=lines,
                chars=len(part.text),
                memory=self.context.memory_id,
            )
            self.ops_log.emit(read)
        return part

    async def _place_of(self, line_id: str) -> Origin:
        notes = await asyncio.to_thread(self.notes.read, self.workspace_dir, self.status().note_paths)
        for one in (one for note in notes.values() for one in note.lines):
            if f"^{one.line.id}" == line_id:
                return Origin(path=one.path, start_line=one.line.start_line, end_line=one.line.end_line)
        raise MemoryPathError(line_id[:200], "no retained line has this id")

    async def text_of(self, path: str, start_line: int, end_line: int) -> str | None:
        """Return lines of a memory file without logging the read; None if there are none.

        Forgotten text is blanked. As whole statements are matched for that, the lines around are read too.
        The lines of documents and transcripts are pages and messages, not lines of their text.
        """
        first, more = (1, LINES_AFTER) if is_note(path) else (start_line, 0)
        try:
            part = await self.manager.read_file(path, from_line=first, lines=end_line - first + 1 + more)
        except ComposableMemoryError:
            return None
        source: MemorySource = "sessions" if path.endswith(".jsonl") else "memory"
        shown = await asyncio.to_thread(self.forgotten.hide, part.text, source)
        return ("\n".join(shown.split("\n")[start_line - 1 : end_line]) if is_note(path) else shown) or None

    async def recall(
        self,
        entity: str | None = None,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        types: Sequence[str] = (),
        query: str | None = None,
        max_results: int = DEFAULT_MAX_ITEMS,
        now: datetime | None = None,
    ) -> Recall:
        """Return what is known about an entity or a time: retained lines, facts, passages if there is room.

            await memory.recall("Ellen Smith", types=["opinion"])
            await memory.recall(since="7d")

        Case is ignored, a name also matches longer names that contain it, and aliases in notes count. `since`
        and `until` are times, or words such as "last week". `types` are kinds of `RecalledItem`. An item must
        contain half of the words in `query`.

        Raises:
            InvalidArgument: a time or a type is invalid.
            BackendUnavailable: the memory is closed, or in use on another event loop.
        """
        from composable_memory.recall.recalling import read_recall_query, recall  # a search does not need it

        self.manager.require_usable("recall")
        present = now or self.manager.asked_at()
        return await recall(self, read_recall_query(entity, since, until, types, query, max_results, present))

    async def reflect(
        self,
        *,
        since: datetime | str | None = None,
        core: bool = False,
        llm: bool = False,
        now: datetime | None = None,
    ) -> "Reflection":
        """Propose the pages of `bank/` from what the notes retain; nothing is written until it is applied.

            await memory.apply_reflection(await memory.reflect(since="7d"))

        With `since`, only lines since then are added; what is gone from the notes is removed from the pages
        in any case. `core` adds a section to `MEMORY.md`; `llm` has the model of `memory.feedback.llm` write
        summaries.

        Raises:
            InvalidArgument: the time is invalid.
            BackendUnavailable: the memory is closed, or in use on another event loop.
        """
        from composable_memory.reflect.reflecting import reflect

        self.manager.require_usable("reflect")
        model = self.settings.memory.feedback.llm if llm else None
        return await reflect(self, since=since, core=core, llm=model, now=now)

    async def apply_reflection(self, reflection: "Reflection") -> "Reflection":
        """Write the proposed pages, each atomically.

        Raises:
            NoteNotWritten: a page has changed since, or cannot be written.
        """
        from composable_memory.reflect.reflecting import apply_reflection

        self.manager.require_usable("reflect")
        return await apply_reflection(self, reflection)

    async def ingest(
        self, contents: "Sequence[MemoryContentObject]", *, backend: str | None = None, wait: bool = True
    ) -> "Mapping[str, IngestReport]":
        """Pass contents to `backend`, or to every backend that ingests; return a report of each.

        With `wait` false the call returns once the contents are stored safely. The report of a failed backend
        says so.

        Raises:
            ConfigError: no open backend ingests contents, or the named one does not.
            BackendError: all of them failed.
        """
        return await self._ingest_with(contents, backend, lambda one: one.ingest(contents, wait=wait))

    async def ingest_source(
        self,
        path: str,
        contents: "Sequence[MemoryContentObject]",
        *,
        backend: str | None = None,
        wait: bool = True,
    ) -> "Mapping[str, IngestReport]":
        """Pass `contents` as everything that the source `path` now says; what it said before no longer holds.

        Raises:
            ConfigError: no open backend ingests contents, or the named one does not.
            BackendError: all of them failed.
        """
        require_text("path", path)
        return await self._ingest_with(
            contents, backend, lambda one: one.ingest_source(path, contents, wait=wait)
        )

    async def remember(
        self,
        text: str,
        *,
        type: str | None = None,  # noqa: A002 - named as in the notes and all other interfaces
        entities: Sequence[str] = (),
        confidence: float | None = None,
        tags: Sequence[str] = (),
        session_key: str | None = None,
        now: datetime | None = None,
    ) -> "Remembered":
        """Retain a sentence as one line of the day's note; it can be found when the call returns.

        `type` is `world`, `experience`, `opinion` or `observation`; by default an opinion if a confidence is
        given, else a fact about the world. The day is that of `now` in its time zone. If the notes already
        say it, nothing is written, and `duplicate_of` is the place; forgotten text is remembered again. A
        backend that cannot find the line yet is listed in `degraded`; the line is safe nevertheless.

        Raises:
            InvalidArgument: the text is blank, too long or only a secret, or another argument is wrong.
            NoteNotWritten: the day's note cannot be written.
        """
        # A search does not need it, and it reads a file.
        await asyncio.to_thread(import_module, "composable_memory.retain.remember")
        from composable_memory.retain.remember import line_of, remember

        self.manager.require_usable("remember")
        line, warnings = line_of(text, type, entities, confidence, tags)
        return await remember(self, line, warnings, session_key=session_key, now=now)

    def facts_of(self, backend: str | None = None) -> SupportsFacts:
        """Return the backend that keeps facts: the named one, or the first.

        Raises:
            ConfigError: no open backend keeps facts, or the named one does not.
        """
        able = self._providers_of(Capability.FACTS, "keeps facts", backend)
        return next(one for one in able.values() if isinstance(one, SupportsFacts))

    def backends_to_back_up(self) -> Mapping[str, SupportsBackup]:
        """Return the open backends with data that no source can bring back, by id."""
        able = self._with_capability(Capability.BACKUP)
        return {backend_id: one for backend_id, one in able.items() if isinstance(one, SupportsBackup)}

    async def plan_forgetting(self, target: str, *, everything: bool = False) -> "ForgetPlan":
        """Return what forgetting `target` would remove from notes and from every store; removes nothing.

        `target` is a place (`notes.md#L3`, `notes.md:3-7`), the id of a retained line (`^m4k29x`), or a
        query. If several lines match a query, the plan lists them as candidates, or with `everything` takes
        all of them.

        Raises:
            InvalidArgument: the target is blank.
            MemoryPathError: there is nothing at the place.
        """
        from composable_memory.forget import forgetting

        return await forgetting.plan_forgetting(await self._forgetting(), target, everything=everything)

    async def forget(self, plan_or_token: "ForgetPlan | str") -> "ForgetReport":
        """Forget exactly what a plan (or its token) shows; a tombstone keeps it from coming back.

        If the notes have changed since, nothing is removed, and the report has a new plan. A backend that
        cannot do its part now is listed as pending in the report, and catches up when the memory is opened
        next.

        Raises:
            InvalidArgument: the token is invalid, or one of the plan's candidates has to be chosen.
            MemoryPathError: a note cannot be written; nothing else was removed.
            BackendUnavailable: another process is forgetting something, and does not finish.
        """
        from composable_memory.forget import forgetting

        return await forgetting.forget(await self._forgetting(), plan_or_token)

    async def continue_forgetting(self) -> None:
        """Resume forgetting that is not complete, after a kill, or while a backend was down."""
        from composable_memory.forget import forgetting

        await forgetting.continue_forgetting(await self._forgetting())

    async def apply_forgetting(self) -> None:
        """Remove forgotten text that has come back to a store, as after restoring an old backup.

        Raises:
            BackendError: a store cannot be changed now.
        """
        from composable_memory.forget import forgetting

        await forgetting.apply_forgetting(await self._forgetting())

    def status(self) -> MemoryProviderStatus:
        """Return the primary's status, with the composite's own under `custom`."""
        status = self.manager.status()
        if not self.forgotten.pending:
            return status
        return replace(status, custom={**status.custom, "forgetting": {**self.forgotten.pending}})

    def backend_statuses(self) -> Mapping[str, MemoryProviderStatus]:
        """Return the status of every backend."""
        return self.manager.backend_statuses()

    def unavailable(self) -> tuple[Degradation, ...]:
        """Return the enabled backends that could not be opened, with the reasons.

        This includes a primary whose fallback is standing in for it.
        """
        lost_now = (*self.manager.unavailable, *self._learning_problems())
        status = self.pair.status() if self.pair and self.pair.primary is None else None
        if status is None or status.fallback is None:
            return lost_now
        reason = status.fallback.reason or "it could not be opened"
        lost = Degradation(backend_id=self.settings.memory.backend, code="unavailable", reason=reason)
        return (lost, *lost_now)

    def _learning_problems(self) -> tuple[Degradation, ...]:
        """Return whether learnt weights could not be read, or a shared store is unreachable."""
        if self.weights.problem is not None:
            return (Degradation(backend_id="weights", code="unavailable", reason=self.weights.problem),)
        remark = self.context.remark if self.context.open_shared else None
        if remark is None or any(one.reason == remark for one in self.manager.unavailable):
            return ()
        return (Degradation(backend_id="feedback", code="unavailable", reason=remark),)

    async def language_hint(self) -> str | None:
        """Return which languages of the notes the embedding provider cannot read, and which one can."""
        from composable_memory.runtime.embedder_choice import language_hint  # a search does not need it

        return await asyncio.to_thread(language_hint, self.status(), self.embedder, self.registry)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Return whether any backend can embed."""
        return await self.manager.probe_embedding_availability()

    async def probe_vector_availability(self) -> bool:
        """Return whether any backend can search vectors."""
        return await self.manager.probe_vector_availability()

    async def check(self) -> Mapping[str, Sequence[str]]:
        """Read the whole log, have every backend read all its data, and return what is damaged in each."""
        from composable_memory_ops_logs import OpsLogError, OpsLogReader  # a search does not need it

        damage: dict[str, Sequence[str]] = {}
        try:
            damage["ops log"] = await asyncio.to_thread(OpsLogReader(self.ops_log_dir).damage)
        except OpsLogError as error:
            damage["ops log"] = [str(error)]
        checks = {
            backend_id: one.check()
            for backend_id, one in self._with_capability(Capability.CHECK).items()
            if isinstance(one, SupportsCheck)
        }
        outcomes = await asyncio.gather(*checks.values(), return_exceptions=True)
        for backend_id, outcome in zip(checks, outcomes, strict=True):
            if isinstance(outcome, ComposableMemoryError):
                damage[backend_id] = [str(outcome)]
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                damage[backend_id] = outcome
        return {name: found for name, found in damage.items() if found}

    async def context_pack(
        self,
        query: str | QueryRequest,
        *,
        max_chars: int = DEFAULT_MAX_CHARS,
        max_tokens: int | None = None,
    ) -> ContextPack:
        """Return the best results as one text of at most `max_chars` characters, or else `max_tokens` tokens.

        Raises:
            BackendUnavailable: the memory is closed.
            ValueError: the budget is less than 1.
        """
        pack = await self.manager.context_pack(query, max_chars=max_chars, max_tokens=max_tokens)
        self.recent.note(_text_of(query), pack.trace_id, pack.sources)
        shown = self._without_unwanted_citations(pack.sources, _session_of(query))
        return pack if shown is pack.sources else replace(pack, sources=shown)

    def _without_unwanted_citations(
        self, results: tuple[MemorySearchResult, ...], session_key: str | None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the results, without their citations if the settings say so."""
        mode = self.settings.memory.citations
        return results if is_wanted(mode, session_key) else cite(results, mode, session_key)

    async def _forgetting(self) -> "ForgettingScope":
        from composable_memory.forget.forgetting import ForgettingScope

        # Include a fallback that only stood in for a while: its index is as it was then.
        pair = await self.pair.members() if self.pair else {}
        able = {id_: one for id_, one in pair.items() if self._declares(id_, Capability.FORGET)}
        able |= self._with_capability(Capability.FORGET)
        lost = [one for one in self.unavailable() if self._declares(one.backend_id, Capability.FORGET)]
        status = self.status()
        return ForgettingScope(
            workspace_dir=self.workspace_dir,
            extra_paths=status.note_paths,
            transcripts=Path(status.transcripts_folder) if status.transcripts_folder else None,
            manager=self.manager,
            forgotten=self.forgotten,
            recent=self.recent,
            learning=self.context,
            able={id_: one for id_, one in able.items() if isinstance(one, SupportsForget)},
            lost={one.backend_id: one.reason for one in lost},
        )

    async def _ingest_with(
        self,
        contents: "Sequence[MemoryContentObject]",
        backend: str | None,
        give: "Callable[[SupportsIngest], Awaitable[IngestReport]]",
    ) -> "Mapping[str, IngestReport]":
        # Imported here: a search opens a memory too, and does not need these.
        from composable_memory.content import IngestReport, MemoryContentObject

        self.manager.require_usable("ingest")
        require_all("contents", contents, MemoryContentObject, "a list of MemoryContentObjects")
        require_text("backend", backend, optional=True)
        if not self._with_capability(Capability.INGEST):
            specs = await asyncio.to_thread(self.registry.backend_specs)
            offered = [spec for spec in specs if Capability.INGEST in spec.capabilities]
            raise self._unsupported("takes contents", offered)
        able = self._providers_of(Capability.INGEST, "takes contents", backend)
        takers = {backend_id: one for backend_id, one in able.items() if isinstance(one, SupportsIngest)}
        with trace() as trace_id:
            outcomes = await asyncio.gather(*map(give, takers.values()), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failures and len(failures) == len(outcomes):
            raise failures[0]
        lost = IngestReport(run_id=trace_id, failed=len(contents))
        return {
            backend_id: replace(lost, problems=(str(outcome) or repr(outcome),))
            if isinstance(outcome, BaseException)
            else outcome
            for backend_id, outcome in zip(takers, outcomes, strict=True)
        }

    def _providers_of(
        self, capability: Capability, what: str, backend: str | None
    ) -> Mapping[str, MemorySearchManager]:
        """Return the open backends with a capability, or only the named one."""
        require_text("backend", backend, optional=True)
        able = self._with_capability(capability)
        if backend is not None and backend in able:
            return {backend: able[backend]}
        if backend is not None and able:
            raise ConfigError("backend", f"{backend!r} is no open backend that {what}; {', '.join(able)} is")
        if able:
            return able
        raise self._unsupported(what)

    def _unsupported(self, what: str, able: Sequence[BackendSpec] = ()) -> ConfigError:
        """Return the error that no open backend supports something; `able` are installed ones that could."""
        lost = {one.backend_id: f"{one.backend_id}: {one.reason}" for one in self.unavailable()}
        problem = f"no open backend {what}" + (f" ({'; '.join(lost.values())})" if lost else "")
        keys = {one.id: self.settings.memory.section_key(one.id) for one in able}
        if key := next((key for backend_id, key in keys.items() if backend_id in lost), None):
            return ConfigError(key, problem)
        if not able:
            return ConfigError("memory", f"{problem}; `cmem backends list` shows which could, once enabled")
        return ConfigError(
            f"{keys[able[0].id]}.enabled", f"{problem}; set it to true, for {able[0].id}: {able[0].summary}"
        )

    def _with_capability(self, capability: Capability) -> Mapping[str, MemorySearchManager]:
        """Return the backends with a capability, including a primary whose fallback is standing in for it."""
        primary_id, primary = self.settings.memory.backend, self.pair.primary if self.pair else None
        able = self.manager.backends_with(capability)
        if primary is None or not self._declares(primary_id, capability):
            return able
        return {primary_id: primary, **able}

    def _declares(self, backend_id: str, capability: Capability) -> bool:
        found = self.registry.backend(backend_id)
        return bool(found and found.spec and capability in found.spec.capabilities)


def _text_of(query: str | QueryRequest) -> str:
    return query if isinstance(query, str) else query.query


def _session_of(query: str | QueryRequest) -> str | None:
    return None if isinstance(query, str) else query.options.session_key
