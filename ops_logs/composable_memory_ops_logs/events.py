"""The events that can be logged: one frozen class per action, and the envelope of an event.

Questions and backends are here; `sync_events`, `ingest_events` and `learning_events` have the others. Field
names are snake_case here and camelCase on disk (`line_format.py`). Texts are previews, never whole notes. A
field that is None is left out on disk; lists and mappings are always written, even if empty.
"""

# Annotations are read at run time to derive the format on disk, so this module does not postpone them.
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar, overload

from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

SCHEMA_VERSION: int = 1
"""Version of the format on disk; incremented when a reader of the old one would misread the new one."""

QUERY_PREVIEW_CHARS = 200
"""How much of a query an event shows."""

SNIPPET_PREVIEW_CHARS = 120
"""How much of a snippet an event shows."""

_LAST_WORD = Pattern(r"[!-~]+\Z")


def snippet_preview(text: str) -> str:
    """Return the beginning of a snippet, without a partial word at the end.

    Part of a secret could not be recognised, and so not be masked.
    """
    shown = text[:SNIPPET_PREVIEW_CHARS]
    if text[len(shown) : len(shown) + 1].isspace() or len(text) <= len(shown):
        return shown
    cut = _LAST_WORD.search(shown, shown.rfind(" ") + 1)  # searching from there is faster
    return shown[: cut.start()] if cut else shown


JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""Any JSON value, made of any kind of sequence or mapping."""

Status: TypeAlias = Literal["success", "failure", "partial"]


Made = TypeVar("Made")


class MadeWhenRead(Sequence[Made]):
    """A sequence that is built when read, for example by the log's thread, so that no answer waits for it.

    `rows` give the same in a third of the time, in the form from which the short form is made. For
    candidates: their columns, without ranks and hashes. For a merged list, candidates are given by backend
    and rank there. For a result: candidate, score, calibrated score, the others it represents, support,
    weight. For a dropped candidate: candidate, reason, detail, and the candidate named after that, or None.
    """

    def __init__(
        self, make: Callable[[], list[Made]], rows: Callable[[], Iterable[Sequence[Any]]] | None = None
    ) -> None:
        self._make = make
        self.rows = rows

    @cached_property
    def _made(self) -> list[Made]:
        return self._make()

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Made]:
        return iter(self._made)

    @overload
    def __getitem__(self, index: int) -> Made: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Made]: ...
    def __getitem__(self, index: int | slice) -> Made | Sequence[Made]:
        return self._made[index]


class EventDetail:
    """The part of an event specific to one action: a frozen dataclass with its fields and its name."""

    __slots__ = ()
    action: ClassVar[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsEvent:
    """One thing that happened: who, when, how it went, under which trace."""

    id: str
    ts: datetime
    """Aware, UTC; in milliseconds on disk."""
    action: str
    status: Status
    trace_id: str
    session_key: str | None = None
    run_id: str | None = None
    backend: str | None = None
    duration_ms: float | None = None
    schema_version: int = SCHEMA_VERSION
    detail: EventDetail | Mapping[str, JsonValue]
    """The typed value while the program runs; read back, the mapping in the line, with camelCase keys."""

    @property
    def began(self) -> datetime:
        """Return when it began, for an event with a duration."""
        return self.ts - timedelta(milliseconds=self.duration_ms or 0.0)

    @property
    def logged(self) -> Mapping[str, object]:
        """Return the detail of an event read back from the log; empty for any other."""
        return self.detail if isinstance(self.detail, Mapping) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """An exception in the log: its class name and its message."""

    type: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> "ErrorInfo":
        """Describe `error`; without a message, by its representation."""
        return cls(type=type(error).__name__, message=str(error) or repr(error))


# --- one question -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What the question seems to be about."""

    entities: Sequence[str] = ()
    topics: Sequence[str] = ()
    time_hints: Sequence[JsonValue] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStart(EventDetail):
    """A question is about to be sent to the backends."""

    action: ClassVar[str] = "query.start"
    query: str
    """The first `QUERY_PREVIEW_CHARS` characters."""
    max_results: int
    min_score: float
    intent: Intent | None = None
    active_backends: Sequence[str]
    skipped_backends: Mapping[str, str] = field(default_factory=dict)
    """Backend id to the reason why it is not asked."""
    weights_version: str | int | None = None
    manager: str
    """Id of the composite that asks; composites nest under one trace."""
    query_id: str = ""
    """Distinguishes this question from others in its trace; its results and merged list have it too."""
    memory: str | None = None
    """The id of the memory; several may share a log."""
    now: str | None = None
    """The caller's clock, in ISO 8601, if given; otherwise it was the time of the event."""
    filters: Mapping[str, JsonValue] | None = None
    """The filters of the question, if any."""


