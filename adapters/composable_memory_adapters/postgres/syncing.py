"""One sync of a folder into its workspace on the server: writes changes and removes what is gone."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from composable_memory.errors import BackendError, EmbedderUnavailable, EmbeddingError
from composable_memory.interfaces import BackendServices, EmbedderAdapter
from composable_memory.supervision.single_flight import Flight
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters.builtin.notes.changed_notes import (
    ChangedNote,
    Drafter,
    DraftGroup,
    FileState,
    gone_notes,
)
from composable_memory_adapters.builtin.notes.documents import Document, note_suffixes
from composable_memory_adapters.builtin.notes.note_files import ScanReport, scan
from composable_memory_adapters.builtin.notes.sessions import growth_limits, transcripts_folder
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace, answer_within, pack
from composable_memory_adapters.postgres import writing
from composable_memory_adapters.postgres.passage_tokens import vector_of
from composable_memory_adapters.postgres.server import Server
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_adapters.postgres.writing import OTHER_SPACE, WordedFile, Written, space_id
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.private_files import make_private_folder, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

BATCH = 64
AHEAD_S = 1.0
"""How long the text of a few passages waits for their vectors; later vectors are written after it."""
BATCH_TIMEOUT_S = 600.0
FAILURES_IN_A_ROW = 4
OWNERS = "postgres/owners"
"""In the state folder, with a file for each workspace that has the owner name of its folder."""


@dataclass(slots=True, kw_only=True)
class _Run:
    """What a sync has found and done so far."""

    scan: ScanReport
    drafter: Drafter
    changed: Sequence[ChangedNote]
    gone: Sequence[str]
    indexed: int = 0
    unread: int = 0
    passages: int = 0
    removed: int = 0
    embedded: int = 0
    pending: int = 0
    problems: list[str]

    def add(self, written: Written) -> None:
        self.indexed += written.files
        self.passages += written.passages
        self.removed += written.removed
        self.embedded += written.vectors


class Syncing:
    """Syncs the notes of one folder; only one flight at a time may call `run`."""

    def __init__(
        self,
        server: Server,
        *,
        settings: PostgresSettings,
        notes: BuiltinSettings,
        services: BackendServices,
        space: EmbeddingSpace | None,
        workspace: str,
    ) -> None:
        self._server = server
        self._notes = notes
        self._services = services
        self._space = space
        self._workspace = workspace
        self.owner = settings.owner
        """The owner name of the folder; None until the first sync if the settings have none."""
        self._late: asyncio.Task[dict[str, bytes]] | None = None
        """Embeds meanwhile what was written without vectors."""

    async def run(self, flight: Flight) -> SyncReport:
        """Sync once."""
        try:
            return await self._run(flight)
        finally:
            if self._late is not None:
                self._late.cancel()
                await asyncio.gather(self._late, return_exceptions=True)

    async def _run(self, flight: Flight) -> SyncReport:
        if self.owner is None:
            self.owner = await asyncio.to_thread(own_name, self._services)
        owner = self.owner
        find = partial(self._server.tenant, "sync", self._workspace, is_new=True)
        tenant = await self._server.again(find)
        assert tenant is not None
        run = await self._look(tenant, owner, flight)
        done = 0
        total = len(run.changed)
        flight.tell(MemorySyncProgressUpdate(completed=0, total=total, label="Indexing"))
        while done < total:
            documents = await self._documents(run.changed, done)
            group, files = await asyncio.to_thread(_read, run, done, documents)
            run.unread += len(group.unread)
            faults = {one.key: one.fault for one in group.drafts}
            run.problems += [f"{key}: {why}" for key, why in (group.unread | faults).items() if why]
            write = partial(
                writing.write_files,
                tenant=tenant,
                owner=owner,
                files=files,
                space=space_id(self._space) if self._space else "",
                vectors={} if flight.force else await self._embedded_ahead(tenant, files),
                force=flight.force,
            )
            run.add(await self._server.write("sync", write, tenant=tenant))
            done = group.end
            flight.tell(MemorySyncProgressUpdate(completed=done, total=total, label="Indexing"))
        if run.gone:
            remove = partial(writing.remove_files, tenant=tenant, owner=owner, paths=run.gone)
            run.add(await self._server.write("sync", remove, tenant=tenant))
        flight.mark_notes_indexed()
        await self._embed(tenant, run, flight)
        return _report(run, flight)

    async def _look(self, tenant: int, owner: str, flight: Flight) -> _Run:
        """Compare the folder with what it contributed; the known state is read before the disk."""
        find = partial(writing.known_files, tenant=tenant, owner=owner)
        known = await self._server.read("sync", find, tenant=tenant)
        if flight.force:
            known = {key: seen._replace(recipe="") for key, seen in known.items()}
        return await asyncio.to_thread(self._compare, known, flight.reason)

    def _compare(self, known: dict[str, FileState], reason: str) -> _Run:
        notes, services = self._notes, self._services
        found = scan(
            services.workspace_dir,
            notes.extra_paths,
            sources=notes.sources,
            transcripts=transcripts_folder(notes, services),
            suffixes=note_suffixes(notes.documents),
            most=notes.max_files,
        )
        drafter = Drafter(
            chunking=notes.chunking,
            keywords=True,
            growth_limits=growth_limits(reason, notes.sync.sessions),
            hide=services.hide,
            forgotten=services.forgotten(),
        )
        unreadable = [f"{key or services.workspace_dir}: {why}" for key, why in found.unreadable.items()]
        return _Run(
            scan=found,
            drafter=drafter,
            changed=drafter.changed(found, known),
            gone=[*gone_notes(found, known)],
            problems=[*unreadable, *found.remarks],
        )

    async def _documents(self, changed: Sequence[ChangedNote], done: int) -> Mapping[str, Document | OSError]:
        if not self._notes.documents:
            return {}
        # Imported late: no other notes need the code that runs processes.
        from composable_memory_adapters.builtin.sync.document_texts import read_next

        return await read_next(None, changed, done)

    # --- vectors ------------------------------------------------------------------------------------------

    async def _embedded_ahead(self, tenant: int, files: Sequence[WordedFile]) -> Mapping[str, bytes]:
        """Return the vectors of a few passages by the hashes of their texts, if available at once.

        Otherwise they are embedded with all that have none, which reports the reason.
        """
        texts = {chunk.hash: chunk.text for one in files for chunk in one.chunks}
        embedder, space = self._services.embedder, self._space
        if embedder is None or space is None or self._late is not None or not 0 < len(texts) <= BATCH:
            return {}
        look = partial(writing.known_vectors, tenant=tenant, hashes=[*texts])
        known, claimed = await self._server.read("sync", look, tenant=tenant)
        new = {hash_: text for hash_, text in texts.items() if hash_ not in known}
        if not new or claimed not in (None, space_id(space)):
            return {}
        asked = self._late = asyncio.create_task(_embedded(embedder, space, new))
        done, _ = await asyncio.wait({asked}, timeout=AHEAD_S)
        if done:
            self._late = None
            with suppress(EmbeddingError):
                return asked.result()
        return {}

    async def _embed(self, tenant: int, run: _Run, flight: Flight) -> None:
        """Embed everything in the workspace that has no vector, whoever wrote it."""
        embedder, space = self._services.embedder, self._space
        if embedder is None or space is None:
            return
        own = space_id(space)
        claim = partial(writing.claim_space, tenant=tenant, space=own, force=flight.force)
        look = partial(writing.pending_and_space, tenant=tenant)
        run.pending, claimed = await self._server.read("sync", look, tenant=tenant)
        if claimed is None or (flight.force and claimed != own):
            await self._server.write("sync", claim, tenant=tenant)
            run.pending, claimed = await self._server.read("sync", look, tenant=tenant)
        if claimed != own:
            run.problems += [OTHER_SPACE] if run.pending else []
        elif run.pending:
            await self._embed_pending(embedder, space, tenant, run, flight)
            if run.pending:  # or others have embedded them
                run.pending, _ = await self._server.read("sync", look, tenant=tenant)

    async def _embed_pending(
        self, embedder: EmbedderAdapter, space: EmbeddingSpace, tenant: int, run: _Run, flight: Flight
    ) -> None:
        """Embed page by page, newest first, each text once; if a batch is refused, text by text."""
        if self._late is not None:
            try:
                vectors = await self._late
            except EmbedderUnavailable as error:
                run.problems.append(str(error))
                return
            except EmbeddingError:  # these texts are requested again below
                vectors = {}
            if not await self._store(tenant, space, vectors, run):
                return
            look = partial(writing.pending_and_space, tenant=tenant)
            run.pending, _ = await self._server.read("sync", look, tenant=tenant)
        before: int | None = writing.LAST
        seen: set[str] = set()
        failures = 0
        count = min(run.pending, writing.PENDING_PAGE)  # usually just written, with nothing before it
        while before is not None and run.pending > 0:
            find = partial(writing.pending, tenant=tenant, before=before, count=count)
            before, found = await self._server.read("sync", find, tenant=tenant)
            count = writing.PENDING_PAGE
            texts = [*{hash_: text for hash_, text in found if hash_ not in seen}.items()]
            seen.update(hash_ for hash_, _ in texts)
            batches = [dict(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
            while batches:
                batch = batches.pop(0)
                try:
                    vectors = await _embedded(embedder, space, batch)
                except EmbeddingError as error:
                    is_away = isinstance(error, EmbedderUnavailable)
                    if len(batch) > 1 and not is_away:
                        batches = [{hash_: text} for hash_, text in batch.items()] + batches
                        continue
                    run.problems.append(str(error))
                    failures += 1
                    if is_away or failures == FAILURES_IN_A_ROW:
                        return
                    continue
                failures = 0
                if not await self._store(tenant, space, vectors, run):
                    return
                run.pending -= sum(hash_ in vectors for hash_, _ in found)
                done = len(run.changed) + run.embedded
                total = done + max(0, run.pending)
                flight.tell(MemorySyncProgressUpdate(completed=done, total=total, label="Embedding"))

    async def _store(
        self, tenant: int, space: EmbeddingSpace, vectors: Mapping[str, bytes], run: _Run
    ) -> bool:
        """Store vectors; return false if the workspace now has vectors of another space."""
        write = partial(writing.write_vectors, tenant=tenant, space=space_id(space), vectors=vectors)
        if not await self._server.write("sync", write, tenant=tenant):
            run.problems.append(OTHER_SPACE)
            return False
        run.embedded += len(vectors)
        return True


def own_name(services: BackendServices) -> str:
    """Return the owner name of a workspace's folder: machine and workspace id at the first sync.

    It is kept in the state folder, because machines and containers change their names.

    Raises:
        BackendError: the state folder cannot be used.
    """
    path = services.state_dir / OWNERS / services.workspace_id
    try:
        with suppress(FileNotFoundError):
            if kept := path.read_text(encoding="utf-8").strip():
                return kept
        name = f"{socket.gethostname()}:{services.workspace_id}"
        make_private_folder(path.parent)
        replace_file(path, name.encode(), survives="power cut")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{path}, which names this folder on the server, cannot be used ({error})"
        raise BackendError(services.backend_id or "postgres", "sync", problem) from error
    return name


def _read(
    run: _Run, start: int, documents: Mapping[str, Document | OSError]
) -> tuple[DraftGroup, list[WordedFile]]:
    group = run.drafter.group(run.changed, start, documents)
    return group, [writing.worded(draft) for draft in group.drafts]


async def _embedded(
    embedder: EmbedderAdapter, space: EmbeddingSpace, texts: Mapping[str, str]
) -> dict[str, bytes]:
    inputs = [EmbedderInput(text=text, id=hash_) for hash_, text in texts.items()]
    vectors = await answer_within(BATCH_TIMEOUT_S, embedder.embed_batch(inputs), space)
    if len(vectors) != len(inputs):
        problem = f"it returned {counted(len(vectors), 'vector')} for {counted(len(inputs), 'text')}"
        raise EmbeddingError(space.provider, space.model, problem)
    return {hash_: vector_of(pack(space, vector)) for hash_, vector in zip(texts, vectors, strict=True)}


def _report(run: _Run, flight: Flight) -> SyncReport:
    return SyncReport(
        reason=flight.reason,
        files_indexed=run.indexed,
        files_unchanged=max(0, len(run.scan.files) - run.indexed - run.unread),
        files_removed=run.removed,
        chunks_written=run.passages,
        embedded=run.embedded,
        embeddings_pending=run.pending,
        problems=tuple(run.problems),
        passed_over=run.scan.passed_over,
    )
