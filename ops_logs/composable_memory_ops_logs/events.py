"""What can be logged: one frozen value per action, and the event that carries it.

Here are questions and backends; `sync_events`, `ingest_events` and `learning_events` have the others.
Field names are snake_case here and camelCase on disk (`wire.py`). Texts are previews, never whole notes.
A field that is None is left out on disk; lists and mappings are always written, empty or not.
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
"""Version of the format on disk; rises when a reader of the old one would misread the new one."""

QUERY_PREVIEW_CHARS = 200
"""How much of a query an event shows."""

SNIPPET_PREVIEW_CHARS = 120
"""How much of a snippet an event shows."""

_LAST_WORD = Pattern(r"[!-~]+\Z")


def snippet_preview(text: str) -> str:
    """Return the beginning of a snippet, without a word that would be cut.

    It could be a secret, which nobody could tell by its beginning, and so mask.
    """
    shown = text[:SNIPPET_PREVIEW_CHARS]
    if text[len(shown) : len(shown) + 1].isspace() or len(text) <= len(shown):
        return shown
    cut = _LAST_WORD.search(shown, shown.rfind(" ") + 1)  # from there on takes less time
    return shown[: cut.start()] if cut else shown


JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
"""Anything JSON can say, from any kind of sequence or mapping."""

Status: TypeAlias = Literal["success", "failure", "partial"]


Made = TypeVar("Made")


class MadeWhenRead(Sequence[Made]):
    """What is made when somebody reads it, such as the log's thread, not while an answer is waited for.

    `rows` tell the same in what the short form is made of in a third of the time. Of candidates these are
    their columns, without ranks and hashes. Of a merged list they name a candidate by its backend and its
    rank there. Of a result: candidate, score, calibrated score, the others that it stands for, support,
    weight. Of what was ruled out: candidate, reason, what is said of it, and the candidate that is named
    behind that, or None.
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
    """What is particular to one action: a frozen dataclass with its fields and the name of the action."""

    __slots__ = ()
    action: ClassVar[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpsEvent:
    """One thing that happened, once: who, when, how it went, under which trace."""

    id: str
    ts: datetime
    """Aware, UTC; milliseconds on disk."""
    action: str
    status: Status
    trace_id: str
    session_key: str | None = None
    run_id: str | None = None
    backend: str | None = None
    duration_ms: float | None = None
    schema_version: int = SCHEMA_VERSION
    detail: EventDetail | Mapping[str, JsonValue]
    """The typed value while the program runs; read back, the mapping of the line, with camelCase keys."""

    @property
    def began(self) -> datetime:
        """Return when it began, for what took a time."""
        return self.ts - timedelta(milliseconds=self.duration_ms or 0.0)

    @property
    def logged(self) -> Mapping[str, object]:
        """Return the detail as it was read back from the log; empty for one that was not."""
        return self.detail if isinstance(self.detail, Mapping) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """An exception as a log tells it: its class name and its message."""

    type: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> "ErrorInfo":
        """Describe `error`; one without a message is described by its representation."""
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
    """A question is about to be put to the backends."""

    action: ClassVar[str] = "query.start"
    query: str
    """The first `QUERY_PREVIEW_CHARS` characters."""
    max_results: int
    min_score: float
    intent: Intent | None = None
    active_backends: Sequence[str]
    skipped_backends: Mapping[str, str] = field(default_factory=dict)
    """Backend id to the reason it is not asked."""
    weights_version: str | int | None = None
    manager: str
    """Id of the composite that asks; composites nest under one trace."""
    query_id: str = ""
    """Tells this question from others under its trace; its results and its merged list name it too."""
    memory: str | None = None
    """The mark of the memory that is asked; several may share a log."""
    now: str | None = None
    """The clock of whoever asked, in ISO 8601, where it was given; otherwise it was the time of the event."""
    filters: Mapping[str, JsonValue] | None = None
    """What results had to be, as far as anything was asked for."""


def place_key(path: str, start_line: int, end_line: int, start_char: int | None = None) -> str:
    """Return `path:start:end`, and `:start_char` for a piece of a line that begins within it."""
    within = f":{start_char}" if start_char else ""
    return f"{path}:{start_line}:{end_line}{within}"


class TakenFrom(NamedTuple):
    """The lines of a file that a hit was taken from, or that were quoted; 0 where they are not known."""

    path: str
    start_line: int
    end_line: int
    start_char: int | None = None
    """Where in its first line a piece of a long line begins that was quoted."""


class Candidate(NamedTuple):
    """One hit as its backend gave it, before calibration and weights.

    A named tuple: a query makes dozens of them, and one costs a third of what a frozen dataclass does.
    """

    path: str
    start_line: int
    end_line: int
    score: float
    rank: int
    """Place in the backend's own list, from 1."""
    source: str
    snippet_preview: str
    """The first `SNIPPET_PREVIEW_CHARS` characters, without a word that would be cut."""
    content_hash: str | None = None
    """No longer written; it keeps the place that it has in candidates of stored golden questions."""
    exact: bool = False
    """True when the backend found the words themselves."""
    origin: TakenFrom | None = None
    """Where a hit that is no passage of a file was taken from; a replay merges it with that passage."""
    start_char: int | None = None
    """Where in its first line a piece of a long line begins; a replay tells such pieces apart."""
    outdated: Sequence[TakenFrom] | None = None
    """The places that say of a fact's matter what does not hold; a replay ranks them below the fact."""

    @property
    def snippet(self) -> str:
        """Return what is known of its text."""
        return self.snippet_preview

    @property
    def key(self) -> str:
        """Return the name of its place across backends."""
        return place_key(self.path, self.start_line, self.end_line, self.start_char)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendResult(EventDetail):
    """One backend answered, failed or was passed over; its id and time are on the event."""

    action: ClassVar[str] = "query.backend_result"
    weight: float
    result_count: int
    results: Sequence[Candidate] = ()
    """Every candidate, in the backend's order, not only those that survived the merge."""
    depth: int
    """How many candidates were asked for."""
    error: ErrorInfo | None = None
    skipped: str | None = None
    query_id: str = ""
    calibration: str = "auto"
    """The method that is set for this backend; which one `auto` came to is told by the merged list."""
    is_absolute: bool = True
    """Whether the backend promises that its scores are absolute."""
    answered_by: str | None = None
    """Who answered in its place."""
    legs: Mapping[str, Sequence[float]] | None = None
    """For each step within, such as `keyword`: when it began and how long it took, in milliseconds."""
    leg_scores: Mapping[str, Sequence[float | None]] | None = None
    """For each way of searching what it gave to the candidates, in their order."""


class FinalResult(NamedTuple):
    """One hit of the merged answer and how it came to its score."""

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
    """Keys of the duplicates it stands for."""
    support: float
    """The part of the score that facts added which were taken from here."""
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
    """How many duplicates the merge removed, and how many hits each backend had brought."""

    duplicates_removed: int
    by_backend: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """A backend that answered with less than it can, and why."""

    backend: str
    reason: str


class NearPair(NamedTuple):
    """Two candidates whose texts are nearly equal, by their places when all lists are laid end to end."""

    one: int
    other: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """A list that was drawn from the rankings of two weight tables, and who put up each result."""

    id: str
    """The experiment."""
    weights_a: Mapping[str, float]
    weights_b: Mapping[str, float]
    seed: int
    teams: tuple[str, ...] = ()
    """Who has the credit of each result, in order: `a`, `b`, or `-` for neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMerged(EventDetail):
    """The answers became one list; with the candidates of its trace, enough to compute the list again."""

    action: ClassVar[str] = "query.merged"
    fusion: str
    calibration: Mapping[str, str]
    """Backend id to the method that made its scores comparable."""
    weights: Mapping[str, float]
    dedup: str
    min_score: float
    max_results: int
    depth: int
    """How deep each list was read first; for more results than that, twice as deep again and again."""
    rrf_k: int
    total_before_dedup: int
    total_after_dedup: int
    dedup_stats: DedupStats
    final_results: Sequence[FinalResult]
    dropped: Sequence[Dropped] = ()
    backend_attribution: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Backend id to the paths of the answer it contributed."""
    degraded: Sequence[Degradation] = ()
    query_id: str = ""
    intent_kind: str | None = None
    """The kind of question, which weights can differ by."""
    near: Sequence[NearPair] = ()
    """Decides on near duplicates, which previews of their texts could not; -1 where there are too many."""
    experiment: Interleaved | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDelivered(EventDetail):
    """The answer left through a face of the program."""

    action: ClassVar[str] = "query.delivered"
    result_count: int
    paths: Sequence[str]
    hidden: Sequence[int] | None = None
    """Ranks in the merged list, from 1, of weak results that were left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRead(EventDetail):
    """A memory file, or lines of it, were read."""

    action: ClassVar[str] = "memory.read"
    path: str
    from_line: int | None = None
    lines: int | None = None
    chars: int
    """How long the text is that was read."""
    query_trace_id: str | None = None
    """The trace of the search that led here, where the reader says so."""
    memory: str | None = None
    """The mark of the memory that it was read from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRemembered(EventDetail):
    """A sentence was retained in a note, or was there already; what it says is not logged."""

    action: ClassVar[str] = "memory.remembered"
    path: str
    start_line: int
    end_line: int
    id: str | None = None
    type: str
    """World, experience, opinion or observation."""
    chars: int
    """How long the sentence is."""
    entity_count: int = 0
    is_known: bool = False
    """Whether the note said it before, so that nothing was written."""
    degraded: Sequence[str] = ()
    """The backends that cannot find it yet."""
    memory: str | None = None
    """The mark of the memory whose note it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryForgotten(EventDetail):
    """Lines of notes were forgotten, or a store followed later; what they said is not logged."""

    action: ClassVar[str] = "memory.forgotten"
    place_count: int
    stays_count: int = 0
    """How many of the places are hidden, but still stand in files that cannot be cut."""
    ids: Sequence[str] = ()
    """Those of the lines that have one; empty where a former process began."""
    pending: Sequence[str] = ()
    """The backends that have yet to follow."""
    memory: str | None = None
    """The mark of the memory whose notes they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGiven(EventDetail):
    """An agent answered with what a search had brought; the answer itself is not kept."""

    action: ClassVar[str] = "answer.given"
    query_trace_id: str
    """The trace of the search; the event may have a trace of its own."""
    chars: int
    """How long the answer is."""
    quoted: Sequence[TakenFrom] = ()
    """The results whose words stand in the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPackBuild(EventDetail):
    """Results were packed into one text under a budget of characters or of tokens; it is so many long."""

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
    """What answers inside, such as the engine that was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendDegraded(EventDetail):
    """A backend goes on with less than it can."""

    action: ClassVar[str] = "backend.degraded"
    level: str
    reason: str
    what: str = ""
    """The part concerned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRecovered(EventDetail):
    """A backend that others stood in for serves again; its id is on the event."""

    action: ClassVar[str] = "backend.recovered"
    what: str = ""
    """Who stood in for it."""
    failures: int
    """How often it had failed in a row."""
    after_s: float
    """Seconds since the first of these failures."""