def place_key(path: str, start_line: int, end_line: int, start_char: int | None = None) -> str:
    """Return `path:start:end`, with `:start_char` for a piece of a line that does not begin it."""
    within = f":{start_char}" if start_char else ""
    return f"{path}:{start_line}:{end_line}{within}"


class TakenFrom(NamedTuple):
    """The lines of a file that a hit was taken from, or that were quoted; 0 if unknown."""

    path: str
    start_line: int
    end_line: int
    start_char: int | None = None
    """The offset in its first line of a piece of a long line that was quoted."""


class Candidate(NamedTuple):
    """One hit as its backend returned it, before calibration and weights.

    A named tuple: a query creates dozens of them, and one costs a third of a frozen dataclass.
    """

    path: str
    start_line: int
    end_line: int
    score: float
    rank: int
    """Rank in the backend's own list, from 1."""
    source: str
    snippet_preview: str
    """The first `SNIPPET_PREVIEW_CHARS` characters, without a partial word at the end."""
    content_hash: str | None = None
    """No longer written; keeps the positions of the fields in candidates of stored golden questions."""
    exact: bool = False
    """Whether the backend found the very words."""
    origin: TakenFrom | None = None
    """The source of a hit that is not a passage of a file; a replay merges it with that passage."""
    start_char: int | None = None
    """The offset in its first line of a piece of a long line, which distinguishes such pieces in a replay."""
    outdated: Sequence[TakenFrom] | None = None
    """Places that, on a fact's matter, say what no longer holds; a replay ranks them below the fact."""

    @property
    def snippet(self) -> str:
        """Return what is known of its text."""
        return self.snippet_preview

    @property
    def key(self) -> str:
        """Return the key of its place, the same across backends."""
        return place_key(self.path, self.start_line, self.end_line, self.start_char)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendResult(EventDetail):
    """One backend answered, failed or was skipped; its id and time are on the event."""

    action: ClassVar[str] = "query.backend_result"
    weight: float
    result_count: int
    results: Sequence[Candidate] = ()
    """Every candidate, in the backend's order, not only those that survived the merge."""
    depth: int
    """How many candidates were requested."""
    error: ErrorInfo | None = None
    skipped: str | None = None
    query_id: str = ""
    calibration: str = "auto"
    """The configured method for this backend; the merged list has the one that `auto` resolved to."""
    is_absolute: bool = True
    """Whether the backend promises absolute scores."""
    answered_by: str | None = None
    """Which memory answered in its place."""
    legs: Mapping[str, Sequence[float]] | None = None
    """For each leg, such as `keyword`: when it began and how long it took, in milliseconds."""
    leg_scores: Mapping[str, Sequence[float | None]] | None = None
    """For each leg, its scores of the candidates, in their order."""


class FinalResult(NamedTuple):
    """One hit of the merged answer and how it got its score."""

    path: str
    start_line: int
    end_line: int
    score: float
    backend: str
    raw_score: float
    calibrated_score: float
    weight: float
    backend_rank: int
    merged_with: Sequence[str]
    """Keys of the duplicates that it represents."""
    support: float
    """The part of the score that comes from facts taken from here."""
    snippet_preview: str
    origin: TakenFrom | None = None
    start_char: int | None = None


class Dropped(NamedTuple):
    """One candidate that did not reach the answer, and why."""

    path: str
    start_line: int
    end_line: int
    backend: str
    reason: str
    detail: str = ""
    origin: TakenFrom | None = None
    start_char: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupStats:
    """How many duplicates the merge removed, and how many hits each backend had returned."""

    duplicates_removed: int
    by_backend: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """A backend whose answer was limited, and why."""

    backend: str
    reason: str


