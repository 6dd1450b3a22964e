"""The JSON that goes into the tools and comes out of them: keys in camelCase, what is not set is left out."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic import JsonValue as AnyJson
from pydantic.alias_generators import to_camel
from pydantic_core import to_jsonable_python

from composable_memory.citations import CitationMode
from composable_memory.query.filters import parse_since, parse_until
from composable_memory.types import (
    BatchStatus,
    CacheStatus,
    Degradation,
    FallbackStatus,
    FtsStatus,
    MemoryEmbeddingProbeResult,
    MemoryProviderStatus,
    MemorySearchResult,
    MemorySource,
    Origin,
    SearchFilters,
    SourceCount,
    SupportingFact,
    VectorStatus,
)

QueryText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
"""A question that is not blank."""

ResultCount = Annotated[int, Field(ge=1)]
Score = Annotated[float, Field(ge=0.0, le=1.0)]
LineNumber = Annotated[int, Field(ge=1)]
PackSize = Annotated[int, Field(ge=1)]
"""How long a pack may be."""

ReadErrorCode = Literal["MEMORY_PATH_NOT_ALLOWED", "MEMORY_NOT_FOUND", "MEMORY_READ_FAILED"]
"""Why a file could not be read: it is not a memory file, there is none of this name, or reading it failed."""


def _json_or_none(value: Mapping[str, object] | None) -> object:
    """Return as JSON what a backend knows of a result, whatever it put there; None if it is nothing."""
    return to_jsonable_python(dict(value), fallback=str, inf_nan_mode="null") if value else None


Metadata = Annotated[dict[str, AnyJson] | None, BeforeValidator(_json_or_none)]


def _json_name(field_name: str) -> str:
    return to_camel(field_name.rstrip("_"))


class Document(BaseModel):
    """A JSON document of a stable shape. Values of the library inside it are written in camelCase as well."""

    # Each schema is built when it is first needed: a search must not wait for those of the status.
    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=_json_name, populate_by_name=True, defer_build=True
    )

    def as_json(self) -> dict[str, AnyJson]:
        """Return the document as plain JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class FilterRequest(Document):
    """A query, which may be blank beside a filter, and what results have to be: see `SearchFilters`.

    `now` is the clock of whoever asks.
    """

    query: Annotated[str, StringConstraints(strip_whitespace=True)]
    since: str | None = None
    until: str | None = None
    paths: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sources: tuple[MemorySource, ...] = ()
    types: tuple[str, ...] = ()
    now: AwareDatetime | None = None

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        given = self.since or self.until or self.paths or self.tags or self.sources or self.types
        if not (self.query or given):
            raise ValueError("a blank query needs a filter")
        return self

    def filters(self, now: datetime) -> SearchFilters:
        """Return the filters; times are counted from `now`.

        Raises:
            InvalidArgument: one of them is none.
        """
        now = self.now or now
        return SearchFilters(
            since=parse_since(self.since, now) if self.since else None,
            until=parse_until(self.until, now) if self.until else None,
            paths=self.paths,
            tags=self.tags,
            sources=self.sources,
            types=self.types,
        )


class MemorySearchRequest(FilterRequest):
    """What to search for; what is not given comes from the settings.

    `weak` asks for the nearest passages also where none matches the question well.
    """

    max_results: ResultCount | None = None
    min_score: Score | None = None
    weak: bool | None = None
    session_key: str | None = None
    backends: tuple[str, ...] | None = None


class SearchHit(Document):
    """One passage or fact: lines are 1-based and inclusive, 0 where there are none; the score is in [0, 1].

    `origin` is where a fact was taken from, `metadata` what else its backend knows of it. `start_char` is
    there for a piece of a long line: where in the line it begins, from 0. `highlights` are the parts of the
    snippet that match the query, as `[begin, end]` in characters from 0. `facts` are what is known of it with
    the time in which that holds. `title` is that of the note, `headings` are those above the passage. `weak`
    is there where no passage matches the question well.
    """

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: MemorySource
    citation: str | None = None
    source_backend: str | None = None
    origin: Origin | None = None
    start_char: int | None = None
    metadata: Metadata = None
    highlights: tuple[tuple[int, int], ...] | None = None
    facts: tuple[SupportingFact, ...] | None = None
    title: str | None = None
    headings: tuple[str, ...] | None = None
    weak: bool | None = None

    @classmethod
    def of(cls, result: MemorySearchResult, *, weak: bool = False) -> "SearchHit":
        """Return the document of a result."""
        hit = cls.model_validate(result, from_attributes=True)
        optional = ("start_char", "highlights", "facts", "title", "headings")
        changed = {name: None for name in optional if not getattr(hit, name)}
        return hit.model_copy(update=changed | {"weak": weak or None})


