"""Every promise that parts of a memory make to each other, and the capabilities a backend may declare.

A Protocol has no optional method. What a backend may leave out is a `Supports…` Protocol of its own; a
backend declares it as a `Capability` in its `BackendSpec`, and the declaration is checked once, when the
backend opens.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from composable_memory.types import (
    BatchStatus,
    ContextPack,
    FallbackStatus,
    JsonValue,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    MemorySource,
    MemorySyncProgressUpdate,
    QueryIntent,
    QueryRequest,
    QueryResponse,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

    from composable_memory.content import (
        EmbedderInput,
        ExtractedEntity,
        ExtractedRelation,
        GraphEdge,
        GraphNode,
        GraphQuery,
        GraphQueryResult,
        Health,
        IngestReport,
        MemoryContentObject,
        TemporalPolicyDecision,
        VectorQuery,
        VectorQueryResult,
        VectorRecord,
    )
    from composable_memory.facts import Adopted, Episode, Fact, Forgotten, GraphEntity, Neighbourhood
    from composable_memory.forget.report import Forgetting, Holding
    from composable_memory_feedback.store.store import FeedbackStore
    from composable_memory_ops_logs import OpsLog

ProgressCallback = Callable[[MemorySyncProgressUpdate], None]
"""Called on the event loop with every step of a sync; must return quickly."""


class Capability(StrEnum):
    """What a backend can do beyond the promises of `MemorySearchManager`."""

    ANSWER = "answer"
    """`SupportsAnswer`: says with each answer what is missing from it."""
    BACKUP = "backup"
    """`SupportsBackup`: it keeps what no source can bring back, and can copy it out and take it in again."""
    CALIBRATED = "calibrated"
    """Its scores are absolute in [0, 1] and need no calibration by the list they come in."""
    CHECK = "check"
    """`SupportsCheck`: it can look whether what it stores is still what was written."""
    FACTS = "facts"
    """`SupportsFacts`: it keeps statements about entities, which can be looked through and forgotten."""
    FORGET = "forget"
    """`SupportsForget`: it can remove for good what it stores of lines that go from notes."""
    INGEST = "ingest"
    """`SupportsIngest`: contents can be handed to it."""
    RAW_ANSWER = "raw-answer"
    """`SupportsRawAnswer`: it can show what it was answered before that is read."""
    READ_FILE = "read-file"
    """It can read the files behind its results; without it `read_file` raises `UnsupportedOperation`."""
    REFRESH = "refresh"
    """`SupportsRefresh`: one that stays open can serve the next command as if it was opened for that."""
    RETAIN = "retain"
    """`SupportsRetain`: what is remembered can be written to it as well."""
    SYNC = "sync"
    """`SupportsSync`: it keeps an index that has to follow its sources."""


CAPABILITY_PROTOCOLS: Mapping[Capability, type]


@runtime_checkable
class MemorySearchManager(Protocol):
    """A memory that can be asked.

    Scores are in [0, 1], higher is better. Lines are 1-based and inclusive. Results come best first, and the
    first k of a larger answer are the answer for k. A blank query has no results. Cancelling a call leaves
    the memory usable. After `close` every call raises `BackendUnavailable`; closing twice is fine.
    """

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return the passages that answer `query`, best first.

        Raises:
            BackendError: the memory could not be searched.
        """
        ...

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return the file at `rel_path`, or `lines` lines of it from the 1-based `from_line` on.

        A missing file has empty text.

        Raises:
            MemoryPathError: the path is not a memory file.
            UnsupportedOperation: the memory has no files.
        """
        ...

    def status(self) -> MemoryProviderStatus:
        """Return a snapshot; cheap, does no I/O that could block."""
        ...

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Embed a word and say whether it worked."""
        ...

    async def probe_vector_availability(self) -> bool:
        """Return whether vector search works."""
        ...

    async def close(self) -> None:
        """Release everything; calling it again does nothing."""
        ...


