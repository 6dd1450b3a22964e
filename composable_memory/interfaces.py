"""Every interface between the parts of a memory, and the capabilities that a backend may declare.

A Protocol has no optional method. What a backend may leave out is in a `Supports…` Protocol of its own; the
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
    """What a backend can do beyond `MemorySearchManager`."""

    ANSWER = "answer"
    """`SupportsAnswer`: reports with each answer what is missing from it."""
    BACKUP = "backup"
    """`SupportsBackup`: has data that no source can bring back, and can back it up and restore it."""
    CALIBRATED = "calibrated"
    """Its scores are absolute in [0, 1] and need no calibration."""
    CHECK = "check"
    """`SupportsCheck`: can check its stored data for damage."""
    FACTS = "facts"
    """`SupportsFacts`: keeps statements about entities, which can be browsed and forgotten."""
    FORGET = "forget"
    """`SupportsForget`: can permanently remove what it stores of lines removed from notes."""
    INGEST = "ingest"
    """`SupportsIngest`: accepts contents."""
    RAW_ANSWER = "raw-answer"
    """`SupportsRawAnswer`: can show the answer it gets before parsing it."""
    READ_FILE = "read-file"
    """It can read the files behind its results; without it `read_file` raises `UnsupportedOperation`."""
    REFRESH = "refresh"
    """`SupportsRefresh`: can stay open and serve the next command as if newly opened."""
    RETAIN = "retain"
    """`SupportsRetain`: remembered sentences can be written to it as well."""
    SYNC = "sync"
    """`SupportsSync`: keeps an index that has to follow its sources."""


CAPABILITY_PROTOCOLS: Mapping[Capability, type]


@runtime_checkable
class MemorySearchManager(Protocol):
    """A memory that can be searched.

    Scores are in [0, 1], higher is better. Lines are 1-based and inclusive. Results come best first, and the
    first k of a longer answer are the answer for k. A blank query has no results. Cancelling a call leaves
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
        """Return a snapshot; cheap, without blocking I/O."""
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
    """A memory that declares its own capabilities, for use without a `BackendSpec`."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what the memory can do beyond `MemorySearchManager`."""
        ...


@runtime_checkable
class SupportsAnswer(Protocol):
    """A memory that reports with each answer what is missing from it."""

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and report everything that limits the answer."""
        ...


@runtime_checkable
class SupportsRawAnswer(Protocol):
    """A memory that wraps another service and can show its raw answers, for whoever sets it up."""

    async def raw_answer(self, query: str) -> JsonValue:
        """Return the raw answer to `query`, as JSON, before it is parsed into results.

        Raises:
            BackendError: the service did not answer.
        """
        ...

    async def found_settings(self, query: str) -> Mapping[str, JsonValue]:
        """Return settings that spell out what was detected automatically in the answer to `query`.

        Raises:
            BackendError: the service did not answer.
        """
        ...


@runtime_checkable
class SupportsRetain(Protocol):
    """A foreign memory to which remembered sentences can be written as well."""

    def retains(self) -> bool:
        """Return whether its settings ask for that."""
        ...

    async def retain(self, text: str, place: str) -> None:
        """Write a sentence, which is at `place` in the notes, to the memory; must not take long.

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
        """Update the index, or with `force` rebuild it. Concurrent calls are joined, but no `force` is lost.

        Raises:
            BackendError: the sync stopped; what was indexed before stays.
        """
        ...


@runtime_checkable
class SupportsRefresh(Protocol):
    """A memory for short commands that may stay open between them."""

    async def refresh(self) -> bool:
        """Forget that the index is fresh, so that the next search checks for changed sources.

        Return False if the memory would not answer like a newly opened one, for example after a failure.

        Raises:
            BackendError: that cannot be determined.
        """
        ...


@runtime_checkable
class SupportsCheck(Protocol):
    """A memory that can check its stored data for damage."""

    async def check(self) -> Sequence[str]:
        """Read all stored data; return a message for each damage, saying what to do about it.

        Raises:
            BackendError: the data could not be read for another reason than damage.
        """
        ...


