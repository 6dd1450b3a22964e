"""The graph memory as others see it: search, reading and browsing of facts, ingesting that loses nothing."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import Literal
from uuid import uuid4

from composable_memory.content import EmbedderInput, Health, IngestReport, MemoryContentObject
from composable_memory.errors import (
    BackendRejected,
    BackendUnavailable,
    ComposableMemoryError,
    EmbeddingError,
    MemoryPathError,
)
from composable_memory.facts import Adopted, Episode, Fact, Forgotten, GraphEntity, Neighbourhood
from composable_memory.interfaces import BackendServices, ProgressCallback
from composable_memory.query.intent import parse_query_intent
from composable_memory.supervision.tasks import Once
from composable_memory.time.windows import FAR_FUTURE, FAR_PAST, window_of
from composable_memory.types import (
    Degradation,
    DegradationCode,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    MemorySyncProgressUpdate,
    Origin,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.graphiti.episodes import (
    EpisodeDraft,
    drafts_of,
    named_in,
    no_text,
    owner_of,
    storable,
)
from composable_memory_adapters.graphiti.facts import (
    PATH_ROOT,
    as_result,
    episode_page,
    fact_page,
    ids_in,
    seen_from,
)
from composable_memory_adapters.graphiti.groups import (
    default_group,
    group_of,
    groups_to_search,
    is_of,
    is_readable,
    safe_group_id,
)
from composable_memory_adapters.graphiti.local import open_local
from composable_memory_adapters.graphiti.service import open_service
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.graphiti.status import Standing, describe
from composable_memory_adapters.graphiti.stores import Counts, FactAnswer, FactStore, Question
from composable_memory_adapters.graphiti.writing.backing_up import GraphBackup
from composable_memory_adapters.graphiti.writing.comparing import Comparison
from composable_memory_adapters.graphiti.writing.entries import ALIVE, Entry
from composable_memory_adapters.graphiti.writing.inheritance import moved_to, proven, stays_in
from composable_memory_adapters.graphiti.writing.ledger import Ledger, LedgerCounts
from composable_memory_adapters.graphiti.writing.merging import plan_merges
from composable_memory_adapters.graphiti.writing.worker import Outcome, Worker
from composable_memory_ops_logs import (
    QUERY_PREVIEW_CHARS,
    ErrorInfo,
    GraphitiHealth,
    GraphitiQuery,
    trace,
)

__all__ = ["GraphitiMemory", "open_graphiti"]

BACKEND_ID = "graphiti"
DEPTH = 24
"""So many facts are looked for at least, so that a short answer is the beginning of a longer one."""
MOST = 100_000
"""More than so many facts are no answer; a database would not take the number that somebody may write."""
BATCH_BY_RULES = 50
PROBE = EmbedderInput(text="ping", kind="query")
JOURNAL = "appendonlydir"
"""The folder in which a private server keeps its graphs."""
NOTHING_INGESTED = "the graph is empty; `cmem ingest MEMORY.md memory` takes the notes in"
COUNTED_FOR_S = 5.0
"""How long the numbers of the ledger are taken as unchanged; other processes write to it as well."""


@asynccontextmanager
async def open_graphiti(
    settings: GraphitiSettings, services: BackendServices
) -> AsyncIterator["GraphitiMemory"]:
    """Yield the graph memory; its server, files and tasks end with it.

    A database is reached, or a private one started, when it is first needed.

    Raises:
        BackendError: something it needs is not installed, or its folder cannot be used.
    """
    async with AsyncExitStack() as stack:
        folder = await asyncio.to_thread(_folder_of, settings, services)
        store: FactStore
        if settings.service_url:
            store = await stack.enter_async_context(open_service(settings, services))
        else:
            store = await stack.enter_async_context(open_local(settings, services, folder))
        ledger = await stack.enter_async_context(
            Ledger.open(folder, clock=services.clock, workspace=services.workspace_id)
        )
        is_new = await asyncio.to_thread(_holds_no_graph, settings, folder)
        memory = GraphitiMemory(
            settings, services, store=store, ledger=ledger, is_new=is_new, stack=stack.pop_all()
        )
        try:
            await memory.open()
            yield memory
        finally:
            await memory.close()


class GraphitiMemory:
    """Facts in a graph; keeps `MemorySearchManager` and what the spec declares beyond it."""

    def __init__(
        self,
        settings: GraphitiSettings,
        services: BackendServices,
        *,
        store: FactStore,
        ledger: Ledger,
        is_new: bool,
        stack: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._services = services
        self._store = store
        self._ledger = ledger
        self._is_new = is_new
        self._stack = stack
        # A service has no way to put one episode in the place of several.
        unmerged = {"merge_after_days": 0.0} if settings.service_url else {}
        self._ingest = settings.ingest.model_copy(update=unmerged)
        self._worker = Worker(
            ledger,
            store,
            self._ingest,
            ops_log=services.ops_log,
            clock=services.clock,
            batch_size=1 if settings.uses_llm else BATCH_BY_RULES,
        )
        self._comparison = self._new_comparison()
        self._waiting = LedgerCounts()
        self._counted_at: datetime | None = None
        self._counts = Counts()
        self._default = default_group(services.agent_id, services.workspace_id)
        self._claimed: frozenset[str] = frozenset()
        self._set_aside: Mapping[str, int] = {}
        self._health: Health | None = None
        self._is_closed = False
        self._release = Once(self._let_go, name="graphiti-close")

    async def open(self) -> None:
        """Look into the ledger, and begin to work through it where the memory stays open."""
        await self._backups.finish()
        await self._take_over()
        await self._count_waiting()
        if self._services.is_long_lived:
            self._worker.start()

    async def _take_over(self) -> None:
        """Take over what was taken in before workspaces were told apart, as far as it is certainly ours."""
        self._set_aside = await self._ledger.of_nobody()
        is_private = not (self._settings.service_url or self._settings.url)
        if self._set_aside and self._services.inherits and is_private:
            shared = safe_group_id(self._settings.group) if self._settings.group else None
            await self._ledger.inherit(shared=shared)
        elif self._set_aside and (self._services.is_long_lived or not (await self._ledger.counts()).by_state):
            await self._adopt_what_is_free()
        self._set_aside = await self._ledger.of_nobody()
        self._claimed = await self._ledger.claimed()
        if safe_group_id(self._services.agent_id) in self._claimed:
            self._default = self._services.agent_id

    async def _adopt_what_is_free(self) -> None:
        """Take over what is certainly ours; what a model would read once more waits for its owner's word."""
        is_free = not (self._settings.uses_llm or self._settings.service_url)
        await self._adopt(everything=self._services.inherits, again=is_free)

    async def _adopt(self, *, everything: bool, again: bool) -> int:
        """Take episodes over; with `again` also those that have to be read once more, for another group."""
        found = await self._ledger.entries_of_nobody()
        # What another workspace took back, by a note of the same name, holds if a note of ours still says it.
        ours = {one.id for one in await asyncio.to_thread(proven, found, self._services.workspace_dir)}
        entries = [one for one in found if one.id in ours or (everything and one.state in ALIVE)]
        taken = [entry for entry in entries if stays_in(entry, self._settings)]
        moved = [
            (entry, draft)
            for entry in (entries if again else ())
            if (draft := self._moved(entry)) is not None
        ]
        await self._ledger.move(moved, taken)
        return len(taken) + len(moved)

    def _moved(self, entry: Entry) -> EpisodeDraft | None:
        return moved_to(entry, self._settings, agent_id=self._services.agent_id, default=self._default)

    # --- asking ---------------------------------------------------------------------------------------------

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        """Return the facts that answer `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and say what is missing; a question of a time is answered with what held then."""
        self._require_open("search")
        options = options or SearchOptions()
        if not query.strip():
            return SearchAnswer(results=())
        await self._count_waiting()
        if self._is_empty:
            return SearchAnswer(results=(), degraded=(_degradation("never-indexed", NOTHING_INGESTED),))
        now = self._services.clock()
        hints = parse_query_intent(query).time_hints
        window = window_of(hints, now)
        question = Question(
            text=query,
            groups=groups_to_search(self._settings, self._default, options.session_key),
            limit=min(max(DEPTH, options.max_results), MOST),
            now=now,
            window=window,
            when=" ".join(hint.phrase for hint in hints) if window else "",
        )
        answer = await self._ask(question)
        results = [as_result(replace(scored, fact=self._cited(scored.fact)), now) for scored in answer.facts]
        kept = [one for one in results if one.exact or one.score >= options.min_score]
        return SearchAnswer(
            results=tuple(kept[: options.max_results]),
            degraded=(*answer.degraded, *self._shortcomings(), *self._emptiness(answer)),
            engines=answer.engines,
        )

    async def _ask(self, question: Question) -> FactAnswer:
        began = perf_counter()
        try:
            await self._compare(question.groups)
            answer = await self._store.search(question)
        except ComposableMemoryError as error:
            self._log_query(question, began, error=error)
            self._note_health(Health(ok=False, message=str(error)))
            raise
        self._log_query(question, began, answer)
        self._note_health(Health(ok=True))
        return answer

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return the page of a fact, with its history and its sources, or the text of an episode.

        What is not there has no text, and neither has what is in a group that is not ours to read.
        """
        self._require_open("read a fact")
        ids = ids_in(rel_path)
        if ids is None:
            raise MemoryPathError(rel_path, "it is no fact", allowed=[f"{PATH_ROOT}/<group>/<id>"])
        is_open = self._may_read(ids[0]) and await self._has_facts("read a fact")
        text = await self._page(*ids) if is_open else ""
        return MemoryFileSlice(text=excerpt(text, from_line, lines), path=rel_path)

    async def _page(self, group_id: str, own_id: str) -> str:
        fact = await self._store.fact(group_id, own_id)
        if fact is None:
            episode = await self._store.episode(group_id, own_id)
            if episode is None:
                return ""
            return episode_page(self._episode_cited(episode), await self._originals(episode.id))
        history = await self._store.history(fact)
        found = [one for id_ in fact.episodes if (one := await self._store.episode(group_id, id_))]
        sources = [self._episode_cited(one) for one in found]
        return fact_page(fact, self._services.clock(), history=history, sources=sources)

    async def _originals(self, episode_id: str) -> Sequence[EpisodeDraft]:
        return await self._ledger.originals(episode_id)

    # --- looking through the facts --------------------------------------------------------------------------

    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        """Return facts, the newest first."""
        if not await self._has_facts("list facts"):
            return ()
        current_at = self._services.clock() if current_only else None
        as_of = None if as_of is None else _in_utc(as_of)
        found = await self._store.facts(
            self._groups, about=about, as_of=as_of, current_at=current_at, limit=limit
        )
        return [self._cited(fact) for fact in found]

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        """Return entities, those with most facts first."""
        if not await self._has_facts("list entities"):
            return ()
        return await self._store.entities(self._groups, named=named, limit=limit)

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        """Return what was ingested, the latest observed first."""
        if not await self._has_facts("list episodes"):
            return ()
        return [self._episode_cited(one) for one in await self._store.episodes(self._groups, limit=limit)]

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        """Return the facts about one entity in the order of the time they hold from."""
        if not await self._has_facts("tell a timeline"):
            return ()
        return [self._cited(one) for one in await self._store.timeline(self._groups, entity, limit=limit)]

    async def neighbourhood(
        self, entity: str | None = None, *, depth: int = 1, limit: int = 200
    ) -> Neighbourhood:
        """Return at most `limit` facts within `depth` steps of an entity, or the newest of all."""
        if not await self._has_facts("draw a neighbourhood"):
            return Neighbourhood()
        found = await self._store.neighbourhood(self._groups, entity, depth=depth, limit=limit)
        return replace(found, facts=tuple(map(self._cited, found.facts)))

    async def forget(self, episode_id: str) -> Forgotten:
        """Remove an episode for good: from the graph, with what only it supports, and from the ledger.

        Raises:
            BackendRejected: there is no such episode.
        """
        self._require_open("forget an episode")
        named = ids_in(episode_id)
        groups = tuple(filter(self._may_read, named[:1])) if named else self._groups
        wanted = named[1] if named else storable(episode_id)
        gone: list[Forgotten] = []
        for group in groups:
            # What is just being stored would else write facts of an episode that is gone.
            async with self._worker.alone(group):
                gone += await self._forget(group, wanted)
        if not gone:
            raise BackendRejected(
                BACKEND_ID,
                "forget an episode",
                status="no such episode",
                body=f"{episode_id}; `cmem graph episodes` lists them",
            )
        await self._take_stock()
        return Forgotten(
            episode_id=gone[0].episode_id,
            facts=sum(one.facts for one in gone),
            entities=sum(one.entities for one in gone),
        )

    async def _forget(self, group: str, wanted: str) -> list[Forgotten]:
        kept = await self._ledger.named(group, wanted)
        if not kept:
            kept = await self._ledger.named(group, named_in(self._services.workspace_id, wanted))
        _refuse_merged(kept)
        gone: list[Forgotten] = []
        for id_ in dict.fromkeys([*(entry.id for entry in kept), wanted]):
            forgotten = await self._store.forget(group, id_)
            gone += [forgotten] if forgotten else []
        await self._ledger.forget([entry.id for entry in kept])
        return gone or [Forgotten(episode_id=entry.id, facts=0, entities=0) for entry in kept]

    async def adopt(self, *, everything: bool = False) -> Adopted:
        """Take over episodes from before workspaces were told apart, and store them with what else waits.

        Without `everything` they are those whose text is in the note of this workspace that they name.
        """
        self._require_open("take episodes over")
        with trace():
            adopted = await self._adopt(everything=everything, again=True)
            await self._worker.work()
            await self._take_stock()
            self._set_aside = await self._ledger.of_nobody()
        return Adopted(episodes=adopted, left=sum(self._set_aside.values()))

    async def backup(self, folder: Path) -> Mapping[str, int]:
        """Copy what this workspace told a private graph; of another, only count what is there."""
        self._require_open("back up")
        with trace():
            await self._count_waiting(anew=True)
            if self._is_empty:
                return {}
            with suppress(ComposableMemoryError):  # it shows again when the graph is copied
                await self._compare(self._groups)
            return await self._backups.write(folder)

    async def restore(self, folder: Path, *, replace: bool = False) -> Mapping[str, int]:
        """Make what `backup` wrote what this workspace has told the graph."""
        self._require_open("restore")
        with trace():
            counts = await self._backups.restore(folder, replace=replace)
            self._is_new = False
            self._comparison = self._new_comparison()
            with suppress(ComposableMemoryError):  # vectors that are lacking are made with the next index
                await self._store.refresh(self._groups, force=False)
            await self._take_stock()
            self._worker.wake()
        return counts

    # --- taking in ------------------------------------------------------------------------------------------

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        """Take contents in: safe in the ledger first, then as facts in the graph."""
        self._require_open("ingest")
        with trace():
            drafts = await self._drafts(contents)
            flat = [draft for one in drafts for draft in one]
            with self._worker.leaving(self._touched(drafts) if wait else ()):
                taken = await self._ledger.enqueue(flat)
                return await self._work_off(contents, drafts, set(taken.known), wait=wait)

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        """Take contents in as all that `path` says now; what it said before holds no more."""
        self._require_open("ingest")
        with trace():
            drafts = await self._drafts(contents)
            known: set[str] = set()
            with self._worker.leaving(self._touched(drafts) if wait else ()):
                for group in self._touched(drafts):
                    of_group = [one for some in drafts for one in some if one.group_id == group]
                    source = named_in(self._told_apart_by, storable(path))
                    taken = await self._ledger.replace_source(source, of_group, group_id=group)
                    known |= set(taken.known)
                return await self._work_off(contents, drafts, known, wait=wait)

    def _touched(self, drafts: Sequence[tuple[EpisodeDraft, ...]]) -> list[str]:
        """Return the groups that the drafts go to, and the agent's own, where a source may have been."""
        return sorted({draft.group_id for some in drafts for draft in some} | {self._groups[0]})

    async def _drafts(self, contents: Sequence[MemoryContentObject]) -> list[tuple[EpisodeDraft, ...]]:
        """Return the episodes of each content; those of ten megabytes take a second, so in a thread."""
        return await asyncio.to_thread(lambda: [self._drafts_of(content) for content in contents])

    def _drafts_of(self, content: MemoryContentObject) -> tuple[EpisodeDraft, ...]:
        return drafts_of(
            content,
            group_id=group_of(self._settings, self._default, content.provenance),
            now=self._services.clock(),
            max_chars=self._settings.ingest.max_episode_chars,
            workspace_id=self._told_apart_by,
        )

    async def _work_off(
        self,
        contents: Sequence[MemoryContentObject],
        drafts: Sequence[tuple[EpisodeDraft, ...]],
        known: set[str],
        *,
        wait: bool,
    ) -> IngestReport:
        if wait:
            with suppress(ComposableMemoryError):  # the ledger knows what waits for a graph that is not there
                await self._compare(self._touched(drafts))
            outcome = await self._worker.work(self._touched(drafts))
            await self._take_stock()
        else:
            outcome = Outcome()
            await self._count_waiting(anew=True)  # the next search is not to call the graph empty
        self._worker.wake()  # for what came in, or has to be tried again
        entries = await self._ledger.entries([draft.id for some in drafts for draft in some])
        report = _report(contents, drafts, known, {entry.draft_id: entry for entry in entries}, outcome)
        if wait and report.pending and not report.problems and self._waiting.last_error:
            # They have not been tried, since what came before them was in trouble.
            report = replace(report, problems=(self._waiting.last_error,))
        return report

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Work off what waits in the ledger, and bring the graph's indexes and vectors in step.

        What rests after trouble is tried at once. `force` tries again what was given up as well, and makes
        all vectors anew.
        """
        self._require_open("sync")
        with trace():
            _tell(progress, 0)
            await (self._ledger.revive() if force else self._ledger.hurry())
            if self._set_aside:
                await self._adopt_what_is_free()
                self._set_aside = await self._ledger.of_nobody()
            await plan_merges(self._ledger, self._ingest, now=self._services.clock())
            await self._count_waiting(anew=True)
            if self._is_empty:
                _tell(progress, 1)
                return SyncReport(reason=reason)
            with suppress(ComposableMemoryError):  # which says itself that it cannot be reached
                await self._comparison.go_anew(force=force)
            outcome = await self._worker.work()
            self._worker.wake()  # for what has to be tried again
            lacking = await self._store.refresh(self._groups, force=force)
            await self._take_stock()
            _tell(progress, 1)
        return SyncReport(
            reason=reason,
            files_indexed=outcome.stored + outcome.sent,
            files_removed=outcome.retired,
            chunks_written=outcome.facts,
            problems=(*outcome.problems, *lacking),
        )

    # --- how it is ------------------------------------------------------------------------------------------

    def status(self) -> MemoryProviderStatus:
        """Return what was known after the last call that looked; asks nobody."""
        self._require_open("report its status")
        standing = Standing(
            place=self._store.describe(),
            waiting=self._waiting,
            missing=self._comparison.missing,
            ledger_problem=self._ledger.problem,
            counts=self._counts,
            health=self._health,
            groups=self._groups,
            background_problem=self._worker.problem,
            set_aside=self._set_aside,
        )
        return describe(self._settings, self._services, standing)

    async def health(self) -> Health:
        """Ask the place of the facts how it is."""
        self._require_open("ask for its health")
        health = await self._store.health()
        if health.ok and not self._is_empty:
            await self._compare(self._groups)
        self._note_health(health, always=True)
        return health

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Embed a word and say whether it worked."""
        self._require_open("probe the embedder")
        if self._settings.service_url:
            return MemoryEmbeddingProbeResult(ok=False, error="the service embeds by itself")
        embedder = self._services.embedder
        if embedder is None:
            problem = self._services.embedder_problem or "no embedding provider is configured"
            return MemoryEmbeddingProbeResult(ok=False, error=problem)
        try:
            await embedder.embed(PROBE)
        except EmbeddingError as error:
            return MemoryEmbeddingProbeResult(ok=False, error=str(error))
        return MemoryEmbeddingProbeResult(ok=True)

    async def probe_vector_availability(self) -> bool:
        """Say whether facts can be compared by meaning: there is an embedder, and the graph answers."""
        self._require_open("probe vector search")
        if self._services.embedder is None and not self._settings.service_url:
            return False
        return self._is_empty or (await self.health()).ok

    async def close(self) -> None:
        """Stop working, let go of the server and the files; calling it again does nothing."""
        self._is_closed = True
        await self._release()

    async def _let_go(self) -> None:
        await self._worker.close()
        await self._stack.aclose()

    # --- what is known --------------------------------------------------------------------------------------

    @property
    def _groups(self) -> tuple[str, ...]:
        return groups_to_search(self._settings, self._default)

    def _may_read(self, group_id: str) -> bool:
        return is_readable(self._settings, self._default, group_id)

    @property
    def _told_apart_by(self) -> str | None:
        """Return what tells our episodes from those of others in a group that is asked for by name."""
        return self._services.workspace_id if self._settings.group else None

    def _cited(self, fact: Fact) -> Fact:
        """Return a fact with its origins as this workspace cites them, its own files first."""
        seen = [self._seen(origin, fact.group_id) for origin in fact.origins]
        return replace(
            fact, origins=tuple(sorted(seen, key=lambda one: one.path.startswith(f"{PATH_ROOT}/")))
        )

    def _episode_cited(self, episode: Episode) -> Episode:
        origin = episode.origin and self._seen(episode.origin, episode.group_id)
        owner, content_id = owner_of(episode.content_id)
        if owner != self._services.workspace_id:
            content_id = episode.content_id
        return replace(episode, origin=origin, content_id=content_id)

    def _seen(self, origin: Origin, group_id: str) -> Origin:
        is_ours = group_id in self._claimed or is_of(self._default, group_id)
        return seen_from(origin, group_id, workspace_id=self._services.workspace_id, is_ours=is_ours)

    def _new_comparison(self) -> Comparison:
        return Comparison(self._ledger, self._store, is_shared=self._settings.url is not None)

    @property
    def _backups(self) -> GraphBackup:
        return GraphBackup(
            self._ledger,
            self._store.copies(),
            self._settings,
            alone=self._worker.alone,
            default=self._default,
            workspace_id=self._services.workspace_id,
        )

    @property
    def _is_empty(self) -> bool:
        """Say whether a private graph has nothing in it; then no server needs to start."""
        return self._is_new and not any(self._waiting.by_state.values())

    async def _has_facts(self, operation: str) -> bool:
        self._require_open(operation)
        await self._count_waiting(anew=True)
        if self._is_empty:
            return False
        await self._compare(self._groups)
        return True

    async def _compare(self, groups: Iterable[str]) -> None:
        """See to it, once, that the graph holds what the ledger calls stored."""
        if await self._comparison.go(groups):
            await self._count_waiting(anew=True)
            self._worker.wake()

    async def _count_waiting(self, *, anew: bool = False) -> None:
        now = self._services.clock()
        if anew or self._counted_at is None or abs((now - self._counted_at).total_seconds()) >= COUNTED_FOR_S:
            self._waiting, self._counted_at = await self._ledger.counts(), now

    async def _take_stock(self) -> None:
        """Count what is there; that the place cannot be reached is told elsewhere."""
        await self._count_waiting(anew=True)
        if self._is_empty:
            return
        try:
            self._counts = await self._store.counts(self._groups)
        except ComposableMemoryError as error:
            self._note_health(Health(ok=False, message=str(error)))
        else:
            self._note_health(Health(ok=True))

    def _emptiness(self, answer: FactAnswer) -> Iterator[Degradation]:
        """Say that nothing was found since this workspace has told nothing, and where others' facts are."""
        if not answer.facts and not any(self._waiting.by_state.values()):
            others = "; the graph of others is asked by its name, in memory.graphiti.group or also_search"
            yield _degradation("never-indexed", NOTHING_INGESTED + others)

    def _shortcomings(self) -> Iterator[Degradation]:
        """Say in what the graph falls short of what was handed in."""
        waiting, failed = self._waiting.pending, self._waiting.by_state.get("failed", 0)
        why = f": {self._waiting.last_error}" if self._waiting.last_error else ""
        if waiting:
            yield _degradation("stale", f"{waiting} episodes wait to be stored{why}")
        if self._ledger.problem:
            yield _degradation("stale", self._ledger.problem)
        if missing := self._comparison.missing:
            gone = f"{missing} episodes that were stored from here are not in the graph any more"
            why = "it lost them, or somebody removed them; `cmem index --force` stores them again"
            yield _degradation("stale", f"{gone}: {why}")
        if failed:
            yield _degradation("stale", f"{failed} episodes were given up, see `cmem index --force`{why}")
        if self._worker.problem:
            yield _degradation("stale", self._worker.problem)

    def _note_health(self, health: Health, *, always: bool = False) -> None:
        """Remember and log how the place is, when that changes or somebody asked."""
        changed = health.ok != (self._health is None or self._health.ok)
        self._health = health
        if changed or always:
            self._services.ops_log.emit(
                GraphitiHealth(ok=health.ok, message=health.message),
                status="success" if health.ok else "failure",
                backend=BACKEND_ID,
            )

    def _log_query(
        self,
        question: Question,
        began: float,
        answer: FactAnswer | None = None,
        *,
        error: ComposableMemoryError | None = None,
    ) -> None:
        facts = [scored.fact for scored in answer.facts] if answer else []
        self._services.ops_log.emit(
            GraphitiQuery(
                query=question.text[:QUERY_PREVIEW_CHARS],
                limit=question.limit,
                fact_count=len(facts),
                node_ids=[fact.id for fact in facts],
                episode_ids=list(dict.fromkeys(id_ for fact in facts for id_ in fact.episodes)),
                error=ErrorInfo.of(error) if error else None,
            ),
            status="failure" if error else "success",
            backend=BACKEND_ID,
            duration_ms=(perf_counter() - began) * 1000,
        )

    def _require_open(self, operation: str) -> None:
        if self._is_closed:
            raise BackendUnavailable(BACKEND_ID, "it is closed", fix="open it again", operation=operation)