@runtime_checkable
class DeclaresCapabilities(Protocol):
    """A memory that says itself what it can do, for those who hold it without its `BackendSpec`."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what the memory can do beyond `MemorySearchManager`."""
        ...


@runtime_checkable
class SupportsAnswer(Protocol):
    """A memory that says with each answer what is missing from it."""

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and report every way in which the answer is less than it could be."""
        ...


@runtime_checkable
class SupportsRawAnswer(Protocol):
    """A memory over another one, which can show what that answers, for those who set it up."""

    async def raw_answer(self, query: str) -> JsonValue:
        """Return what is answered to `query`, as JSON, before results are made of it.

        Raises:
            BackendError: it did not answer.
        """
        ...

    async def found_settings(self, query: str) -> Mapping[str, JsonValue]:
        """Return the settings that say outright what the answer to `query` let it find out by itself.

        Raises:
            BackendError: it did not answer.
        """
        ...


@runtime_checkable
class SupportsRetain(Protocol):
    """A memory that is not ours, to which what is remembered can be written as well."""

    def retains(self) -> bool:
        """Return whether its settings want that."""
        ...

    async def retain(self, text: str, place: str) -> None:
        """Write a sentence that stands at a place of the notes to it; returns or raises before long.

        Raises:
            BackendError: it could not be written.
        """
        ...


@runtime_checkable
class SupportsSync(Protocol):
    """A memory whose index follows sources outside it."""

    async def sync(
        self,
        *,
        reason: str = "manual",
        force: bool = False,
        progress: ProgressCallback | None = None,
    ) -> SyncReport:
        """Bring the index up to date; `force` rebuilds it. Concurrent calls are joined, no `force` is lost.

        Raises:
            BackendError: the sync stopped; what was indexed before stays.
        """
        ...


@runtime_checkable
class SupportsRefresh(Protocol):
    """A memory of short commands that may stay open between them."""

    async def refresh(self) -> bool:
        """Forget how fresh things are, so that the next search looks for changes of its sources by itself.

        Return False where the memory would not answer as one that is opened now, such as after a failure.

        Raises:
            BackendError: it cannot be told.
        """
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """A memory that can look whether what it stores is still what was written."""

    async def check(self) -> Sequence[str]:
        """Read all that is stored; say what is damaged, each time with what to do about it.

        Raises:
            BackendError: it could not be read at all, for another reason than damage.
        """
        ...


@runtime_checkable
class SupportsIngest(Protocol):
    """A memory that contents can be handed to."""

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        """Take `contents`; a content with a known id and the same text changes nothing.

        What cannot be stored now, for want of a server or a model, is kept and tried again. With `wait` false
        the call returns as soon as the contents are safe.

        Raises:
            BackendError: the contents could not even be kept.
        """
        ...

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        """Take `contents` as all that the source `path` says now.

        What was taken from it before and is not among them holds no more; it stays in the history.
        """
        ...


@runtime_checkable
class SupportsFacts(Protocol):
    """A memory of facts about entities. Entities are named by name or id, cases do not matter."""

    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        """Return facts, the newest first: about one entity, those that held at a time, or those that hold."""
        ...

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        """Return entities whose name holds `named`, those with most facts first."""
        ...

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        """Return what was ingested, the latest observed first."""
        ...

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        """Return the facts about one entity in the order of the time they hold from."""
        ...

    async def neighbourhood(
        self, entity: str | None = None, *, depth: int = 1, limit: int = 200
    ) -> Neighbourhood:
        """Return at most `limit` facts within `depth` steps of an entity, or the newest of all."""
        ...

    async def forget(self, episode_id: str) -> Forgotten:
        """Remove an episode for good, with what only it supports.

        `episode_id` is the graph's id, the content's, or the path of the episode.

        Raises:
            BackendRejected: there is no such episode.
        """
        ...


@runtime_checkable
class SupportsBackup(Protocol):
    """A memory that keeps what cannot be rebuilt from its sources, such as facts that were told once.

    `cmem backup` and `cmem restore` open the memory as any command does (not long-lived) and call these on
    the open backend; other processes may be reading and writing it at the same time. What an index can
    rebuild from notes does not belong in a backup. Both concern this memory alone (its agent and its
    workspace), also where a server or a file is shared with others.
    """

    async def backup(self, folder: Path) -> Mapping[str, int]:
        """Write a copy of one consistent moment into `folder`; return what is in it, as `{"facts": 12}`.

        `folder` exists (0700), is empty and belongs to this backend alone. Its files may have any names and
        stand in folders of their own; no links, no sockets. The backend notes there itself by which version
        of its format they are to be read. Nothing about places (host, port, absolute paths, the identity of
        the workspace) may be needed to read them again: they may be restored on another machine. A SQLite
        file is copied by `VACUUM INTO` or the backup API, never as a file, since others may be writing.

        The caller flushes and hashes the files afterwards, and puts the whole backup in its place by one
        rename; after an error or a cancellation it removes `folder`, so that nothing has to be tidied here.

        Raises:
            BackendError: no consistent copy could be made; the backup as a whole fails.
        """
        ...

    async def restore(self, folder: Path, *, replace: bool = False) -> Mapping[str, int]:
        """Make what `backup` wrote into `folder` the data of this memory; return what is in it, likewise.

        The caller has compared every file with its hash; `folder` is only read. The data belong to this
        memory from then on, whichever workspace or agent they were copied from: what names those (groups,
        ids made from them) is made anew. Restoring the same backup twice is as good as once.

        Where the memory holds data already, nothing happens without `replace`; with it they are gone, not
        merged. All or nothing: the new data are made ready beside the old and put in their place at once,
        so that a kill at any moment leaves either, and calling again completes it. On return they are on
        the disk, this open backend answers from them, and other processes do from their next question on.

        Raises:
            BackendRejected: the memory holds data and `replace` is false, or the files are of a version that
                is not known, or are not of this kind of backend.
            BackendError: it could not be done; the data are those of before.
        """
        ...


@runtime_checkable
class SupportsForget(Protocol):
    """A memory that can remove for good what it stores of lines that go from notes.

    Whatever it reads from notes and transcripts goes through `BackendServices.hide`, so that what was
    forgotten does not come back with a copy of a note, or with what was said in a session.
    """

    async def holdings(self, wanted: Forgetting) -> Sequence[Holding]:
        """Return what is stored of these lines, and so would go or would have to stay; nothing is changed.

        Raises:
            BackendError: it cannot be told.
        """
        ...

    async def erase(self, wanted: Forgetting) -> Sequence[Holding]:
        """Remove what is stored of these lines, which have gone from the notes; return what went.

        Afterwards their text is in no file of this memory any more: neither in free pages of a database nor
        in a journal, a log or a copy. Erasing again is as good as once: a call that was cut off is repeated.

        Raises:
            BackendError: it could not be done now; the caller repeats the call later.
        """
        ...


@runtime_checkable
class SupportsAdoption(Protocol):
    """A memory that may hold what was taken in before workspaces were told apart, and belongs to none."""

    async def adopt(self, *, everything: bool = False) -> Adopted:
        """Take over what the workspace's notes say as well or, on its owner's word, everything."""
        ...


CAPABILITY_PROTOCOLS = {
    Capability.ANSWER: SupportsAnswer,
    Capability.BACKUP: SupportsBackup,
    Capability.CHECK: SupportsCheck,
    Capability.FACTS: SupportsFacts,
    Capability.FORGET: SupportsForget,
    Capability.INGEST: SupportsIngest,
    Capability.RAW_ANSWER: SupportsRawAnswer,
    Capability.REFRESH: SupportsRefresh,
    Capability.RETAIN: SupportsRetain,
    Capability.SYNC: SupportsSync,
}


@runtime_checkable
class SupportsHealth(Protocol):
    """An adapter whose service can be asked how it is."""

    async def health(self) -> Health:
        """Return whether the service answers; never raises for a service that is down."""
        ...


@runtime_checkable
class GraphAdapter(Protocol):
    """A store of entities and relations. Upserting twice changes nothing."""

    async def upsert_nodes(self, nodes: Sequence[GraphNode]) -> None:
        """Store `nodes`, replacing those with the same id."""
        ...

    async def upsert_edges(self, edges: Sequence[GraphEdge]) -> None:
        """Store `edges`, replacing those with the same id."""
        ...

    async def query(self, query: GraphQuery) -> GraphQueryResult:
        """Return the part of the graph that answers `query`, at most `limit` nodes and as many edges."""
        ...


@runtime_checkable
class VectorAdapter(Protocol):
    """A store of vectors of one length."""

    async def upsert(self, records: Sequence[VectorRecord]) -> None:
        """Store `records`, replacing those with the same id.

        Raises:
            DimensionMismatch: a record has another length than those stored.
        """
        ...

    async def query(self, query: VectorQuery) -> VectorQueryResult:
        """Return the `top_k` nearest by cosine, best first."""
        ...


@runtime_checkable
class SupportsDelete(Protocol):
    """A store from which records can be removed."""

    async def delete(self, ids: Sequence[str]) -> None:
        """Remove the records with these ids; unknown ids are fine."""
        ...


@runtime_checkable
class SupportsIds(Protocol):
    """A store of vectors that can list its records, so that an index hands it only what it lacks."""

    async def ids(self) -> Sequence[str]:
        """Return the ids of all records, in any order."""
        ...


@runtime_checkable
class SupportsPackedVectors(Protocol):
    """A store of vectors that takes thousands at once as packed numbers instead of records."""

    async def upsert_packed(self, ids: Sequence[str], numbers: bytes) -> None:
        """Store vectors without metadata, replacing those with the same ids; the ids are distinct.

        `numbers` are the vectors one after the other as little-endian float32, each of unit length or zero.

        Raises:
            DimensionMismatch: there are not as many numbers as the ids need.
        """
        ...


@runtime_checkable
class EmbedderAdapter(Protocol):
    """Turns texts into vectors of one length.

    `id` names the provider and `model` the model; together with `dimensions` they identify the space that
    the vectors live in. Vectors are finite; a blank text has the zero vector.
    """

    @property
    def id(self) -> str:
        """Return the provider's id."""
        ...

    @property
    def model(self) -> str:
        """Return the model's name."""
        ...

    @property
    def dimensions(self) -> int:
        """Return the length of the vectors."""
        ...

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Return the vector of one text.

        Raises:
            EmbeddingError: the provider failed.
        """
        ...

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        """Return the vectors of several texts, in their order."""
        ...


@runtime_checkable
class SupportsFingerprint(Protocol):
    """An embedder whose vectors depend on more than its provider, its model and their length."""

    @property
    def fingerprint(self) -> str:
        """Return a text that changes with the endpoint, header or file that shapes the vectors; no secret."""
        ...


@runtime_checkable
class SupportsJobs(Protocol):
    """An embedder that can leave many texts with its provider at once and fetch the vectors later.

    A job is cheaper and slower than ordinary requests. Those who embed fall back to `embed_batch` when a job
    fails.
    """

    @property
    def job_limit(self) -> int:
        """Return how many texts `embed_job` takes at most."""
        ...

    def takes_jobs(self, texts: int) -> bool:
        """Return whether so many texts are worth a job, and jobs are on and have not failed too often."""
        ...

    async def embed_job(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        """Return the vectors of the inputs, in their order; may take as long as an hour.

        Raises:
            EmbeddingPending: the job goes on at the provider; ask again later with the same texts.
            EmbeddingError: the job failed.
        """
        ...

    def batch_status(self) -> BatchStatus:
        """Return the state of the provider's jobs."""
        ...