@runtime_checkable
class SupportsIngest(Protocol):
    """A memory that accepts contents."""

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        """Ingest `contents`; a content with a known id and the same text changes nothing.

        What cannot be stored now, because a server or model is missing, is queued and retried. With `wait`
        false the call returns as soon as the contents are safe.

        Raises:
            BackendError: the contents could not even be queued.
        """
        ...

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        """Ingest `contents` as everything that the source `path` now says.

        What was ingested from it before and is not among them no longer holds; it stays in the history.
        """
        ...


@runtime_checkable
class SupportsFacts(Protocol):
    """A memory of facts about entities. Entities are given by name or id, ignoring case."""

    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        """Return facts, newest first: about one entity, those that held at a time, or those that hold."""
        ...

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        """Return entities whose names contain `named`, those with most facts first."""
        ...

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        """Return what was ingested, latest observed first."""
        ...

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        """Return the facts about one entity, ordered by the time from which they hold."""
        ...

    async def neighbourhood(
        self, entity: str | None = None, *, depth: int = 1, limit: int = 200
    ) -> Neighbourhood:
        """Return at most `limit` facts within `depth` steps of an entity, or the newest of all."""
        ...

    async def forget(self, episode_id: str) -> Forgotten:
        """Permanently remove an episode, with everything that only it supports.

        `episode_id` is the graph's id, the content's id, or the path of the episode.

        Raises:
            BackendRejected: there is no such episode.
        """
        ...


@runtime_checkable
class SupportsBackup(Protocol):
    """A memory with data that cannot be rebuilt from its sources, such as facts that were told once.

    `cmem backup` and `cmem restore` open the memory as any command does (not long-lived) and call these
    methods; other processes may be reading and writing it at the same time. What an index can rebuild from
    notes does not belong in a backup. Both only concern this memory (its agent and its workspace), even if a
    server or a file is shared with others.
    """

    async def backup(self, folder: Path) -> Mapping[str, int]:
        """Write a consistent snapshot into `folder`; return counts of its content, as `{"facts": 12}`.

        `folder` exists (mode 0700), is empty and belongs to this backend alone. Files may have any names and
        be in subfolders; no links, no sockets. The backend itself must record the version of its format
        there. Restoring must not depend on anything local (host, port, absolute paths, the identity of the
        workspace), since it may happen on another machine. Copy a SQLite file by `VACUUM INTO` or the backup
        API, never as a file, since others may be writing to it.

        The caller flushes and hashes the files afterwards, and moves the whole backup into place by one
        rename; after an error or cancellation it removes `folder`, so no cleaning up is needed here.

        Raises:
            BackendError: no consistent copy could be made; the backup as a whole fails.
        """
        ...

    async def restore(self, folder: Path, *, replace: bool = False) -> Mapping[str, int]:
        """Replace the data of this memory by what `backup` wrote into `folder`; return its counts.

        The caller has verified the hash of every file; `folder` is only read. The data belong to this memory
        from now on, whichever workspace or agent they came from: identifiers derived from those (groups, ids)
        must be recreated. Restoring the same backup twice is the same as once.

        If the memory already has data, nothing happens without `replace`; with it they are replaced, not
        merged. All or nothing: the new data are prepared beside the old and switched atomically, so that a
        kill at any moment leaves one or the other, and calling again completes it. On return they are on
        disk, this open backend answers from them, and other processes do from their next question on.

        Raises:
            BackendRejected: the memory has data and `replace` is false, or the files are of an unknown
            version or
                another kind of backend.
            BackendError: it failed; the data are unchanged.
        """
        ...


