"""Small working parts for tests and examples: a memory, a graph and an embedder that live in memory."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import groupby
from math import hypot
from pathlib import Path, PurePosixPath

from pydantic import Field

from composable_memory.config.settings import SettingsModel
from composable_memory.content import EmbedderInput, GraphEdge, GraphNode, GraphQuery, GraphQueryResult
from composable_memory.errors import BackendUnavailable, MemoryPathError, UnsupportedOperation
from composable_memory.interfaces import BackendServices, BackendSpec, Capability, EmbedderAdapter
from composable_memory.paths import MAIN_FILES, MEMORY_FOLDERS, is_note
from composable_memory.supervision.resource import closing
from composable_memory.testing.corpus import SEED_NOTES
from composable_memory.types import (
    MAX_SNIPPET_CHARS,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
)
from composable_memory_ops_logs import OpsLog

IN_MEMORY_CAPABILITIES = frozenset({Capability.ANSWER, Capability.CALIBRATED, Capability.READ_FILE})

FIXED_NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
"""The constant time of the clock of `make_services`."""

_CJK = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_RUN = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+")


class FakeBackend:
    """A memory without content, as a base class for fakes: it has a status, refuses files, and closes.

    `asked` records every query with its options, `closed` counts the calls of `close`.
    """

    def __init__(self, backend_id: str) -> None:
        self.id = backend_id
        self.asked: list[tuple[str, SearchOptions]] = []
        self.closed = 0

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Refuse: there are no files."""
        del rel_path, from_line, lines
        self.check_open("read")
        raise UnsupportedOperation(self.id, "read_file")

    def status(self) -> MemoryProviderStatus:
        """Return a status that names this fake."""
        return MemoryProviderStatus(backend=self.id, provider="none", dirty=False)

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Report that nothing can be embedded."""
        self.check_open("probe")
        return MemoryEmbeddingProbeResult(ok=False, error=f"{self.id} does not embed")

    async def probe_vector_availability(self) -> bool:
        """Report that there are no vectors."""
        self.check_open("probe")
        return False

    async def close(self) -> None:
        """Count the call."""
        self.closed += 1

    def check_open(self, operation: str) -> None:
        """Raise `BackendUnavailable` once closed."""
        if self.closed:
            raise BackendUnavailable(self.id, "it is closed", fix="open it again", operation=operation)

    def note_question(self, query: str, options: SearchOptions | None) -> SearchOptions:
        """Record the query in `asked` and return its options, or the defaults if None."""
        self.check_open("search")
        options = options or SearchOptions()
        self.asked.append((query, options))
        return options


class InMemoryBackend(FakeBackend):
    """A small but real memory over a mapping of path to text.

    A passage is a block of lines between blank lines; its score is the share of the query's words in it, so
    scores are absolute and 1.0 means that nothing is missing.
    """

    def __init__(self, notes: Mapping[str, str] = SEED_NOTES, *, backend_id: str = "in-memory") -> None:
        super().__init__(backend_id)
        self._notes = dict(notes)

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return its capabilities, for composites whose entry does not declare them."""
        return IN_MEMORY_CAPABILITIES

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return the passages that share words with `query`, best first."""
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search; words are the only engine."""
        options = self.note_question(query, options)
        wanted = set(_words(query))
        hits = [hit for path, text in self._notes.items() for hit in _hits(path, text, wanted)]
        kept = sorted((hit for hit in hits if hit.exact or hit.score >= options.min_score), key=_best_first)
        return SearchAnswer(results=tuple(kept[: options.max_results]), engines={"keyword": "words"})

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return a note or some of its lines; a note that does not exist is empty."""
        self.check_open("read")
        _check_note_path(rel_path)
        text = self._notes.get(rel_path, "")
        if from_line is None and lines is None:
            return MemoryFileSlice(text=text, path=rel_path)
        start = max(1, from_line or 1) - 1
        wanted = text.split("\n")[start:]
        return MemoryFileSlice(text="\n".join(wanted[: max(1, lines)] if lines else wanted), path=rel_path)

    def status(self) -> MemoryProviderStatus:
        """Return how many notes there are."""
        return MemoryProviderStatus(
            backend=self.id,
            provider="none",
            files=len(self._notes),
            chunks=sum(len(_passages(text)) for text in self._notes.values()),
            dirty=False,
            sources=("memory",),
        )


class InMemorySettings(SettingsModel):
    """Settings of the in-memory backend: its notes, by path."""

    notes: dict[str, str] = Field(default_factory=lambda: dict(SEED_NOTES))


@asynccontextmanager
async def open_in_memory(
    settings: InMemorySettings, services: BackendServices
) -> AsyncIterator[InMemoryBackend]:
    """Open an in-memory backend over the notes in `settings`."""
    del services
    async with closing(InMemoryBackend(settings.notes)) as memory:
        yield memory


def make_services(
    workspace_dir: Path, *, state_dir: Path | None = None, embedder: EmbedderAdapter | None = None
) -> BackendServices:
    """Return services for a backend under test: a log that keeps nothing, and a clock that stands still.

    `state_dir` defaults to the folder `.state` in the workspace; it is not created.
    """
    return BackendServices(
        workspace_dir=workspace_dir,
        state_dir=state_dir or workspace_dir / ".state",
        agent_id="main",
        workspace_id="notes",
        ops_log=OpsLog(None),
        clock=lambda: FIXED_NOW,
        embedder=embedder,
        embedder_problem=None if embedder else "no embedder is configured",
    )


spec = BackendSpec(
    id="in-memory",
    summary="A mapping of notes, searched word by word; for tests and examples.",
    settings=InMemorySettings,
    open=open_in_memory,
    capabilities=IN_MEMORY_CAPABILITIES,
)


class InMemoryGraph:
    """A small graph that finds nodes by the words of their labels and properties."""

    def __init__(self) -> None:
        self._nodes: dict[str, GraphNode] = {}
        self._edges: dict[str, GraphEdge] = {}

    async def upsert_nodes(self, nodes: Sequence[GraphNode]) -> None:
        """Store `nodes`, replacing those with the same id."""
        self._nodes.update((node.id, node) for node in nodes)

    async def upsert_edges(self, edges: Sequence[GraphEdge]) -> None:
        """Store `edges`, replacing those with the same id."""
        self._edges.update((edge.id, edge) for edge in edges)

    async def query(self, query: GraphQuery) -> GraphQueryResult:
        """Return the named nodes and those whose words match, and the edges that touch them."""
        wanted = set(_words(query.text or ""))
        named = [self._nodes[id_] for id_ in query.entity_ids if id_ in self._nodes]
        matching = [node for node in self._nodes.values() if wanted & _node_words(node) and node not in named]
        nodes = (named + sorted(matching, key=lambda node: (-len(wanted & _node_words(node)), node.id)))[
            : query.limit
        ]
        ids = {node.id for node in nodes}
        edges = [edge for edge in self._edges.values() if {edge.source_id, edge.target_id} & ids]
        return GraphQueryResult(nodes=tuple(nodes), edges=tuple(edges[: query.limit]))


class HashEmbedder:
    """A deterministic embedder without a model: hashes words to signed dimensions; vectors have length 1."""

    def __init__(self, dimensions: int = 64) -> None:
        self.id = "hash"
        self.model = f"hash-{dimensions}"
        self.dimensions = dimensions
        self.texts: list[str] = []

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Return the vector of one text; a text without words has the zero vector."""
        self.texts.append(input.text)
        vector = [0.0] * self.dimensions
        for word in _words(input.text):
            number = int.from_bytes(blake2b(word.encode(errors="replace"), digest_size=8).digest())
            vector[number % self.dimensions] += 1.0 if number >> 63 else -1.0
        length = hypot(*vector)
        return [value / length for value in vector] if length else vector

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        """Return the vectors of several texts, in their order."""
        return [await self.embed(item) for item in inputs]


