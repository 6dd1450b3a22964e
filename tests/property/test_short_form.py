"""The short form of a query says what its events say by themselves, except for some previews."""

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import ActiveWeights, MergePolicy
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.types import MemorySearchResult, QueryRequest
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import MemorySink, OpsEvent, OpsLog, OpsLogReader
from composable_memory_ops_logs.line_format import event_to_wire, to_line
from composable_memory_ops_logs.short_form import events_from_line, short_line
from tests.property.test_replay_properties import TRAFFIC, Told, Traffic, _live


def heard(traffic: Traffic) -> tuple[list[OpsEvent], list[OpsEvent]]:
    """Return the events of some queries as listeners hear them, and as the log tells them."""

    async def ask(folder: Path) -> list[OpsEvent]:
        sink = MemorySink()
        async with OpsLog(folder, redact=False) as ops_log:
            ops_log.subscribe(sink)
            manager = ComposableMemoryManager(
                traffic.entries,
                ops_log=ops_log,
                policy=traffic.policy,
                weights=_live(traffic.weights),
                intent_parser=parse_query_intent,
            )
            for request in traffic.requests:
                await manager.query(request)
        return sink.events

    with tempfile.TemporaryDirectory() as folder:
        emitted = asyncio.run(ask(Path(folder)))
        return emitted, OpsLogReader(Path(folder)).tail(10_000)


def comparable(event: OpsEvent) -> dict[str, Any]:
    """Return the line of an event without the previews of candidates, which need not be whole."""
    (back,) = events_from_line(to_line(event_to_wire(event)))
    wire: Any = event_to_wire(back)
    for row in wire["detail"].get("results", ()):
        del row["snippetPreview"]
    return dict(wire)


@given(traffic=TRAFFIC)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_a_log_tells_every_event_as_it_was_emitted(traffic: Traffic) -> None:
    emitted, read = heard(traffic)

    assert [*map(comparable, read)] == [*map(comparable, emitted)]


@given(traffic=TRAFFIC)
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_finished_query_is_one_line_after_its_start(traffic: Traffic) -> None:
    emitted, _ = heard(traffic)
    merged = [one for one in emitted if one.action == "query.merged"]
    answers = [one for one in emitted if one.action == "query.backend_result"]

    for one in merged:
        of_it = [answer for answer in answers if _query(answer) == _query(one)]
        line = to_line(short_line(one, of_it, lambda detail: detail))
        told = events_from_line(line)

        assert [event.id for event in told] == [*(answer.id for answer in of_it), one.id]
        assert line.count(b'"snippetPreview"') == 0


def _query(event: OpsEvent) -> object:
    detail = event_to_wire(event)["detail"]
    return detail["queryId"] if isinstance(detail, Mapping) else None


def told_by(*backends: str, results: list[MemorySearchResult]) -> Traffic:
    """Return a question that each backend answers with these results."""
    return Traffic(
        entries=tuple(ComposableBackendEntry(id=one, manager=Told(results)) for one in backends),
        policy=MergePolicy(),
        weights=ActiveWeights(table=WeightTable.fixed({})),
        requests=(QueryRequest(query="which port"),),
    )


def test_pieces_of_one_line_are_told_apart() -> None:
    pieces = [
        MemorySearchResult(
            path="a.md",
            start_line=1,
            end_line=1,
            start_char=at * 700,
            score=0.9 - at / 10,
            snippet=f"piece {at}",
        )
        for at in range(3)
    ]

    emitted, read = heard(told_by("notes", "qmd", results=pieces))

    assert [*map(comparable, read)] == [*map(comparable, emitted)]


def test_a_place_that_is_found_again_without_a_text_keeps_its_text() -> None:
    found = [
        MemorySearchResult(path="graph/1", start_line=0, end_line=0, score=score, snippet=text)
        for score, text in ((0.5, "port"), (0.1, ""))
    ]

    emitted, read = heard(told_by("graph", results=found))

    assert [*map(comparable, read)] == [*map(comparable, emitted)]