async def embed_one_by_one(
    embedder: EmbedderAdapter, inputs: Sequence[EmbedderInput]
) -> list[Sequence[float]]:
    """Embed `inputs` in turn: `embed_batch` for providers that know no batches."""
    return [await embedder.embed(item) for item in inputs]


@runtime_checkable
class EntityExtractor(Protocol):
    """Finds the entities that a content speaks of."""

    async def extract(self, content: MemoryContentObject) -> Sequence[ExtractedEntity]:
        """Return the entities in `content`, in the order of their first mention."""
        ...


@runtime_checkable
class SupportsRelations(Protocol):
    """An extractor that also finds what a content says of its entities."""

    async def relate(
        self, content: MemoryContentObject, entities: Sequence[ExtractedEntity]
    ) -> Sequence[ExtractedRelation]:
        """Return the relations between `entities` that `content` states, in the order of the text."""
        ...


@runtime_checkable
class TemporalPolicy(Protocol):
    """Decides how long a content holds."""

    async def evaluate(self, content: MemoryContentObject) -> TemporalPolicyDecision:
        """Return the decision for `content`."""
        ...


@runtime_checkable
class QueryOrchestrator(Protocol):
    """Routes one question to several memories."""

    async def query(self, request: QueryRequest) -> QueryResponse:
        """Ask, merge, and say how the answer came about. Backend failures are in `degraded`."""
        ...

    async def context_pack(
        self, request: QueryRequest, *, max_chars: int = 2000, max_tokens: int | None = None
    ) -> ContextPack:
        """Return the best results as one text, at most so many characters long, or else so many tokens."""
        ...


