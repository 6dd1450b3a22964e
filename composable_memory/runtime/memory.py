"""An open memory: everything that can be asked of it, and told to it, in one place."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
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
"""No statement that begins in a passage is expected to go on longer behind it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Memory:
    """An open memory: the composite of all enabled backends, with the settings and folders it runs on."""

    manager: ComposableMemoryManager
    context: LearningContext
    """Where it keeps what it learns."""
    weights: LiveWeights
    """The weights in force."""
    loaded: LoadedSettings
    registry: Registry
    workspace_dir: Path
    state_dir: Path
    ops_log: OpsLog
    forgotten: Forgotten
    """What was forgotten of this workspace, as hashes."""
    embedder: EmbedderChoice = field(default_factory=EmbedderChoice)
    """Who turns texts into vectors, and who was passed over for what reason."""
    pair: "FallbackMemoryManager | None" = None
    """The primary with its fallback, if there is one."""
    recent: RecentResults = field(default_factory=RecentResults)
    """What was shown lately, to tell what an answer quotes."""
    notes: RetainedNotes = field(default_factory=RetainedNotes)
    """What the notes retain, as they were last read."""

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self.loaded.settings

    @property
    def ops_log_dir(self) -> Path:
        """Return the folder of the ops log's files."""
        return self.state_dir / OPS_LOG_FOLDER

    @property
    def learning(self) -> "Learning":
        """Return what judges, replays, advises and compares, over the log and the store of this memory."""
        from composable_memory.learning import Learning  # brings much that a search does not need

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
        """Ask all memories; what is not given comes from the settings. Failures are in `degraded`.

        `filters` are added to those in the query; `now` is the time that "yesterday" is counted from.

        Raises:
            ConfigError: a backend named in `backends` is not open.
            InvalidArgument: something of the wrong type was given.
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
        if away := self._not_learnt():
            response = replace(response, degraded=(*response.degraded, *away))
        self.recent.note(_words_of(query), response.trace_id, response.results)
        shown = self._cited_if_wanted(response.results, session_key or _session_of(query))
        return response if shown is response.results else replace(response, results=shown)

    def record_answer(self, trace_id: str, answer: str, *, session_key: str | None = None) -> int:
        """Take note of what an agent answered after a search; return how many results the answer quotes.

        The answer is not kept: only which results it quotes goes into the log, where learning finds it. Of a
        search that is not among the latest of this open memory nothing is known any more, and 0 is returned.
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
        return list(self._cited_if_wanted(tuple(found), options.session_key if options else None))

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Read a memory file, or `lines` lines of it from the 1-based `from_line` on.

        `^` and the id of a retained line, as in `^1xyg5am`, read that line wherever it stands by now. That
        something was read is logged: a result that is opened after a search was of use.

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
        """Return lines of a memory file without taking note of it; None where there are none.

        What was forgotten is blank. It is known by whole statements, so of a note the lines around are read
        as well. The lines of documents and transcripts are pages and messages, not lines of their text.
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
        """Return what is known of an entity or a time: retained lines, facts, then passages if there is room.

            await memory.recall("Ellen Smith", types=["opinion"])
            await memory.recall(since="7d")

        Case does not matter, a name finds longer ones that hold it, and aliases of notes count. `since` and
        `until` are times, or words such as "last week". `types` are kinds of `RecalledItem`. Of the words in
        `query` an item has to have half.

        Raises:
            InvalidArgument: a time or a type is none.
            BackendUnavailable: the memory is closed, or in use on another event loop.
        """
        from composable_memory.recall.recalling import asked_for, recall  # a search does without it

        self.manager.require_usable("recall")
        present = now or self.manager.asked_at()
        return await recall(self, asked_for(entity, since, until, types, query, max_results, present))

    async def reflect(
        self,
        *,
        since: datetime | str | None = None,
        core: bool = False,
        llm: bool = False,
        now: datetime | None = None,
    ) -> "Reflection":
        """Propose the pages of `bank/` from what the notes retain; nothing is written before it is applied.

            await memory.apply_reflection(await memory.reflect(since="7d"))

        With `since`, only what lines since then say is new; what is gone from the notes leaves the pages all
        the same. `core` adds a section to `MEMORY.md`; `llm` has the model of `memory.feedback.llm` write
        summaries.

        Raises:
            InvalidArgument: the time is none.
            BackendUnavailable: the memory is closed, or in use on another event loop.
        """
        from composable_memory.reflect.reflecting import reflect

        self.manager.require_usable("reflect")
        model = self.settings.memory.feedback.llm if llm else None
        return await reflect(self, since=since, core=core, llm=model, now=now)

    async def apply_reflection(self, reflection: "Reflection") -> "Reflection":
        """Write what was proposed, each page in one step.

        Raises:
            NoteNotWritten: a page has changed since, or cannot be written.
        """
        from composable_memory.reflect.reflecting import apply_reflection

        self.manager.require_usable("reflect")
        return await apply_reflection(self, reflection)

    async def ingest(
        self, contents: "Sequence[MemoryContentObject]", *, backend: str | None = None, wait: bool = True
    ) -> "Mapping[str, IngestReport]":
        """Hand contents to `backend`, or to every backend that takes them; return a report of each.

        With `wait` false the call returns as soon as the contents are safe. A backend that fails has a report
        that says so.

        Raises:
            ConfigError: no open backend takes contents, or the named one does not.
            BackendError: all of them failed.
        """
        return await self._hand_over(contents, backend, lambda one: one.ingest(contents, wait=wait))

    async def ingest_source(
        self,
        path: str,
        contents: "Sequence[MemoryContentObject]",
        *,
        backend: str | None = None,
        wait: bool = True,
    ) -> "Mapping[str, IngestReport]":
        """Hand over `contents` as all that the source `path` says now; what it said before holds no more.

        Raises:
            ConfigError: no open backend takes contents, or the named one does not.
            BackendError: all of them failed.
        """
        require_text("path", path)
        return await self._hand_over(
            contents, backend, lambda one: one.ingest_source(path, contents, wait=wait)
        )

    async def remember(
        self,
        text: str,
        *,
        type: str | None = None,  # noqa: A002 - as in the notes, and in every face
        entities: Sequence[str] = (),
        confidence: float | None = None,
        tags: Sequence[str] = (),
        session_key: str | None = None,
        now: datetime | None = None,
    ) -> "Remembered":
        """Retain a sentence as one line of the day's note; it can be found when the call returns.

        `type` is `world`, `experience`, `opinion` or `observation`; without it an opinion where a confidence
        is given, else a fact of the world. The day is that of `now` in its zone. What the notes say already
        is not written again: `duplicate_of` is where; what was forgotten is remembered again. A backend that
        cannot find the line yet is in `degraded`; the line is safe all the same.

        Raises:
            InvalidArgument: the text is blank, too long or only a secret, or another argument is wrong.
            NoteNotWritten: the day's note cannot be written.
        """
        from composable_memory.retain.remember import line_of, remember  # a search does without

        self.manager.require_usable("remember")
        line, warnings = line_of(text, type, entities, confidence, tags)
        return await remember(self, line, warnings, session_key=session_key, now=now)

    def facts_of(self, backend: str | None = None) -> SupportsFacts:
        """Return the backend that keeps facts: the named one, or the first.

        Raises:
            ConfigError: no open backend keeps facts, or the named one does not.
        """
        able = self._able(Capability.FACTS, "keeps facts", backend)
        return next(one for one in able.values() if isinstance(one, SupportsFacts))

    def backends_to_back_up(self) -> Mapping[str, SupportsBackup]:
        """Return the open backends that keep what no source can bring back, by their ids."""
        able = self._able_at(Capability.BACKUP)
        return {backend_id: one for backend_id, one in able.items() if isinstance(one, SupportsBackup)}

    async def plan_forgetting(self, target: str, *, everything: bool = False) -> "ForgetPlan":
        """Return what forgetting `target` would remove from notes and from every store; nothing is removed.

        `target` is a place (`notes.md#L3`, `notes.md:3-7`), the id of a retained line (`^m4k29x`), or a
        query. Where several lines fit a query the plan has them as candidates, or with `everything` all of
        them as its lines.

        Raises:
            InvalidArgument: the target is blank.
            MemoryPathError: it is a place in which there is nothing.
        """
        from composable_memory.forget import forgetting

        return await forgetting.plan_forgetting(await self._forgetting(), target, everything=everything)

    async def forget(self, plan_or_token: "ForgetPlan | str") -> "ForgetReport":
        """Forget exactly what a plan shows, given it or its token; a tombstone keeps it from coming back.

        Where the notes have changed since, nothing is removed, and the report has a new plan. A backend that
        cannot follow now is pending in the report, and follows when the memory is opened next.

        Raises:
            InvalidArgument: it is no token, or the plan's candidates have to be chosen from.
            MemoryPathError: a note cannot be written; nothing else was removed.
            BackendUnavailable: another process is forgetting something, and does not end.
        """
        from composable_memory.forget import forgetting

        return await forgetting.forget(await self._forgetting(), plan_or_token)

    async def continue_forgetting(self) -> None:
        """Go on with what was not forgotten everywhere yet: for a kill, or a backend that was down."""
        from composable_memory.forget import forgetting

        await forgetting.continue_forgetting(await self._forgetting())

    async def apply_forgetting(self) -> None:
        """Take out of every store what was forgotten and has come back to it, as by a backup of before.

        Raises:
            BackendError: a store cannot be changed now.
        """
        from composable_memory.forget import forgetting

        await forgetting.apply_forgetting(await self._forgetting())

    def status(self) -> MemoryProviderStatus:
        """Return a snapshot of the primary, with what the composite adds under `custom`."""
        status = self.manager.status()
        if not self.forgotten.pending:
            return status
        return replace(status, custom={**status.custom, "forgetting": {**self.forgotten.pending}})

    def backend_statuses(self) -> Mapping[str, MemoryProviderStatus]:
        """Return a snapshot of every backend."""
        return self.manager.backend_statuses()

    def unavailable(self) -> tuple[Degradation, ...]:
        """Return the backends that are enabled and could not be opened, with the reasons.

        A primary with a fallback is among them as long as it could not be opened.
        """
        lost_now = (*self.manager.unavailable, *self._not_learnt())
        status = self.pair.status() if self.pair and self.pair.primary is None else None
        if status is None or status.fallback is None:
            return lost_now
        reason = status.fallback.reason or "it could not be opened"
        lost = Degradation(backend_id=self.settings.memory.backend, code="unavailable", reason=reason)
        return (lost, *lost_now)

    def _not_learnt(self) -> tuple[Degradation, ...]:
        """Return that what was learnt could not be read yet, or that a shared store is away."""
        if self.weights.lost is not None:
            return (Degradation(backend_id="weights", code="unavailable", reason=self.weights.lost),)
        remark = self.context.remark if self.context.open_shared else None
        if remark is None or any(one.reason == remark for one in self.manager.unavailable):
            return ()
        return (Degradation(backend_id="feedback", code="unavailable", reason=remark),)

    async def language_hint(self) -> str | None:
        """Return which languages of the notes the embedding provider cannot read, and which one can."""
        from composable_memory.runtime.embedder_choice import language_hint  # a search does without it

        return await asyncio.to_thread(language_hint, self.status(), self.embedder, self.registry)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Return whether any backend can embed."""
        return await self.manager.probe_embedding_availability()

    async def probe_vector_availability(self) -> bool:
        """Return whether any backend can search vectors."""
        return await self.manager.probe_vector_availability()

    async def check(self) -> Mapping[str, Sequence[str]]:
        """Read all of the log, have every backend read all it stores, and return what is damaged in each."""
        from composable_memory_ops_logs import OpsLogError, OpsLogReader  # a search does without it

        damage: dict[str, Sequence[str]] = {}
        try:
            damage["ops log"] = await asyncio.to_thread(OpsLogReader(self.ops_log_dir).damage)
        except OpsLogError as error:
            damage["ops log"] = [str(error)]
        checks = {
            backend_id: one.check()
            for backend_id, one in self._able_at(Capability.CHECK).items()
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
        """Return the best results as one text of `max_chars` characters at most, or else `max_tokens` tokens.

        Raises:
            BackendUnavailable: the memory is closed.
            ValueError: the budget is less than 1.
        """
        pack = await self.manager.context_pack(query, max_chars=max_chars, max_tokens=max_tokens)
        self.recent.note(_words_of(query), pack.trace_id, pack.sources)
        shown = self._cited_if_wanted(pack.sources, _session_of(query))
        return pack if shown is pack.sources else replace(pack, sources=shown)

    def _cited_if_wanted(
        self, results: tuple[MemorySearchResult, ...], session_key: str | None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the results without their citations where the settings want none."""
        mode = self.settings.memory.citations
        return results if is_wanted(mode, session_key) else cite(results, mode, session_key)

    async def _forgetting(self) -> "ForgettingScope":
        from composable_memory.forget.forgetting import ForgettingScope

        # Also the one that only stood in for another: its index is as it left it.
        pair = await self.pair.members() if self.pair else {}
        able = {id_: one for id_, one in pair.items() if self._declares(id_, Capability.FORGET)}
        able |= self._able_at(Capability.FORGET)
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

    async def _hand_over(
        self,
        contents: "Sequence[MemoryContentObject]",
        backend: str | None,
        give: "Callable[[SupportsIngest], Awaitable[IngestReport]]",
    ) -> "Mapping[str, IngestReport]":
        # A search, which opens a memory as well, does without these.
        from composable_memory.content import IngestReport, MemoryContentObject

        self.manager.require_usable("ingest")
        require_all("contents", contents, MemoryContentObject, "a list of MemoryContentObjects")
        require_text("backend", backend, optional=True)
        if not self._able_at(Capability.INGEST):
            specs = await asyncio.to_thread(self.registry.backend_specs)
            offered = [spec for spec in specs if Capability.INGEST in spec.capabilities]
            raise self._nobody("takes contents", offered)
        able = self._able(Capability.INGEST, "takes contents", backend)
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

    def _able(
        self, capability: Capability, what: str, backend: str | None
    ) -> Mapping[str, MemorySearchManager]:
        """Return the open backends that can do something, or the named one alone."""
        require_text("backend", backend, optional=True)
        able = self._able_at(capability)
        if backend is not None and backend in able:
            return {backend: able[backend]}
        if backend is not None and able:
            raise ConfigError("backend", f"{backend!r} is no open backend that {what}; {', '.join(able)} is")
        if able:
            return able
        raise self._nobody(what)

    def _nobody(self, what: str, able: Sequence[BackendSpec] = ()) -> ConfigError:
        """Return the error that no open backend does something; `able` are the installed ones that could."""
        lost = {one.backend_id: f"{one.backend_id}: {one.reason}" for one in self.unavailable()}
        problem = f"no open backend {what}" + (f" ({'; '.join(lost.values())})" if lost else "")
        keys = {one.id: self.settings.memory.section_key(one.id) for one in able}
        if key := next((key for backend_id, key in keys.items() if backend_id in lost), None):
            return ConfigError(key, problem)
        if not able:
            return ConfigError("memory", f"{problem}; `cmem backends list` shows which could, once enabled")
        return ConfigError(f"{keys[able[0].id]}.enabled", f"{problem}; set it to true: {able[0].summary}")

    def _able_at(self, capability: Capability) -> Mapping[str, MemorySearchManager]:
        """Return who can do something: also the primary in whose place another one answers meanwhile."""
        primary_id, primary = self.settings.memory.backend, self.pair.primary if self.pair else None
        able = self.manager.backends_with(capability)
        if primary is None or not self._declares(primary_id, capability):
            return able
        return {primary_id: primary, **able}

    def _declares(self, backend_id: str, capability: Capability) -> bool:
        found = self.registry.backend(backend_id)
        return bool(found and found.spec and capability in found.spec.capabilities)


def _words_of(query: str | QueryRequest) -> str:
    return query if isinstance(query, str) else query.query


def _session_of(query: str | QueryRequest) -> str | None:
    return None if isinstance(query, str) else query.options.session_key
