"""Facts as lines for the terminal."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from composable_memory.facts import Fact
from composable_memory.types import Origin
from composable_memory_adapters.graphiti.cli.fact_text import print_fact, print_on_timeline

NOW = datetime(2026, 6, 1, tzinfo=UTC)
NOTE = (Origin(path="memory/ana.md", start_line=3, end_line=3),)


Lines = Callable[..., list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Lines:
    """Return what is printed of a fact about Ana."""

    def printed(text: str, relation: str, target: str, origins: tuple[Origin, ...] = ()) -> list[str]:
        fact = Fact(
            id="1",
            group_id="main",
            text=text,
            relation=relation,
            source="Ana",
            target=target,
            origins=origins,
        )
        print_fact(fact, "graphiti/main/1", NOW)
        return capsys.readouterr().out.splitlines()

    return printed


def test_what_is_related_is_shown_where_the_text_says_it_otherwise(lines: Lines) -> None:
    shown = lines("I moved to Porto.", "LIVES_IN", "Porto", NOTE)

    assert shown == ["I moved to Porto.", "  Ana lives in Porto  from memory/ana.md#L3", "  graphiti/main/1"]


def test_what_the_text_says_is_not_said_twice(lines: Lines) -> None:
    said = "Ana lives in Porto."

    assert lines(said, "LIVES_IN", "Porto") == [said, "  graphiti/main/1"]
    assert lines(said, "LIVES_IN", "Porto", NOTE) == [said, "  from memory/ana.md#L3", "  graphiti/main/1"]


def test_entities_without_a_name_are_not_shown_by_their_ids(lines: Lines) -> None:
    shown = lines("Ana moved.", "RELATES_TO", "9750dcc2-516e-5ea0-8a26-54fa6ff6986b", NOTE)

    assert shown[1] == "  from memory/ana.md#L3"


def test_of_a_statement_only_what_it_speaks_of_is_shown(lines: Lines) -> None:
    shown = [lines("Ana paints boats.", "STATES", target)[1] for target in ("Boats", "Ana")]

    assert shown == ["  Ana, Boats", "  Ana"]


def test_a_timeline_shows_no_period_for_what_ended_as_it_began(capsys: pytest.CaptureFixture[str]) -> None:
    end = datetime(2026, 3, 1, tzinfo=UTC)
    said = "Ana no longer lives in Porto."
    ended = Fact(
        id="1", group_id="main", text=said, relation="LIVES_IN", source="Ana", target="Porto",
        valid_at=end, invalid_at=end,
    )  # fmt: skip
    print_on_timeline(ended, "graphiti/main/1", NOW)

    assert capsys.readouterr().out.splitlines()[0].split(maxsplit=2) == ["ended", "2026-03-01", said]
