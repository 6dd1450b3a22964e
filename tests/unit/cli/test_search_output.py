"""How the results of a search are printed."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from composable_memory.cli.search import print_response
from composable_memory.types import MemorySearchResult, QueryResponse, SupportingFact

BEACON = SupportingFact(text="Alice works at Beacon", valid_from=datetime(2026, 3, 1, tzinfo=UTC))
NOTE = MemorySearchResult(
    path="memory/work.md",
    start_line=1,
    end_line=2,
    score=0.5,
    snippet="A new desk for Alice",
    source="memory",
    facts=(BEACON,),
)
FACT = replace(NOTE, path="graphiti/main/1", snippet=f"{BEACON.text} (since 2026-03-01)")


def test_a_fact_that_is_a_result_above_is_not_told_again(capsys: pytest.CaptureFixture[str]) -> None:
    earlier = replace(BEACON, valid_from=datetime(2020, 1, 1, tzinfo=UTC))
    for results, told in (
        ((NOTE,), 1),
        ((FACT, NOTE), 0),
        ((NOTE, FACT), 1),
        ((FACT, replace(NOTE, facts=(earlier,))), 1),
    ):
        print_response(QueryResponse(trace_id="t", results=results))

        shown = capsys.readouterr().out
        assert shown.count("fact: Alice works at Beacon") == told
        assert all(one.snippet in shown for one in results)