def _report(
    contents: Sequence[MemoryContentObject],
    drafts: Sequence[tuple[EpisodeDraft, ...]],
    known: set[str],
    entries: Mapping[str, Entry],
    outcome: Outcome,
) -> IngestReport:
    """Say of each content what became of its episodes; the worst of them counts."""
    fates = Counter(_fate(of_content, known, entries) for of_content in drafts)
    blank = [no_text(content) for content, some in zip(contents, drafts, strict=True) if not some]
    warnings = [warning for some in drafts for draft in some for warning in draft.warnings]
    errors = [entry.last_error for entry in entries.values() if entry.last_error and entry.state != "done"]
    return IngestReport(
        run_id=str(uuid4()),
        stored=fates["stored"],
        known=fates["known"],
        pending=fates["pending"],
        failed=fates["failed"],
        entities=outcome.entities,
        facts=outcome.facts,
        warnings=(*blank, *warnings),
        problems=tuple(dict.fromkeys([*(one.message for one in blank), *errors, *outcome.problems])),
    )


def _fate(
    drafts: tuple[EpisodeDraft, ...], known: set[str], entries: Mapping[str, Entry]
) -> Literal["stored", "known", "pending", "failed"]:
    states = {entries[draft.id].state for draft in drafts if draft.id in entries}
    if not drafts or "failed" in states:
        return "failed"
    if states & {"queued", "sent", "merging"}:
        return "pending"
    return "known" if all(draft.id in known for draft in drafts) else "stored"


