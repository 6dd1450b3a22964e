"""A line says everything the event says, in camelCase, and nothing that is not there."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
import pytest

from composable_memory_ops_logs import (
    BackendResult,
    Candidate,
    DedupStats,
    Degradation,
    Dropped,
    ErrorInfo,
    EventDetail,
    FinalResult,
    Intent,
    OpsEvent,
    QueryDelivered,
    QueryMerged,
    QueryStart,
    SyncFailed,
)
from composable_memory_ops_logs.line_format import event_to_wire, texts_in, to_line
from composable_memory_ops_logs.short_form import events_from_line

NOON = datetime(2026, 3, 1, 12, 0, 0, 250_999, tzinfo=UTC)


def event(detail: EventDetail, **envelope: object) -> OpsEvent:
    known = {"id": "e1", "ts": NOON, "action": detail.action, "status": "success", "trace_id": "t1"}
    return OpsEvent(**{**known, **envelope}, detail=detail)  # type: ignore[arg-type]


def written(one: OpsEvent) -> Any:
    return orjson.loads(to_line(event_to_wire(one)))


CANDIDATE = Candidate(
    path="MEMORY.md",
    start_line=3,
    end_line=9,
    score=0.1 + 0.2,
    rank=1,
    source="memory",
    snippet_preview="ports",
    content_hash="a1b2c3",
    exact=True,
)
MERGED = QueryMerged(
    fusion="weighted",
    calibration={"builtin": "min-max"},
    weights={"builtin": 1.0},
    dedup="overlap",
    min_score=0.0,
    max_results=6,
    depth=24,
    rrf_k=60,
    total_before_dedup=2,
    total_after_dedup=1,
    dedup_stats=DedupStats(duplicates_removed=1, by_backend={"builtin": 2}),
    final_results=[
        FinalResult(
            path="MEMORY.md",
            start_line=3,
            end_line=9,
            score=0.9,
            backend="builtin",
            raw_score=12.5,
            calibrated_score=0.9,
            weight=1.0,
            backend_rank=1,
            merged_with=["MEMORY.md:4:9"],
            support=0.0,
            snippet_preview="ports",
        )
    ],
    dropped=[Dropped(path="MEMORY.md", start_line=4, end_line=9, backend="builtin", reason="duplicate")],
    backend_attribution={"builtin": ["MEMORY.md"]},
    degraded=[Degradation(backend="qmd", reason="timeout")],
)


def test_a_whole_line() -> None:
    one = event(
        QueryDelivered(result_count=1, paths=("MEMORY.md",)),
        session_key="agent:main",
        run_id="r1",
        backend="builtin",
        duration_ms=3.5,
    )

    assert to_line(event_to_wire(one)) == (
        b'{"id":"e1","ts":"2026-03-01T12:00:00.250Z","action":"query.delivered","status":"success",'
        b'"traceId":"t1","sessionKey":"agent:main","runId":"r1","backend":"builtin","durationMs":3.5,'
        b'"schemaVersion":1,"detail":{"resultCount":1,"paths":["MEMORY.md"]}}\n'
    )


def test_what_is_absent_is_left_out() -> None:
    wire = event_to_wire(event(QueryDelivered(result_count=0, paths=())))

    assert list(wire) == ["id", "ts", "action", "status", "traceId", "schemaVersion", "detail"]


def test_candidates_are_written_in_full_precision() -> None:
    detail = BackendResult(weight=1.0, result_count=1, results=[CANDIDATE], depth=24)

    assert event_to_wire(event(detail))["detail"] == {
        "weight": 1.0,
        "resultCount": 1,
        "results": [
            {
                "path": "MEMORY.md",
                "startLine": 3,
                "endLine": 9,
                "score": 0.30000000000000004,
                "rank": 1,
                "source": "memory",
                "snippetPreview": "ports",
                "contentHash": "a1b2c3",
                "exact": True,
            }
        ],
        "depth": 24,
        "queryId": "",
        "calibration": "auto",
        "isAbsolute": True,
    }


def test_nested_values_are_written_in_camel_case() -> None:
    detail = QueryStart(
        query="ports?",
        max_results=6,
        min_score=0.0,
        intent=Intent(topics=["ports"], time_hints=[{"phrase": "today", "offset": 0}]),
        active_backends=["builtin"],
        skipped_backends={"qmd": "breaker-open"},
        weights_version=3,
        manager="main",
    )

    assert event_to_wire(event(detail))["detail"] == {
        "query": "ports?",
        "maxResults": 6,
        "minScore": 0.0,
        "intent": {"entities": (), "topics": ["ports"], "timeHints": [{"phrase": "today", "offset": 0}]},
        "activeBackends": ["builtin"],
        "skippedBackends": {"qmd": "breaker-open"},
        "weightsVersion": 3,
        "manager": "main",
        "queryId": "",
    }


def test_the_merged_list_is_written_whole() -> None:
    detail = written(event(MERGED))["detail"]

    assert detail["dedupStats"] == {"duplicatesRemoved": 1, "byBackend": {"builtin": 2}}
    assert detail["finalResults"][0]["mergedWith"] == ["MEMORY.md:4:9"]
    assert detail["dropped"][0]["reason"] == "duplicate"
    assert detail["degraded"] == [{"backend": "qmd", "reason": "timeout"}]


def test_an_error_inside_a_detail_is_an_object() -> None:
    detail = SyncFailed(reason="watch", error=ErrorInfo(type="OSError", message="disk full"))

    assert event_to_wire(event(detail))["detail"] == {
        "reason": "watch",
        "error": {"type": "OSError", "message": "disk full"},
    }


def test_times_are_written_in_utc() -> None:
    in_tokyo = NOON.astimezone(timezone(timedelta(hours=9)))

    wire = event_to_wire(event(QueryDelivered(result_count=0, paths=()), ts=in_tokyo))

    assert wire["ts"] == "2026-03-01T12:00:00.250Z"


def test_values_json_does_not_know_become_texts_and_lists() -> None:
    path, nested = PurePosixPath("a.md"), MappingProxyType({"b": {1}})
    odd = QueryDelivered(result_count=np.int64(2), paths=(path, nested))  # type: ignore[arg-type]

    assert written(event(odd))["detail"] == {"resultCount": 2, "paths": ["a.md", {"b": [1]}]}


def test_a_file_name_that_is_not_utf8_does_not_cost_the_event() -> None:
    one = event(QueryDelivered(result_count=1, paths=("caf\udce9.md",)))

    assert written(one)["detail"]["paths"] == ["caf?.md"]


def test_a_number_beyond_64_bits_is_written_as_text() -> None:
    one = event(QueryDelivered(result_count=2**70, paths=()), duration_ms=float("nan"))

    assert (written(one)["detail"]["resultCount"], written(one)["durationMs"]) == (str(2**70), None)


def test_every_text_is_looked_at_for_secrets() -> None:
    found = set(texts_in(event_to_wire(event(MERGED))["detail"]))

    assert {"MEMORY.md", "MEMORY.md:4:9", "reason=duplicate", "reason=timeout", "builtin=min-max"} <= found


def test_a_line_read_back_is_the_event_with_a_plain_detail() -> None:
    one = event(QueryDelivered(result_count=1, paths=["a.md"]), session_key="s", duration_ms=1.5)

    (back,) = events_from_line(to_line(event_to_wire(one)))

    assert back == OpsEvent(
        id="e1",
        ts=NOON.replace(microsecond=250_000),
        action="query.delivered",
        status="success",
        trace_id="t1",
        session_key="s",
        duration_ms=1.5,
        detail={"resultCount": 1, "paths": ["a.md"]},
    )


def test_an_event_read_back_can_be_written_again() -> None:
    line = to_line(event_to_wire(event(MERGED)))

    assert to_line(event_to_wire(*events_from_line(line))) == line


def test_a_line_of_a_newer_version_can_be_read() -> None:
    line = b"""{"id":"e","ts":"2027-01-01T00:00:00.000Z","action":"dream.told","status":"partial",
               "traceId":"t","mood":"calm","schemaVersion":2,"detail":{"new":true}}"""

    (back,) = events_from_line(line)

    assert (back.action, back.schema_version, back.detail) == ("dream.told", 2, {"new": True})


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b"[]",
        b"3",
        b"{}",
        b'{"id":"e","ts":"2027-01-01T00:00:00Z","action":"a","status":"odd","traceId":"t","detail":{}}',
        b'{"id":"e","ts":"someday","action":"a","status":"success","traceId":"t","detail":{}}',
        b'{"id":"e","ts":5,"action":"a","status":"success","traceId":"t","detail":{}}',
        b'{"id":"e","ts":"2027-01-01T00:00:00Z","action":"a","status":[],"traceId":"t","detail":{}}',
        b'{"id":"e","ts":"2027-01-01T00:00:00Z","action":"a","status":"success","traceId":7,"detail":{}}',
        b'{"id":"e","ts":"2027-01-01T00:00:00Z","action":"a","status":"success","traceId":"t","detail":[]}',
    ],
)
def test_what_is_not_an_event_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        events_from_line(line)