class MemorySearchReply(Document):
    """The answer to a search, or, with `unavailable`, why there is none and what to do about it.

    With `weak` no passage matches the question well; `warning` and `action` then say what to do.
    """

    results: tuple[SearchHit, ...]
    provider: str | None = None
    model: str | None = None
    fallback: FallbackStatus | None = None
    citations: CitationMode | None = None
    mode: str | None = None
    trace_id: str | None = None
    degraded: tuple[Degradation, ...] | None = None
    weak: bool | None = None
    disabled: bool | None = None
    unavailable: bool | None = None
    error: str | None = None
    warning: str | None = None
    action: str | None = None


class MemoryContextPackRequest(FilterRequest):
    """What to pack: at most `max_chars` characters or `max_tokens` tokens, not both.

    `weak` asks for the nearest passages also where none matches the question well.
    """

    weak: bool | None = None
    max_chars: PackSize | None = None
    max_tokens: PackSize | None = None
    max_results: ResultCount | None = None
    session_key: str | None = None
    backends: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if self.max_chars is not None and self.max_tokens is not None:
            raise ValueError("give a number of characters or of tokens, not both")
        return self


class PackedSource(Document):
    """A result in a pack, without its text: the pack has it."""

    path: str
    start_line: int
    end_line: int
    score: float
    source: MemorySource
    citation: str | None = None
    source_backend: str | None = None

    @classmethod
    def of(cls, result: MemorySearchResult) -> "PackedSource":
        """Return the document of a result."""
        return cls.model_validate(result, from_attributes=True)


class MemoryContextPackReply(Document):
    """The pack with its sources in the order of its pieces, or, with `unavailable`, why there is none.

    `tokens` is about how many tokens a language model reads for it.
    """

    pack: str
    sources: tuple[PackedSource, ...] = ()
    tokens: int = 0
    trace_id: str | None = None
    degraded: tuple[Degradation, ...] | None = None
    weak: bool | None = None
    unavailable: bool | None = None
    error: str | None = None
    warning: str | None = None
    action: str | None = None


class MemoryGetRequest(Document):
    """Which file to read, and from which 1-based line how many lines of it.

    `path` may be a citation; lines that are given beside it go before its own.
    """

    path: str
    from_: LineNumber | None = None
    lines: LineNumber | None = None


class MemoryGetReply(Document):
    """The text of a file, or, with `status` "error", why it cannot be read."""

    text: str
    path: str
    disabled: bool | None = None
    status: Literal["error"] | None = None
    code: ReadErrorCode | None = None
    error: str | None = None


class MemoryStatusRequest(Document):
    """Whether to try out what the status claims."""

    deep: bool = False


class ProviderStatus(Document):
    """The status of one memory: the fields of `MemoryProviderStatus`."""

    backend: str
    provider: str
    model: str | None = None
    requested_provider: str | None = None
    files: int | None = None
    chunks: int | None = None
    dirty: bool | None = None
    workspace_dir: str | None = None
    db_path: str | None = None
    extra_paths: tuple[str, ...] = ()
    sources: tuple[MemorySource, ...] = ()
    source_counts: tuple[SourceCount, ...] = ()
    cache: CacheStatus | None = None
    fts: FtsStatus | None = None
    fallback: FallbackStatus | None = None
    vector: VectorStatus | None = None
    batch: BatchStatus | None = None
    custom: dict[str, AnyJson] = Field(default_factory=dict)

    @classmethod
    def of(cls, status: MemoryProviderStatus) -> "ProviderStatus":
        """Return the document of a status."""
        return cls.model_validate(status, from_attributes=True)


class SearchProbe(Document):
    """How a real search went; `ok` says that a memory answered. `took_ms` is wall time."""

    ok: bool
    result_count: int = 0
    took_ms: float = 0.0
    trace_id: str | None = None
    degraded: tuple[Degradation, ...] = ()
    error: str | None = None


class DeepProbe(Document):
    """What came of trying: an embedding, the vector engine, and a search on the path of every search.

    `damage` says for each backend what it stores that is no longer what was written, and what mends it.
    """

    embedding: MemoryEmbeddingProbeResult
    vector: bool
    search: SearchProbe
    damage: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class OpsLogTrouble(Document):
    """What became of the events of this process in a log that could not take them all; the last error."""

    written: int
    dropped: int
    last_error: str


class MemoryStatusReply(Document):
    """The memory as a whole, each of its backends, those that could not be opened, and a deep probe.

    `ops_log` is there only if the log had trouble since the memory was opened.
    """

    status: ProviderStatus
    backends: dict[str, ProviderStatus]
    unavailable: tuple[Degradation, ...] = ()
    ops_log: OpsLogTrouble | None = None
    probe: DeepProbe | None = None
