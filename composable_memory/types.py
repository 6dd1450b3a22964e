"""Values of search, sync and status: the input and output of a memory."""

from collections.abc import Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from composable_memory.errors import InvalidArgument, require, require_all, require_text, require_whole
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from pydantic import JsonValue as JsonValue
else:  # importing pydantic takes longer than a search
    JsonValue = Any

DEFAULT_MAX_RESULTS = 6
MAX_SNIPPET_CHARS = 700

MemorySource = Literal["memory", "sessions"]
"""Where a text was written: in a memory file, or in the transcript of a session."""

SyncReason = Literal["search", "watch", "session-start", "session-delta", "interval", "manual", "cli", "boot"]
"""Why a sync was asked for."""

PAGED = (".pdf", ".epub")
"""Endings of files whose lines are numbered by pages or chapters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where something was taken from: a file as named in results, and its lines, 0 if unknown.

    `gone` is true if the file is known not to exist any more.
    """

    path: str
    start_line: int = 0
    end_line: int = 0
    gone: bool | None = field(default=None, compare=False)

    @property
    def citation(self) -> str:
        """Return `path#L3-L7`, `path#L3` for a single line, or the path alone if the lines are unknown.

        What has pages or chapters instead of lines is cited by these: `report.pdf#p3-p4`.
        """
        return format_citation(self.path, self.start_line, self.end_line)

    @property
    def shown(self) -> str:
        """Return the citation for people, saying so if the file no longer exists."""
        return f"{self.citation} (gone)" if self.gone else self.citation


def format_citation(path: str, start_line: int, end_line: int) -> str:
    """Return the citation of lines of a file, as `Origin.citation` describes it."""
    if start_line < 1:
        return path
    unit = "p" if path.lower().endswith(PAGED) else "L"
    last = f"-{unit}{end_line}" if end_line > start_line else ""
    return f"{path}#{unit}{start_line}{last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportingFact:
    """A fact with the time in which it holds, in or supporting a result.

    It held in the world from `valid_from` until before `valid_to`; None means unknown, and still holding.
    `holds` says whether it held at `as_of`, the time that the question is about, by default the present.
    `origin` is where the fact was taken from.
    """

    text: str
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    as_of: datetime | None = field(default=None, compare=False)  # the same fact, whenever it is asked for
    holds: bool = True
    origin: Origin | None = None

    @property
    def validity(self) -> str:
        """Return the time in which it holds, in words; empty if nothing is known about it."""
        since, until = _day(self.valid_from), _day(self.valid_to)
        if until and self.valid_from == self.valid_to:  # the text only says that something ended then
            return f"ended {until}"
        if self.holds:
            return " ".join(part for part in (since and f"since {since}", until and f"until {until}") if part)
        if self.valid_from is not None and self.as_of is not None and self.valid_from > self.as_of:
            return f"from {since}" + (f" to {until}" if until else "")
        if since and until:
            return f"{since} to {until}; no longer holds"
        known = (since and f"since {since}; ") or (until and f"until {until}; ") or ""
        return f"{known}no longer holds"

    def __str__(self) -> str:
        return f"{self.text} ({self.validity})" if self.validity else self.text