Clock = Callable[[], datetime]
"""Returns the present time, aware and in UTC."""


HideForgotten = Callable[[str, MemorySource], str]
"""Returns a text of a source with what was forgotten blank, and as many lines as before; reads a file."""


def hide_nothing(text: str, _source: MemorySource) -> str:
    """Return the text as it is: nothing was forgotten."""
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendServices:
    """What the memory hands to a backend when it opens.

    `state_dir` is where the backend may keep files; `embedder` is None where no embedding is configured or
    possible, and `embedder_problem` then says why. `embedder_fallback` is set when another provider stands in
    for the one that was asked for. `embedder_is_local` says that embedding costs nothing and sends nothing
    away. `backend_id` is the id of the backend that opens, the user's choice where settings name its kind.
    `is_long_lived` is false for a single command: nothing has to be followed in the background then.
    `load_extractor` returns what finds entities and relations in texts, by the name under which a package
    offers it; it is not for the loop, may take a moment, and raises `ConfigError` for a name that nobody has.
    What a backend keeps is kept under `workspace_id` as well as `agent_id`, so that no workspace
    sees what is another's; the id stays the same when the folder is moved. `inherits` says that this
    workspace alone used the state folder before workspaces were told apart. `hide` is what every text goes
    through that a backend reads from notes and transcripts to store it; `forgotten` names what it blanks, so
    that what was stored before can be told. Call both in a thread. `environ` is the environment of whoever
    opens the memory, which need not be that of this process.
    """

    workspace_dir: Path
    state_dir: Path
    agent_id: str
    workspace_id: str
    ops_log: OpsLog
    clock: Clock
    embedder: EmbedderAdapter | None = None
    embedder_problem: str | None = None
    embedder_fallback: FallbackStatus | None = None
    embedder_is_local: bool = True
    requested_embedder: str = "auto"
    backend_id: str = ""
    is_long_lived: bool = True
    load_extractor: Callable[[str], EntityExtractor] | None = None
    inherits: bool = False
    hide: HideForgotten = hide_nothing
    forgotten: Callable[[], str] = str
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