@runtime_checkable
class SupportsForget(Protocol):
    """A memory that can permanently remove what it stores of lines removed from notes.

    Everything it reads from notes and transcripts must go through `BackendServices.hide`, so that forgotten
    text does not come back with a copy of a note, or with what was said in a session.
    """

    async def holdings(self, wanted: Forgetting) -> Sequence[Holding]:
        """Return what is stored of these lines, and would be removed or have to stay; changes nothing.

        Raises:
            BackendError: that cannot be determined.
        """
        ...

    async def erase(self, wanted: Forgetting) -> Sequence[Holding]:
        """Remove what is stored of these lines, which are gone from the notes; return what was removed.

        Afterwards their text is in no file of this memory: neither in free pages of a database nor in a
        journal, a log or a copy. Erasing again does no harm: an interrupted call is repeated.

        Raises:
            BackendError: it failed; the caller repeats the call later.
        """
        ...


@runtime_checkable
class SupportsAdoption(Protocol):
    """A memory that may have contents from before workspaces were told apart, which belong to none yet."""

    async def adopt(self, *, everything: bool = False) -> Adopted:
        """Adopt what the workspace's notes also say, or with `everything`, on the owner's word, all of it."""
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
    """An adapter whose service has a health check."""

    async def health(self) -> Health:
        """Return whether the service answers; never raises if it is down."""
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
        """Return the part of the graph that matches `query`, at most `limit` nodes and as many edges."""
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
        """Remove the records with these ids; unknown ids are ignored."""
        ...


@runtime_checkable
class SupportsIds(Protocol):
    """A vector store that can list its records, so that an index passes it only what it lacks."""

    async def ids(self) -> Sequence[str]:
        """Return the ids of all records, in any order."""
        ...


@runtime_checkable
class SupportsPackedVectors(Protocol):
    """A vector store that takes thousands of vectors at once as packed numbers instead of records."""

    async def upsert_packed(self, ids: Sequence[str], numbers: bytes) -> None:
        """Store vectors without metadata, replacing those with the same ids; the ids are distinct.

        `numbers` are the concatenated vectors as little-endian float32, each of unit length or zero.

        Raises:
            DimensionMismatch: the numbers do not match the ids in count.
        """
        ...


@runtime_checkable
class EmbedderAdapter(Protocol):
    """Turns texts into vectors of one length.

    `id` names the provider and `model` the model; together with `dimensions` they identify the vector space.
    Vectors are finite; a blank text has the zero vector.
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
    """An embedder whose vectors depend on more than provider, model and dimensions."""

    @property
    def fingerprint(self) -> str:
        """Return a text that changes with the endpoint, header or file behind the vectors; not secret."""
        ...


@runtime_checkable
class SupportsJobs(Protocol):
    """An embedder that can submit many texts to its provider as a job and fetch the vectors later.

    A job is cheaper and slower than ordinary requests. Callers fall back to `embed_batch` if a job fails.
    """

    @property
    def job_limit(self) -> int:
        """Return how many texts `embed_job` accepts at most."""
        ...

    def takes_jobs(self, texts: int) -> bool:
        """Return whether this many texts are worth a job, and jobs are on and have not failed too often."""
        ...

    async def embed_job(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        """Return the vectors of the inputs, in their order; may take as long as an hour.

        Raises:
            EmbeddingPending: the job continues at the provider; ask again later with the same texts.
            EmbeddingError: the job failed.
        """
        ...

    def batch_status(self) -> BatchStatus:
        """Return the state of the provider's jobs."""
        ...


async def embed_one_by_one(
    embedder: EmbedderAdapter, inputs: Sequence[EmbedderInput]
) -> list[Sequence[float]]:
    """Embed `inputs` one after another: `embed_batch` for providers without batches."""
    return [await embedder.embed(item) for item in inputs]


@runtime_checkable
class EntityExtractor(Protocol):
    """Finds the entities mentioned in a content."""

    async def extract(self, content: MemoryContentObject) -> Sequence[ExtractedEntity]:
        """Return the entities in `content`, in order of first mention."""
        ...