def _refuse_merged(entries: Sequence[Entry]) -> None:
    """What was merged cannot be taken out of the text that it is part of now; that whole can be forgotten."""
    for entry in entries:
        if entry.merged_into is not None:
            whole = f"it is part of episode {entry.merged_into} now; forget that one"
            raise BackendRejected(BACKEND_ID, "forget an episode", status="merged", body=whole)


def _folder_of(settings: GraphitiSettings, services: BackendServices) -> Path:
    """Make the folder of the ledger and the private server; every place for facts has a ledger of its own."""
    place = settings.service_url or settings.url
    name = f"graphiti-{sha256(place.encode()).hexdigest()[:12]}" if place else "graphiti"
    folder = services.state_dir / name
    if place is None and settings.private.dir is not None:
        folder = services.workspace_dir / settings.private.dir.expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        missing = f"the folder {folder} cannot be made ({error.strerror})"
        raise BackendUnavailable(BACKEND_ID, missing, fix="set memory.graphiti.private.dir") from error
    return folder


def _holds_no_graph(settings: GraphitiSettings, folder: Path) -> bool:
    """Say whether the graph is a private one that was never started; a ledger may be lost, or moved away."""
    return not (settings.service_url or settings.url or (folder / JOURNAL).exists())


def _in_utc(moment: datetime) -> datetime:
    """Return a time in UTC; one without a zone is taken for UTC, and what no calendar has for its end."""
    try:
        return moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment.astimezone(UTC)
    except OverflowError:
        return FAR_PAST if moment.year == 1 else FAR_FUTURE


def _tell(progress: ProgressCallback | None, completed: int) -> None:
    if progress is not None:
        progress(MemorySyncProgressUpdate(completed=completed, total=1, label="the graph"))


def _degradation(code: DegradationCode, reason: str) -> Degradation:
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)