class NearPair(NamedTuple):
    """Two candidates with nearly equal texts, as indices into all lists laid end to end."""

    one: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """A list interleaved from the rankings of two weight tables, and which of them picked each result."""

    id: str
    """The experiment."""
    weights_a: Mapping[str, float]
    weights_b: Mapping[str, float]
    seed: int
    teams: tuple[str, ...] = ()
    """The team to credit for each result, in order: `a`, `b`, or `-` for neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMerged(EventDetail):
    """The answers were merged into one list; with the candidates of its trace, it can be recomputed."""

    action: ClassVar[str] = "query.merged"
    fusion: str
    calibration: Mapping[str, str]
    """Backend id to the method that calibrated its scores."""
    weights: Mapping[str, float]
    dedup: str
    min_score: float
    max_results: int
    depth: int
    """How deep each list was read first; for more results, repeatedly twice as deep."""
    rrf_k: int
    total_before_dedup: int
    total_after_dedup: int
    dedup_stats: DedupStats
    final_results: Sequence[FinalResult]
    dropped: Sequence[Dropped] = ()
    backend_attribution: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Backend id to the paths that it contributed to the answer."""
    degraded: Sequence[Degradation] = ()
    query_id: str = ""
    intent_kind: str | None = None
    """The kind of question, by which weights may differ."""
    near: Sequence[NearPair] = ()
    """Decides on near duplicates, which previews are too short for; -1 if there were too many."""
    experiment: Interleaved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDelivered(EventDetail):
    """The answer was delivered by one of the interfaces."""

    action: ClassVar[str] = "query.delivered"
    result_count: int
    paths: Sequence[str]
    hidden: Sequence[int] | None = None
    """1-based ranks in the merged list of weak results that were left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRead(EventDetail):
    """A memory file, or lines of it, were read."""

    action: ClassVar[str] = "memory.read"
    path: str
    from_line: int | None = None
    lines: int | None = None
    chars: int
    """Length of the text that was read."""
    query_trace_id: str | None = None
    """The trace of the search that led here, if the reader says so."""
    memory: str | None = None
    """The id of the memory that it was read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRemembered(EventDetail):
    """A sentence was retained in a note, or was already there; its text is not logged."""

    action: ClassVar[str] = "memory.remembered"
    path: str
    start_line: int
    end_line: int
    id: str | None = None
    type: str
    """World, experience, opinion or observation."""
    chars: int
    """Length of the sentence."""
    entity_count: int = 0
    is_known: bool = False
    """Whether the note already said it, so that nothing was written."""
    degraded: Sequence[str] = ()
    """The backends that cannot find it yet."""
    memory: str | None = None
    """The id of the memory that the note belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForgotten(EventDetail):
    """Lines of notes were forgotten, or a store followed later; their text is not logged."""

    action: ClassVar[str] = "memory.forgotten"
    place_count: int
    stays_count: int = 0
    """How many of the places are hidden, but still in files that cannot be cut."""
    ids: Sequence[str] = ()
    """The ids of those lines that have one; empty if an earlier process began this."""
    pending: Sequence[str] = ()
    """The backends that have yet to follow."""
    memory: str | None = None
    """The id of the memory that the notes belong to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGiven(EventDetail):
    """An agent answered with the results of a search; the answer itself is not kept."""

    action: ClassVar[str] = "answer.given"
    query_trace_id: str
    """The trace of the search; the event may have its own."""
    chars: int
    """Length of the answer."""
    quoted: Sequence[TakenFrom] = ()
    """The results that the answer quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPackBuild(EventDetail):
    """Results were packed into one text within a budget of characters or tokens."""

    action: ClassVar[str] = "context_pack.build"
    query_count: int
    selected_count: int
    max_chars: int | None = None
    max_tokens: int | None = None
    pack_length: int
    """In characters."""


# --- the state of backends ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOpened(EventDetail):
    """A backend is ready; its id is on the event."""

    action: ClassVar[str] = "backend.opened"
    capabilities: Sequence[str]
    what: str = ""
    """What does the work inside, such as the chosen engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendDegraded(EventDetail):
    """A backend continues in a limited way."""

    action: ClassVar[str] = "backend.degraded"
    level: str
    reason: str
    what: str = ""
    """The part concerned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRecovered(EventDetail):
    """A backend that another stood in for is active again; its id is on the event."""

    action: ClassVar[str] = "backend.recovered"
    what: str = ""
    """Which one stood in for it."""
    failures: int
    """How often it had failed in a row."""
    after_s: float
    """Seconds since the first of these failures."""