@runtime_checkable
class SupportsRelations(Protocol):
    """An extractor that also finds what a content says about its entities."""

    async def relate(
        self, content: MemoryContentObject, entities: Sequence[ExtractedEntity]
    ) -> Sequence[ExtractedRelation]:
        """Return the relations between `entities` that `content` states, in text order."""
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
        """Ask, merge, and explain the answer. Backend failures are listed in `degraded`."""
        ...

    async def context_pack(
        self, request: QueryRequest, *, max_chars: int = 2000, max_tokens: int | None = None
    ) -> ContextPack:
        """Return the best results as one text of at most `max_chars` characters, or `max_tokens` tokens."""
        ...


Clock = Callable[[], datetime]
"""Returns the present time, aware and in UTC."""


HideForgotten = Callable[[str, MemorySource], str]
"""Returns a text with forgotten parts blanked, and the same number of lines; reads a file."""


def hide_nothing(text: str, _source: MemorySource) -> str:
    """Return the text unchanged: nothing was forgotten."""
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendServices:
    """What the memory provides to a backend when it opens.

    `state_dir` is where the backend may keep files. `embedder` is None if no embedding is configured or
    possible, and `embedder_problem` then says why; `embedder_fallback` is set if another provider stands in
    for the configured one; `embedder_is_local` says that embedding is free and sends nothing away.
    `backend_id` is the backend's id, chosen by the user if the settings give it a kind. `is_long_lived` is
    false for a single command: then nothing has to be watched in the background. `load_extractor` returns the
    extractor of entities and relations that a package registered under a name; it blocks, and raises
    `ConfigError` for an unknown name. Data must be stored under `workspace_id` as well as `agent_id`, so that
    no workspace sees another's; the id is stable when the folder is moved. `inherits` says that this
    workspace alone used the state folder before workspaces were told apart. Every text that a backend reads
    from notes and transcripts to store it must go through `hide`; `forgotten` identifies what that blanks, so
    that texts stored before can be recognised. Call both in a thread. `environ` is the environment of the
    caller, which may differ from that of this process.
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
    """What is stored for a workspace at a path in the state folder.

    `is_rebuildable` says that it can be rebuilt from the notes, `is_empty` that it contains nothing.
    """

    workspace_id: str
    kind: str
    path: Path
    bytes: int
    is_rebuildable: bool = False
    is_empty: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackServices:
    """What is provided to a feedback store: whose it is, and what it may read.

    `keep_traces` makes the ops log of this machine keep the lines of these traces. It writes a file, and may
    be called twice for a trace; call it before storing a judgement.
    """

    backend_id: str
    workspace_id: str
    environ: Mapping[str, str]
    clock: Clock
    keep_traces: Callable[[Iterable[str]], None]


OpenFeedback: TypeAlias = "Callable[[Any, FeedbackServices], FeedbackStore]"
"""Opens a feedback store: `(settings, services)`; it may connect on first use."""


class LogStore(Protocol):
    """Receives shipped lines of the operations log."""

    @property
    def name(self) -> str:
        """Return a name that distinguishes this store from others; not secret."""
        ...

    async def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Store lines, given as JSON objects, in order.

        Some may already be there, with the same `id`.

        Raises:
            BackendUnavailable: the store is unreachable; the caller sends these lines again later.
            BackendError: it refuses them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """What is provided to a log store: whose lines they are, and the environment of whoever ships them."""

    backend_id: str
    workspace_id: str
    environ: Mapping[str, str]


OpenLogStore = Callable[[Any, LogServices], AbstractAsyncContextManager[LogStore]]
"""Opens a log store: `(settings, services)`; it may connect when the first lines come."""

TrustRule = Callable[[object, "Path"], str | None]
"""Says why a workspace's settings file, which anyone may have written, may not set a key to a value.