OpenBackend = Callable[[Any, BackendServices], AbstractAsyncContextManager[MemorySearchManager]]
"""Opens a backend: `(settings, services)` to an async context manager that yields the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptStore:
    """What is kept for a workspace at a path in the state folder.

    `is_rebuildable` says that it can be made anew from the notes, `is_empty` that nothing is in it.
    """

    workspace_id: str
    kind: str
    path: Path
    bytes: int
    is_rebuildable: bool = False
    is_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackServices:
    """What is handed to a store of what is learnt: whose it is, and what it may look at.

    `keep_traces` has the ops log of this machine keep its lines of these traces. It writes a file, and may be
    told of a trace twice; call it before a judgement is stored.
    """

    backend_id: str
    workspace_id: str
    environ: Mapping[str, str]
    clock: Clock
    keep_traces: Callable[[Iterable[str]], None]


OpenFeedback: TypeAlias = "Callable[[Any, FeedbackServices], FeedbackStore]"
"""Opens a store of what is learnt: `(settings, services)`; it may connect when it is first asked."""


class LogStore(Protocol):
    """Takes lines of the operations log that are shipped to it."""

    @property
    def name(self) -> str:
        """Return what tells this store from any other; it holds no secret."""
        ...

    async def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Store lines, as the objects that they are in JSON, in their order.

        Some may be there already, by their `id`.

        Raises:
            BackendUnavailable: it cannot be reached; the caller sends these lines again another time.
            BackendError: it refuses them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """What is handed to a store of log lines: whose they are, and the environment of whoever ships them."""

    backend_id: str
    workspace_id: str
    environ: Mapping[str, str]


OpenLogStore = Callable[[Any, LogServices], AbstractAsyncContextManager[LogStore]]
"""Opens a store of log lines: `(settings, services)`; it may connect when the first lines come."""

TrustRule = Callable[[object, "Path"], str | None]
"""Says why the settings file of a workspace, which anybody may have written, may not set a key to a value.

