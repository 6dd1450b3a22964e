"""Facts as lines for the terminal."""

from datetime import UTC, datetime

import pytest
from composable_memory_adapters.graphiti.cli.lines import fact_lines

from composable_memory.facts import Fact
from composable_memory.types import Origin

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOTE = (Origin(path="memory/ana.md", start_line=3, end_line=3),)


def lines(text: str, relation: str, target: str, origins: tuple[Origin, ...] = ()) -> list[str]:
    fact = Fact(
        id="1", group_id="main", text=text, relation=relation, source="Ana", target=target, origins=origins
    )
    return [line for line, _ in fact_lines(fact, "graphiti/main/1", NOW)]


def test_what_is_related_is_told_where_the_text_says_it_otherwise() -> None:
    told = lines("I moved to Porto.", "LIVES_IN", "Porto", NOTE)

    assert told == ["I moved to Porto.", "  Ana lives in Porto  from memory/ana.md#L3", "  graphiti/main/1"]


@pytest.mark.parametrize(
    ("origins", "expected"), [(NOTE, ["  from memory/ana.md#L3"]), ((), [])], ids=["origin", "none"]
)
def test_what_the_text_says_is_not_said_twice(origins: tuple[Origin, ...], expected: list[str]) -> None:
    told = lines("Ana lives in Porto.", "LIVES_IN", "Porto", origins)

    assert told == ["Ana lives in Porto.", *expected, "  graphiti/main/1"]


def test_entities_without_a_name_are_not_told_by_their_ids() -> None:
    told = lines("Ana moved.", "RELATES_TO", "9750dcc2-516e-5ea0-8a26-54fa6ff6986b", NOTE)

    assert told[1] == "  from memory/ana.md#L3"


@pytest.mark.parametrize(("target", "expected"), [("Boats", "  Ana, Boats"), ("Ana", "  Ana")])
def test_of_a_statement_only_what_it_speaks_of_is_told(target: str, expected: str) -> None:
    assert lines("Ana paints boats.", "STATES", target)[1] == expected