Called with the value and the folder of the workspace; None allows it. `composable_memory.config.trust` has
the common rules.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSpec:
    """A kind of backend: the value of an entry point in the group `composable_memory.backends`.

    Files, threads, processes and tasks of the backend live inside the context manager that `open` returns,
    and end with it. `missing` returns what the backend lacks on this machine, whatever its settings, and how
    to get it, or None; `lacks` does so for given settings. `condition` decides for which queries it is asked
    if its settings do not; None means for all. `kept` lists its data in a state folder, of all workspaces; it
    reads files. `open_feedback` opens a feedback store, `open_log_store` a log store, if it has one. `trust`
    maps keys to rules for what a workspace's settings file may set: only what cannot start programs, reach
    hosts, read files elsewhere or cost money. `limits.*` stands for everything under `limits`.
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
    """What the memory provides to an embedding provider when it opens.

    `environ` may have keys that the settings lack; `state_dir` is where the provider may keep files.
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
    """A kind of embedding provider: the value of an entry point in `composable_memory.embedders`.

    `settings` is the model of `memory.embedding.providers.<id>`; it must have the key `model`. `local` says
    that it works offline; only such providers are chosen by `provider: auto`. `missing` returns what the
    machine lacks and how to get it, `lacks` what the settings and the environment lack. `trusted` says that a
    workspace's settings file may choose it: it starts no program, reads no file named in settings, and loads
    nothing from elsewhere. `languages` are those it reads, as ISO 639-1 codes; None if that depends on the
    model, or is unknown.
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
    """What is provided to a vector store when it opens.

    The records belong to `collection`, a name of letters, digits and `-` that is unique to one index with one
    embedder; `dimensions` is the length of its vectors. `state_dir` is where the store may keep files.
    """

    collection: str
    dimensions: int
    state_dir: Path


OpenVectors = Callable[[VectorServices], AbstractAsyncContextManager[VectorAdapter]]
"""Opens a vector store: services to an async context manager that yields it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSpec:
    """A kind of vector store: the value of an entry point in `composable_memory.vectors`.

    The builtin memory searches the store named by `memory.builtin.store.vector.engine`. It also keeps every
    vector in its own index, and passes the store new vectors and, with `SupportsDelete`, the ids of removed
    ones. A store that outlives the process should be a `SupportsIds`; others get all vectors when they open.
    `missing` returns what the machine lacks and how to get it, or None.
    """

    id: str
    summary: str
    open: OpenVectors
    missing: Callable[[], str | None] = field(default=lambda: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankRequest:
    """A query and the passages found for it.

    `weights` say how significant each word of the query is, as far as known; words are in lower case and
    without accents.
    """

    query: str
    passages: Sequence[str]
    weights: Mapping[str, float] = field(default_factory=dict)


class Reranker(Protocol):
    """Judges passages found for a query: late interaction, a cross-encoder, a service.

    An error only costs the reranking, which the answer then reports as missing.
    """

    async def rerank(self, request: RerankRequest) -> Sequence[float] | None:
        """Return for each passage how well it answers, from 0 to 1 and comparable between queries.

        None means that they cannot be judged yet, since too few of them have been read ahead.
        """
        ...


@runtime_checkable
class SupportsReadingAhead(Protocol):
    """A reranker that judges faster, or at all, once it has read the passages ahead of queries."""

    async def read_ahead(self, passages: AsyncIterable[Sequence[str]]) -> None:
        """Read all passages of an index, in batches; once all were seen, cached data of others is deleted.

        Runs in the background while queries are answered. After a cancellation, the next call continues from
        there.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankServices:
    """What is provided to a reranker when it opens.

    `collection` identifies the index whose passages it will judge, in letters, digits and `-`; `state_dir` is
    where it may keep files.
    """

    collection: str
    state_dir: Path


OpenReranker = Callable[[RerankServices], AbstractAsyncContextManager[Reranker]]
"""Opens a reranker: services to an async context manager that yields it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankerSpec:
    """A kind of reranker: the value of an entry point in `composable_memory.rerankers`.

    The builtin memory uses the one named by `memory.builtin.query.rerank`. `missing` returns what the machine
    lacks and how to get it, or None; it runs in a thread and must not import anything slow.
    """

    id: str
    summary: str
    open: OpenReranker
    missing: Callable[[], str | None] = field(default=lambda: None)