def _day(moment: datetime | None) -> str | None:
    return moment.date().isoformat() if moment else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearchResult:
    """One passage that answers a query.

    `path` is relative to the workspace, with `/`. Lines are 1-based and inclusive; a hit without lines (a
    fact of a graph) has 0 for both. `score` is in [0, 1], higher is better. `snippet` has at most
    `MAX_SNIPPET_CHARS` characters, `text` the whole passage; if a backend gives no text, the composite uses
    the snippet. `citation` is its place, as in `memory/plan.md#L3-L7`, or None if the settings want no
    citations. `exact` says that the text contains every content word of the query; such a hit is never cut by
    a minimum score. `origin` is where a result that is not a passage of a file was taken from, such as the
    note behind a fact; its citation leads there. `metadata` is what else the backend knows. `start_char` is
    the 0-based offset in its first line of a passage that is a piece of that line. `highlights` are the parts
    of the snippet that match the query, as ascending pairs of begin and end, in 0-based characters. `facts`
    are related facts, each with its time: those taken from a passage, or the one that the result states,
    followed by others about the same matter that do not hold at the time asked about. `title` is that of its
    note; `headings` are those above it, outermost first.
    """

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: MemorySource = "memory"
    citation: str | None = None
    source_backend: str | None = None
    exact: bool = False
    origin: Origin | None = None
    start_char: int = 0
    metadata: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)
    highlights: tuple[tuple[int, int], ...] = ()
    text: str = ""
    facts: tuple[SupportingFact, ...] = ()
    title: str = ""
    headings: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Return `path:start_line:end_line`, which identifies the passage across backends.

        For a piece of a line that does not begin it, `:start_char` follows.
        """
        within = f":{self.start_char}" if self.start_char else ""
        return f"{self.path}:{self.start_line}:{self.end_line}{within}"

    @property
    def outdated(self) -> tuple[Origin, ...]:
        """Return the places that, on the matter of a fact that holds, say what no longer does."""
        if self.origin is None or not self.facts or not self.facts[0].holds:
            return ()
        return tuple(one.origin for one in self.facts if one.origin and not one.holds)


DegradationCode = Literal[
    "keyword-only",
    "vector-only",
    "disabled",
    "vectors-pending",
    "stale",
    "never-indexed",
    "rebuild-due",
    "engine-fallback",
    "not-reranked",
    "damaged",
    "unreadable-files",
    "failed",
    "timeout",
    "breaker-open",
    "fallback",
    "scope-denied",
    "garbled",
    "unavailable",
    "no-backends",
    "not-filtered",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degradation:
    """One limitation of an answer: whose, which kind, why, and what to do."""

    backend_id: str
    code: DegradationCode
    reason: str


LEGS = ("by_words", "by_meaning")
"""Metadata keys for the contribution of each leg to a result's score, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """Results together with what is known to be missing from them.

    `engines` names the engines that answered, for example `{"vector": "exact", "keyword": "fts5"}`.
    `is_filtered` says that every filter was applied; otherwise the caller applies those that it can check on
    the results. `legs` has for each step, such as `keyword` or `embed`, when it began after the backend was
    asked and how long it took, in milliseconds.
    """

    results: tuple[MemorySearchResult, ...]
    degraded: tuple[Degradation, ...] = ()
    engines: Mapping[str, str] = field(default_factory=dict)
    is_filtered: bool = False
    legs: Mapping[str, tuple[float, float]] = field(default_factory=dict, compare=False)


def _require_aware(name: str, moment: object) -> None:
    if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
        raise InvalidArgument(name, "a time with its zone", moment)


TimeUnit = Literal["day", "week", "month", "year"]
TimeHintType = Literal["day", "week", "month", "year", "absolute"]
TimeRelation = Literal["during", "as-of", "since", "until", "before", "after"]
"""How a question relates to a time in it; `as-of` asks for what was known to hold at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeHint:
    """A time mentioned in a query.

    `offset` counts `unit`s from now: -1 is yesterday, last week, last month. More than one without a
    `relation` is all the time since then, as in "the last 5 days"; "5 days ago" is `during` that one day.

    `date` is set for an absolute time: an ISO date, or a prefix of one, as in 2026 and 2026-03, a quarter,
    2026-Q1, or a week, 2026-W21. Without a year in the query it starts with `-`: `--03`, `--03-01`, `--Q1`,
    and `-W-1` for a Monday. With these, an `offset` of -1 means the last, as in "last Monday", which is never
    today, 1 the next that has not begun, and 0 the next that is not over, as in "what is planned for May".
    `until` is the end of a range that begins at `date`.
    """

    phrase: str
    type: TimeHintType
    unit: TimeUnit | None = None
    offset: int | None = None
    date: str | None = None
    until: str | None = None
    relation: TimeRelation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """A range of time that a question asks for; both ends are aware. A single moment has equal ends."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryIntent:
    """What a query is about, as far as its words show."""

    entities: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    time_hints: tuple[TimeHint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilters:
    """Conditions that results must meet; an empty filter accepts everything.

    `since` and `until` are aware and inclusive. They apply to the day of a note: the date in its name or its
    folder's, else `date:` in its front matter, else its last change; or to the times of messages in a
    transcript. A path passes if one of `paths` matches: `*` and `?` stay within a folder, `**` does not, a
    pattern without `/` matches in any folder, and one that names a folder matches everything in it. A note
    passes if it has all `tags`, in its front matter or as `#tag`; `a` includes `a/b`. `types` are `note`,
    `transcript`, `fact`, file endings such as `md`, or values of `type:` in the front matter of notes;
    `world`, `experience`, `opinion` and `observation` also accept passages with a retained line of that type.
    Passages pass if they contain all `phrases`, ignoring case, and none of the words in `without`.
    """

    since: datetime | None = None
    until: datetime | None = None
    paths: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sources: tuple[MemorySource, ...] = ()
    types: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_aware("since", self.since)
        _require_aware("until", self.until)
        if self.since and self.until and self.since > self.until:
            raise InvalidArgument("since", f"no later than until, {self.until}", str(self.since))
        for name in ("paths", "tags", "sources", "types", "phrases", "without"):
            require_all(name, getattr(self, name), str, "a list of texts")
            if not all(one.strip(" #") for one in getattr(self, name)):
                raise InvalidArgument(name, "texts that are not blank", "")
        known = get_args(MemorySource)
        if unknown := [one for one in self.sources if one not in known]:
            raise InvalidArgument("sources", " or ".join(known), unknown[0])

    def __bool__(self) -> bool:
        return self is not NO_FILTERS and self != NO_FILTERS

    @property
    def narrow(self) -> bool:
        """Return whether there are positive conditions, not only words to exclude."""
        return bool(self) and bool(replace(self, without=()))


NO_FILTERS = SearchFilters()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """How much to return, and of what.

    `max_results` is at least 1. `min_score` in [0, 1] acts on calibrated scores and never cuts an exact hit.
    `session_key` names the session that asks. `intent` is what the query is about, as parsed by the
    composite, or None. `now` is the caller's clock, from which "yesterday" is counted; None means the
    present. `by_word` asks a backend that supports it for the contribution of each word, in the metadata as
    `words`: a list of `{"word": …, "score": …}` that adds up to `by_words`.
    """

    max_results: int = DEFAULT_MAX_RESULTS
    min_score: float = 0.0
    session_key: str | None = None
    intent: QueryIntent | None = None
    filters: SearchFilters = NO_FILTERS
    now: datetime | None = None
    by_word: bool = False

    def __post_init__(self) -> None:
        require("filters", self.filters, SearchFilters, "SearchFilters")
        _require_aware("now", self.now)
        require_whole("max_results", self.max_results)
        if not (isinstance(self.min_score, int | float) and 0.0 <= self.min_score <= 1.0):
            raise InvalidArgument("min_score", "a number from 0 to 1", self.min_score)
        require_text("session_key", self.session_key, optional=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRequest:
    """A question to all memories, or only to the named `backends`.

    `query` may contain filters, which are added to those of the options: `path:`, `tag:`, `type:`, `after:`,
    `before:`, each with a value, `"a phrase"` that is required, and `-word` that is excluded. `now` overrides
    that of the options.
    """

    query: str
    options: SearchOptions = SearchOptions()
    backends: tuple[str, ...] | None = None
    now: datetime | None = None

    def __post_init__(self) -> None:
        _require_aware("now", self.now)
        require_text("query", self.query)
        require("options", self.options, SearchOptions, "SearchOptions")
        if self.backends is not None:
            require_all("backends", self.backends, str, "a list of backend ids")


SkipReason = Literal["condition", "breaker-open", "not-asked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendAnswer:
    """The answer of one backend: its results with its own scores, or why there are none."""

    backend_id: str
    results: tuple[MemorySearchResult, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    error: Exception | None = None
    took_ms: float = 0.0
    skipped: SkipReason | None = None
    engines: Mapping[str, str] = field(default_factory=dict)
    legs: Mapping[str, tuple[float, float]] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """How one result got its place.

    `raw_score` is the backend's own, `calibrated_score` that score on the common scale [0, 1], `weight` the
    backend's weight, `backend_rank` the 1-based rank in the backend's list. `merged_with` names the other
    candidates that said the same, as `backend path:start:end`. `support` is the part of the final score from
    facts taken from this passage; or, negative, what a fact lost because its passage was searched and not
    found.
    """

    backend_id: str
    raw_score: float
    calibrated_score: float
    weight: float
    backend_rank: int
    merged_with: tuple[str, ...] = ()
    support: float = 0.0


DropReason = Literal["duplicate", "overlap", "near-duplicate", "min-score", "weight-zero", "weak"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedCandidate:
    """A candidate that was dropped; `detail` says what it lost against."""

    backend_id: str
    result: MemorySearchResult
    reason: DropReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResponse:
    """The merged answer and everything needed to see why it is what it is.

    `attributions` is parallel to `results`. `dropped` lists the candidates that were ruled out, `overflow`
    those after the last result, in order. `weak` says that no result matches the question well, so these are
    only the nearest; it is never set if a minimum score or a filter was given. `narrowed` says that a filter
    set a positive condition. `latency_ms` is wall time of the whole query.
    """

    trace_id: str
    results: tuple[MemorySearchResult, ...]
    attributions: tuple[Attribution, ...] = ()
    dropped: tuple[DroppedCandidate, ...] = ()
    overflow: tuple[tuple[str, MemorySearchResult], ...] = ()
    answers: tuple[BackendAnswer, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    intent: QueryIntent | None = None
    weak: bool = False
    narrowed: bool = False
    weights_version: str = ""
    latency_ms: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPack:
    """A text of the best results within a budget of characters, and the results in it."""

    pack: str
    sources: tuple[MemorySearchResult, ...]
    trace_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFileSlice:
    """Lines of a memory file; `path` is relative to the workspace, a missing file has empty text."""

    text: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySyncProgressUpdate:
    """Progress of a sync: `completed` of `total` steps, and what it is doing."""

    completed: int
    total: int
    label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What a sync did.

    `embedded` counts embedded texts, except cached ones. `passed_over` counts files and folders that do not
    count as notes, by reason.
    """

    reason: str
    files_indexed: int = 0
    files_unchanged: int = 0
    files_removed: int = 0
    chunks_written: int = 0
    embedded: int = 0
    embeddings_pending: int = 0
    problems: tuple[str, ...] = ()
    passed_over: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEmbeddingProbeResult:
    """Whether a text could be embedded just now, and if not, why."""

    ok: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    """Files and chunks of one source."""

    source: MemorySource
    files: int
    chunks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatus:
    """State of the embedding cache."""

    enabled: bool
    entries: int | None = None
    max_entries: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FtsStatus:
    """State of keyword search."""

    enabled: bool
    available: bool
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackStatus:
    """Which provider failed and was replaced; written as `from` in JSON."""

    from_: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStatus:
    """State of vector search; `available` is None until it was tried.

    `engine` names what searches the vectors, or will.
    """

    enabled: bool
    available: bool | None = None
    engine: str | None = None
    extension_path: str | None = None
    load_error: str | None = None
    dims: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """State of a provider's batch interface."""

    enabled: bool
    failures: int = 0
    limit: int = 2
    wait: bool = True
    concurrency: int = 2
    poll_interval_ms: int = 2000
    timeout_ms: int = 3_600_000
    last_error: str | None = None
    last_provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryProviderStatus:
    """A snapshot of a memory for people and programs; None means unknown or not applicable.

    `custom` has what else a backend reports, under its own names: `cmem status` shows it line by line. What
    commands and tools read from it has a property here, whose docstring gives the name.
    """

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
    custom: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def search_mode(self) -> str | None:
        """Return how it searches, such as `hybrid` or `keyword-only`: `searchMode`."""
        mode = self.custom.get("searchMode")
        return mode if isinstance(mode, str) else None

    @property
    def transcripts_folder(self) -> str | None:
        """Return where the transcripts are that it reads: `transcriptsFolder`."""
        folder = self.custom.get("transcriptsFolder")
        return folder if isinstance(folder, str) else None

    @property
    def note_paths(self) -> tuple[str, ...]:
        """Return the extra paths, plus the workspace itself if its whole folder counts as notes: `scope`."""
        match self.custom.get("scope"):
            case {"notes": "folder"}:
                return (*self.extra_paths, ".")
        return self.extra_paths

    @property
    def document_suffixes(self) -> frozenset[str]:
        """Return the endings of documents that are indexed beside the notes: `documents.suffixes`."""
        match self.custom.get("documents"):
            case {"suffixes": [*suffixes]}:
                return frozenset(map(str, suffixes))
        return frozenset()

    @property
    def watch(self) -> Mapping[str, JsonValue] | None:
        """Return how its sources are watched, by `state`, `roots`, `reason`, `intervalMinutes`: `watch`."""
        watch = self.custom.get("watch")
        return watch if isinstance(watch, Mapping) else None

    @property
    def rebuild(self) -> Mapping[str, JsonValue] | None:
        """Return the cost of a pending rebuild, in `tokens` and `passages`: `rebuild`."""
        cost = self.custom.get("rebuild")
        return cost if isinstance(cost, Mapping) else None

    @property
    def embedder_problem(self) -> str | None:
        """Return why there is no embedding provider although one is wanted: `providerUnavailableReason`."""
        reason = self.custom.get("providerUnavailableReason")
        return str(reason) if reason and self.requested_provider != "none" else None