def _words(text: str) -> list[str]:
    """Return folded words; a run of Chinese, Japanese or Korean is split into character pairs."""
    words: list[str] = []
    for run in _RUN.findall(text.casefold()):
        is_cjk = re.match(f"[{_CJK}]", run) and len(run) > 1
        words += [run[i : i + 2] for i in range(len(run) - 1)] if is_cjk else [run]
    return words


def _passages(text: str) -> list[tuple[int, list[str]]]:
    """Return the blocks between blank lines, each with its 1-based first line number."""
    numbered = enumerate(text.split("\n"), start=1)
    blocks = [
        list(group) for filled, group in groupby(numbered, lambda item: bool(item[1].strip())) if filled
    ]
    return [(block[0][0], [line for _, line in block]) for block in blocks]


def _hits(path: str, text: str, wanted: set[str]) -> list[MemorySearchResult]:
    hits: list[MemorySearchResult] = []
    for first, lines in _passages(text):
        passage = "\n".join(lines)
        found = wanted.intersection(_words(passage))
        if found:
            hits.append(
                MemorySearchResult(
                    path=path,
                    start_line=first,
                    end_line=first + len(lines) - 1,
                    score=len(found) / len(wanted),
                    snippet=passage[:MAX_SNIPPET_CHARS],
                    exact=found == wanted,
                )
            )
    return hits


def _best_first(hit: MemorySearchResult) -> tuple[float, str, int]:
    return -hit.score, hit.path, hit.start_line


def _node_words(node: GraphNode) -> set[str]:
    return set(_words(" ".join([node.label, *map(str, node.properties.values())])))


def _check_note_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    first = parts[0] if parts else ""
    is_inside = first in MEMORY_FOLDERS or (len(parts) == 1 and first in MAIN_FILES)
    if not is_inside or not is_note(path) or ".." in parts or "\\" in path or "\0" in path:
        raise MemoryPathError(
            path, "it is not a note", allowed=(*MAIN_FILES, *(f"{one}/**" for one in MEMORY_FOLDERS))
        )