Called with the value and the folder of the workspace; None allows it. `composable_memory.config.trust` has
rules for what is usual.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """A kind of backend: the value behind an entry point of the group `composable_memory.backends`.

    Files, threads, processes and tasks of the backend live inside the context manager that `open` returns,
    and end with it. `missing` returns what the backend lacks on this machine whatever its settings are, and
    how to get it, or None; `lacks` the same for given settings. `condition` says for which queries it is
    asked where its settings do not say that; None for all. `kept` lists what it keeps in a state folder, of
    all workspaces; it reads files. `open_feedback` opens a store of what is learnt, `open_log_store`
    one of log lines, if it has one. `trust` holds by key which of its settings the file of a workspace may
    set: those that cannot start programs, reach hosts, read files elsewhere or cost money. `limits.*` is
    everything under `limits`.
    """

    id: str
    summary: str
    settings: type[BaseModel]
    open: OpenBackend
    capabilities: frozenset[Capability] = frozenset()
    missing: Callable[[], str | None] = field(default=lambda: None)
    lacks: Callable[[Any], str | None] = field(default=lambda _settings: None)
    condition: Callable[[QueryIntent], bool] | None = None
    kept: Callable[[Path], Sequence[KeptStore]] = field(default=lambda _state_dir: ())
    open_feedback: OpenFeedback | None = None
    open_log_store: OpenLogStore | None = None
    trust: Mapping[str, TrustRule] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderServices:
    """What the memory hands to an embedding provider when it opens.

    `environ` is where keys may be found that the settings do not hold; `state_dir` is where the provider may
    keep files.
    """

    state_dir: Path
    environ: Mapping[str, str]
    ops_log: OpsLog
    clock: Clock


OpenEmbedder = Callable[[Any, EmbedderServices], AbstractAsyncContextManager[EmbedderAdapter]]
"""Opens an embedding provider: `(settings, services)` to an async context manager that yields it."""

