"""Reading queries back from a log: complete ones exactly, all others counted, lies never raised."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.logged.reading import (
    BAD_LINES,
    LINES_MISSING,
    NEWER_VERSION,
    NOT_UNDERSTOOD,
    QueryStream,
    read_queries,
)
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs import (
    SCHEMA_VERSION,
    AnswerGiven,
    BackendResult,
    Candidate,
    DedupStats,
    Degradation,
    ErrorInfo,
    EventDetail,
    FinalResult,
    Interleaved,
    MemoryRead,
    NearPair,
    OpsEvent,
    OpsLog,
    QueryDelivered,
    QueryMerged,
    QueryStart,
    TakenFrom,
    trace,
)
from composable_memory_ops_logs.line_format import event_to_wire, to_line

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
EVEN = 0.1 + 0.2  # not a short decimal


def start(query_id: str = "q1", **changes: object) -> QueryStart:
    known = {"query": "where is the key", "max_results": 5, "min_score": 0.25, "manager": "composite",
             "active_backends": ["builtin", "graph"], "weights_version": "v3"}  # fmt: skip
    return QueryStart(**{**known, **changes}, query_id=query_id)  # type: ignore[arg-type]


def candidate(
    path: str = "a.md", rank: int = 1, *, exact: bool = False, origin: TakenFrom | None = None
) -> Candidate:
    return Candidate(path, 3, 9, EVEN, rank, "memory", "the key is", None, exact, origin)


def found(*results: Candidate, query_id: str = "q1", **changes: object) -> BackendResult:
    known = {"weight": 1.0, "result_count": len(results), "results": results, "depth": 24}
    return BackendResult(**{**known, **changes}, query_id=query_id)  # type: ignore[arg-type]


def final(path: str = "a.md", **changes: object) -> FinalResult:
    known = {"path": path, "start_line": 3, "end_line": 9, "score": 0.7, "backend": "builtin",
             "raw_score": EVEN, "calibrated_score": 0.7, "weight": 1.0, "backend_rank": 1,
             "merged_with": (), "support": 0.0, "snippet_preview": "the key is"}  # fmt: skip
    return FinalResult(**{**known, **changes})  # type: ignore[arg-type]


def merged(query_id: str = "q1", **changes: object) -> QueryMerged:
    known = {"fusion": "weighted", "calibration": {}, "weights": {"builtin": EVEN, "graph": 1.0},
             "dedup": "near", "min_score": 0.25, "max_results": 5, "depth": 24, "rrf_k": 60,
             "total_before_dedup": 2, "total_after_dedup": 1, "final_results": [final()],
             "dedup_stats": DedupStats(duplicates_removed=1, by_backend={}),
             "intent_kind": "entity"}  # fmt: skip
    return QueryMerged(**{**known, **changes}, query_id=query_id)  # type: ignore[arg-type]


@dataclass
class Log:
    """A folder of log files, to which lines are appended."""

    folder: Path
    count: int = 0

    def write(self, detail: EventDetail, *, at: datetime = NOON, **changes: object) -> None:
        """Append an event."""
        self.count += 1
        known = {"id": f"e{self.count}", "ts": at, "action": detail.action, "status": "success",
                 "trace_id": "t1", "detail": detail}  # fmt: skip
        event = OpsEvent(**{**known, **changes})  # type: ignore[arg-type]
        self.raw(to_line(event_to_wire(event)), at)

    def raw(self, line: bytes, at: datetime = NOON) -> None:
        """Append a line."""
        with (self.folder / f"ops-{at:%Y-%m}.jsonl").open("ab") as file:
            file.write(line)

    def query(
        self, query_id: str = "q1", *, at: datetime = NOON, trace_id: str = "t1", **start_changes: object
    ) -> None:
        """Append a complete query."""
        self.write(start(query_id, **start_changes), at=at, trace_id=trace_id)
        self.write(found(candidate(), query_id=query_id), at=at, trace_id=trace_id, backend="graph")
        self.write(found(candidate(), query_id=query_id), at=at, trace_id=trace_id, backend="builtin")
        self.write(merged(query_id), at=at, trace_id=trace_id)

    def only(self) -> LoggedQuery:
        """Return the one query that there is."""
        (query,) = read_queries(self.folder).queries
        return query


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def ids(queries: Sequence[LoggedQuery]) -> list[str]:
    return [query.query_id for query in queries]


def test_a_missing_log_has_no_queries(tmp_path: Path) -> None:
    read = read_queries(tmp_path / "nowhere")

    assert read.queries == ()
    assert read.incomplete == {}


async def test_what_a_log_wrote_is_read_back_exactly(tmp_path: Path) -> None:
    first = candidate(exact=True, origin=TakenFrom("b.md", 1, 2))
    async with OpsLog(tmp_path, clock=lambda: NOON) as ops_log:
        with trace(session_key="agent:main") as trace_id:
            ops_log.emit(start(memory="m1"))
            error = ErrorInfo(type="BackendTimeout", message="too slow")
            ops_log.emit(found(calibration="minmax", is_absolute=False, error=error), backend="graph")
            ops_log.emit(found(first, candidate("b.md", 2), answered_by="files"), backend="builtin")
            ops_log.emit(
                merged(
                    near=[NearPair(0, 1)],
                    final_results=[
                        final(merged_with=["graph b c.md:3:9", "builtin b.md:3:9"], origin=first.origin)
                    ],
                    degraded=[Degradation(backend="graph", reason="too slow")],
                )
            )
    query = await asyncio.to_thread(Log(tmp_path).only)

    assert (query.trace_id, query.query_id, query.at) == (trace_id, "q1", NOON)
    assert (query.query, query.manager, query.memory) == ("where is the key", "composite", "m1")
    assert query.session_key == "agent:main"
    assert query.intent is IntentKind.ENTITY
    assert query.backends == ("builtin", "graph")
    assert query.lists[0].candidates == (first, candidate("b.md", 2)._replace(snippet_preview=""))
    assert query.fallbacks == {"builtin"}
    assert (query.lists[1].calibration, query.lists[1].is_absolute) == ("minmax", False)
    assert query.lists[1].error == "BackendTimeout: too slow"
    assert query.near == {(0, 1)}
    assert query.policy.weights == {"builtin": EVEN, "graph": 1.0}
    assert (query.policy.fusion, query.policy.dedup, query.policy.rrf_k) == ("weighted", "near", 60)
    assert (query.policy.max_results, query.policy.min_score, query.policy.depth) == (5, 0.25, 24)
    assert query.shown[0].keys == ("a.md:3:9", "b c.md:3:9", "b.md:3:9")
    assert query.shown[0].calibrated == 0.7


def test_an_experiment_is_read_with_its_teams(log: Log) -> None:
    drawn = Interleaved(id="x1", weights_a={"builtin": 1.0}, weights_b={"builtin": 0.5}, seed=7, teams=("b",))
    log.write(start(active_backends=["builtin"]))
    log.write(found(candidate()), backend="builtin")
    log.write(merged(experiment=drawn))

    assert log.only().experiment == drawn


def test_a_question_whose_kind_nobody_read_is_a_general_one(log: Log) -> None:
    log.write(start(active_backends=[]))
    log.write(merged(intent_kind=None, final_results=[]))

    assert log.only().intent is IntentKind.GENERAL


def test_queries_come_oldest_first_over_the_months(log: Log) -> None:
    for day in range(4):
        log.query(f"q{day}", at=NOON + timedelta(days=day))

    assert ids(read_queries(log.folder).queries) == ["q0", "q1", "q2", "q3"]


def test_queries_of_one_trace_are_told_apart_while_they_run_together(log: Log) -> None:
    log.write(start("q1"))
    log.write(start("q2", manager="inner"))
    for query_id in ("q2", "q1"):
        log.write(found(candidate(f"{query_id}.md"), query_id=query_id), backend="graph")
        log.write(found(query_id=query_id), backend="builtin")
        log.write(merged(query_id, final_results=[final(f"{query_id}.md", backend="graph")]))

    read = read_queries(log.folder)

    assert [(one.manager, one.lists[1].candidates[0].path) for one in read.queries] == [
        ("composite", "q1.md"),
        ("inner", "q2.md"),
    ]
    assert read.incomplete == {}


def test_queries_of_some_traces_are_read_alone_and_no_others_understood(log: Log) -> None:
    for day, trace_id in enumerate(("t1", "t2", "t3", "t2")):
        log.query(f"q{day}", at=NOON + timedelta(days=day), trace_id=trace_id)
    log.write(start("q9", weights_version="v9"), at=NOON + timedelta(days=4), trace_id="t9")

    stream = QueryStream(log.folder, since=NOON + timedelta(days=1), traces=frozenset({"t1", "t2"}))

    assert ids(list(stream)) == ["q3", "q1"]
    assert stream.incomplete == {}


def test_both_ends_of_the_time_are_included(log: Log) -> None:
    for hour in range(5):
        log.query(f"q{hour}", at=NOON + timedelta(hours=hour))

    read = read_queries(log.folder, since=NOON + timedelta(hours=1), until=NOON + timedelta(hours=3))

    assert ids(read.queries) == ["q1", "q2", "q3"]


def test_a_query_that_ends_after_the_time_is_read_whole_and_one_that_began_before_is_passed_over(
    log: Log,
) -> None:
    for query_id, begin in (("early", -1), ("late", 59)):
        log.write(start(query_id, active_backends=[]), at=NOON + timedelta(seconds=begin))
        log.write(merged(query_id, final_results=[]), at=NOON + timedelta(seconds=begin + 2))

    read = read_queries(log.folder, since=NOON, until=NOON + timedelta(seconds=60))

    assert ids(read.queries) == ["late"]
    assert read.incomplete == {}


def test_only_the_memory_that_is_asked_for_is_read(log: Log) -> None:
    log.query("q1", memory="m1")
    log.query("q2", memory="m2")
    log.query("q3")

    assert ids(read_queries(log.folder, memory="m2").queries) == ["q2"]
    assert read_queries(log.folder, memory="m2").incomplete == {}
    assert len(read_queries(log.folder).queries) == 3


def test_a_time_without_a_zone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without a time zone"):
        read_queries(tmp_path, since=NOON.replace(tzinfo=None))


def test_the_ends_of_the_calendar_are_times_as_well(log: Log) -> None:
    log.query()
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

    assert ids(read_queries(log.folder, since=first, until=last).queries) == ["q1"]


def test_one_line_of_a_wrong_clock_does_not_hide_what_is_before_it(log: Log) -> None:
    log.query("q1")
    log.write(QueryDelivered(result_count=0, paths=[]), at=NOON - timedelta(days=20))
    log.query("q2")

    assert ids(read_queries(log.folder, since=NOON).queries) == ["q1", "q2"]


def test_lines_long_before_the_time_are_not_read(log: Log) -> None:
    log.raw(b"not an event\n")
    for _ in range(120):
        log.write(QueryDelivered(result_count=0, paths=[]), at=NOON - timedelta(days=2))
    log.query()

    assert read_queries(log.folder, since=NOON).incomplete == {}
    assert read_queries(log.folder).incomplete == {BAD_LINES: 1}


def test_every_line_of_a_query_is_needed(log: Log) -> None:
    log.write(start("no-merge"))
    log.write(start("no-answer"))
    log.write(found(query_id="no-answer"), backend="graph")
    log.write(merged("no-answer"))
    log.write(merged("no-start"))

    read = read_queries(log.folder)

    assert read.queries == ()
    assert read.incomplete == {LINES_MISSING: 3}


def test_queries_without_an_id_or_of_newer_versions_are_counted(log: Log) -> None:
    log.query("")
    log.query("new", trace_id="t2")
    log.write(start("newer", active_backends=[]), schema_version=SCHEMA_VERSION + 1)
    log.write(merged("newer"), schema_version=SCHEMA_VERSION + 1)

    read = read_queries(log.folder)

    assert ids(read.queries) == ["new"]
    assert read.incomplete == {NOT_UNDERSTOOD: 1, NEWER_VERSION: 1}


def test_lines_that_are_no_events_are_counted(log: Log) -> None:
    log.query()
    for line in (b"{\n", b"[]\n", b"\xff\xfe\n", b'{"ts": 5}\n', b"[" * 5000 + b"\n"):
        log.raw(line)

    read = read_queries(log.folder)

    assert ids(read.queries) == ["q1"]
    assert read.incomplete == {BAD_LINES: 5}


def test_a_field_of_a_later_version_is_no_obstacle(log: Log) -> None:
    log.query()
    file = log.folder / "ops-2026-03.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"detail":{', b'"detail":{"mood":[1],'))

    assert log.only().query_id == "q1"


LIES: Sequence[tuple[bytes, bytes]] = [
    (b'"query":"where is the key"', b'"query":7'),
    (b'"activeBackends":["builtin","graph"]', b'"activeBackends":["graph","graph"]'),
    (b'"activeBackends":["builtin","graph"]', b'"activeBackends":"graph"'),
    (b'"path":"a.md"', b'"path":null'),
    (b'"startLine":3', b'"startLine":-3'),
    (b'"startLine":3', b'"startLine":"3"'),
    (b'"rank":1', b'"rank":2'),
    (b'"isAbsolute":true', b'"isAbsolute":"yes"'),
    (b'"fusion":"weighted"', b'"fusion":{}'),
    (b'"maxResults":5,"depth":24', b'"maxResults":5,"depth":0'),
    (b'"maxResults":5,"depth":24', b'"maxResults":0,"depth":24'),
    (b'"minScore":0.25', b'"minScore":1.25'),
    (b'"rrfK":60', b'"rrfK":-1'),
    (b'"graph":1.0', b'"graph":-1.0'),
    (b'"graph":1.0', b'"graph":null'),
    (b'"graph":1.0', b'"other":1.0'),
    (b'"near":[]', b'"near":[{"one":0,"other":2}]'),
    (b'"near":[]', b'"near":[[0,1]]'),
    (b'"near":[]', b'"near":[],"experiment":{"id":"x","weightsA":{},"weightsB":{},"seed":1,"teams":[]}'),
    (b'"dropped":[]', b'"dropped":7'),
    (b'"intentKind":"entity"', b'"intentKind":"mood"'),
    (b'"score":0.7', b'"score":[0.7]'),
]


@pytest.mark.parametrize(("truth", "lie"), LIES)
def test_a_query_with_a_line_that_lies_is_counted_and_not_believed(
    log: Log, truth: bytes, lie: bytes
) -> None:
    log.query()
    file = log.folder / "ops-2026-03.jsonl"
    written = file.read_bytes()
    assert truth in written
    file.write_bytes(written.replace(truth, lie))
    log.query("honest", trace_id="t2")

    read = read_queries(log.folder)

    assert ids(read.queries) == ["honest"]
    assert sum(read.incomplete.values()) == 1


@pytest.mark.parametrize("field_name", [b'"sessionKey":[1],', b'"backend":{},', b'"backend":["graph"],'])
def test_an_envelope_that_lies_is_never_raised(log: Log, field_name: bytes) -> None:
    log.query()
    file = log.folder / "ops-2026-03.jsonl"
    lines = file.read_bytes().replace(b'"backend":"graph",', b"")
    file.write_bytes(lines.replace(b'"schemaVersion"', field_name + b'"schemaVersion"'))

    read = read_queries(log.folder)

    assert read.queries == ()
    assert read.incomplete in ({NOT_UNDERSTOOD: 1}, {LINES_MISSING: 1})


def oldest_first(stream: QueryStream) -> list[Any]:
    """Return queries and what came after them."""
    return list(stream.with_traffic())[::-1]


def test_what_came_after_a_search_is_read_with_the_queries(log: Log) -> None:
    later = NOON + timedelta(seconds=5)
    log.query()
    log.write(
        MemoryRead(path="a.md", from_line=3, lines=4, chars=90, query_trace_id="t1"),
        at=later,
        session_key="s",
    )
    log.write(MemoryRead(path="b.md", chars=9), at=later)
    log.write(AnswerGiven(query_trace_id="t1", chars=50, quoted=[TakenFrom("a.md", 3, 9, 160)]), at=later)

    stream = QueryStream(log.folder)
    query, first, second, answer = oldest_first(stream)

    assert query.query_id == "q1"
    assert (first.path, first.from_line, first.lines, first.session_key, first.query_trace_id) == (
        "a.md", 3, 4, "s", "t1",
    )  # fmt: skip
    assert (second.path, second.from_line, second.query_trace_id, second.at) == ("b.md", None, None, later)
    assert (answer.query_trace_id, answer.quoted) == ("t1", (TakenFrom("a.md", 3, 9, 160),))
    assert stream.incomplete == {}


def test_traffic_outside_the_time_is_left_out(log: Log) -> None:
    for minute in (0, 5, 20):
        log.write(MemoryRead(path=f"{minute}.md", chars=1), at=NOON + timedelta(minutes=minute))

    stream = QueryStream(log.folder, since=NOON + timedelta(minutes=1), until=NOON + timedelta(minutes=6))

    assert [read.path for read in oldest_first(stream)] == ["5.md"]


def test_a_read_of_another_memory_is_left_out_and_one_without_a_mark_is_not(log: Log) -> None:
    for mark in ("m1", "m2", None):
        log.write(MemoryRead(path=f"{mark}.md", chars=1, memory=mark))

    stream = QueryStream(log.folder, memory="m1")

    assert [read.path for read in oldest_first(stream)] == ["m1.md", "None.md"]


def test_traffic_that_lies_is_counted(log: Log) -> None:
    for action, detail in (
        ("memory.read", {"path": 7}),
        ("memory.read", {"path": "a.md", "lines": "many"}),
        ("answer.given", {"queryTraceId": "t", "quoted": [{"path": "a.md"}]}),
    ):
        line = {"id": "e", "ts": NOON.isoformat(), "action": action, "status": "success",
                "traceId": "t", "detail": detail}  # fmt: skip
        log.raw(orjson.dumps(line) + b"\n")

    stream = QueryStream(log.folder)

    assert oldest_first(stream) == []
    assert stream.incomplete == {NOT_UNDERSTOOD: 3}