Readiness = Callable[[Any, EmbedderServices], str | None]
"""Says what keeps a provider from being chosen automatically with these settings; None if nothing does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderSpec:
    """A kind of embedding provider: the value behind an entry point of `composable_memory.embedders`.

    `settings` is the model of `memory.embedding.providers.<id>`; it has to have the key `model`. `local` says
    that it works without a network; only such providers are chosen by `provider: auto`. `missing` returns
    what the machine lacks and how to get it, `lacks` what the settings and the environment lack. `trusted`
    says that the settings file of a workspace may choose it: it starts no program, reads no file that is
    named in settings, and loads nothing from elsewhere. `languages` are those that it reads, as ISO 639-1
    codes; None where that depends on the model, or is not known.
    """

    id: str
    summary: str
    settings: type[BaseModel]
    open: OpenEmbedder
    local: bool
    trusted: bool = False
    languages: frozenset[str] | None = None
    missing: Callable[[], str | None] = field(default=lambda: None)
    lacks: Readiness = field(default=lambda _settings, _services: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorServices:
    """What is handed to a store of vectors when it opens.

    The records belong to `collection`, a name of letters, digits and `-` that only one index with one
    embedder has; `dimensions` is the length of its vectors. `state_dir` is where the store may keep files.
    """

    collection: str
    dimensions: int
    state_dir: Path


OpenVectors = Callable[[VectorServices], AbstractAsyncContextManager[VectorAdapter]]
"""Opens a store of vectors: services to an async context manager that yields it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSpec:
    """A kind of store of vectors: the value behind an entry point of `composable_memory.vectors`.

    The builtin memory searches the store that `memory.builtin.store.vector.engine` names. It keeps every
    vector in its own index as well, and hands the store what is new and, with `SupportsDelete`, what is gone.
    A store that outlives the process should be a `SupportsIds`; others are handed everything when they open.
    `missing` returns what the machine lacks and how to get it, or None.
    """

    id: str
    summary: str
    open: OpenVectors
    missing: Callable[[], str | None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankRequest:
    """A query and the passages that were found for it.

    `weights` say how much each word of the query tells, as far as that is known; words are in lower case and
    without accents.
    """

    query: str
    passages: Sequence[str]
    weights: Mapping[str, float] = field(default_factory=dict)


class Reranker(Protocol):
    """Judges passages that were found for a query: late interaction, a cross-encoder, a service.

    An error costs the answer nothing but this judgement: it then says that it was not reranked.
    """

    async def rerank(self, request: RerankRequest) -> Sequence[float] | None:
        """Return for each passage how well it answers, from 0 to 1 and comparable between queries.

        None means that they cannot be judged yet, since too few of them were read ahead.
        """
        ...


@runtime_checkable
class SupportsReadingAhead(Protocol):
    """A reranker that judges faster, or only then, when it has read the passages before."""

    async def read_ahead(self, passages: AsyncIterable[Sequence[str]]) -> None:
        """Read all passages of an index, in batches; what was kept of others goes when all were seen.

        Runs in the background while queries are answered. After it was cancelled, the next call goes on from
        there.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankServices:
    """What is handed to a reranker when it opens.

    `collection` names the index whose passages it will judge, in letters, digits and `-`; `state_dir` is
    where it may keep files.
    """

    collection: str
    state_dir: Path


OpenReranker = Callable[[RerankServices], AbstractAsyncContextManager[Reranker]]
"""Opens a reranker: services to an async context manager that yields it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSpec:
    """A kind of reranker: the value behind an entry point of `composable_memory.rerankers`.

    The builtin memory asks the one that `memory.builtin.query.rerank` names. `missing` returns what the
    machine lacks and how to get it, or None; it runs in a thread and imports nothing that takes long.
    """

    id: str
    summary: str
    open: OpenReranker
    missing: Callable[[], str | None] = field(default=lambda: None)
