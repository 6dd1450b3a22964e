"""What a query is about."""

import pytest

from composable_memory.query.intent import parse_query_intent
from composable_memory.types import TimeHint


@pytest.mark.parametrize(
    ("query", "entities", "topics", "times"),
    [
        (
            "what did Maria Lopez say about BetaSearch last month?",
            ("Maria Lopez", "BetaSearch"),
            ("betasearch",),
            ("last month",),
        ),
        ("List #outage notes for DataHub yesterday.", ("DataHub",), ("outage",), ("yesterday",)),
        (
            "give updates on topic billing and #alerts in the last 5 days.",
            (),
            ("billing", "alerts"),
            ("in the last 5 days",),
        ),
        (
            "Compare plans for `QueueWorker` and Auth Gateway on 2025-03-01.",
            ("QueueWorker", "Auth Gateway"),
            (),
            ("2025-03-01",),
        ),
        (
            "open src/app/main.py regarding retries, and caching today",
            ("src/app/main.py",),
            ("retries", "caching"),
            ("today",),
        ),
        ("Did Maria Lopez call?", ("Maria Lopez",), (), ()),
        ("what's Bob's plan", (), (), ()),
        ("notes re: pricing", (), ("pricing",), ()),
        ("retry_budget_ms and DSP-142", ("retry_budget_ms", "DSP-142"), (), ()),
        ("昨天讨论的「部署方案」", ("部署方案",), (), ("昨天",)),
        ("¿qué decidimos ayer?", (), (), ("ayer",)),
        ("", (), (), ()),
    ],
)
def test_entities_topics_and_times_are_read(
    query: str, entities: tuple[str, ...], topics: tuple[str, ...], times: tuple[str, ...]
) -> None:
    intent = parse_query_intent(query)

    assert intent.entities == entities
    assert intent.topics == topics
    assert tuple(hint.phrase for hint in intent.time_hints) == times


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("last month", TimeHint(phrase="last month", type="month", unit="month", offset=-1)),
        ("next 3 weeks", TimeHint(phrase="next 3 weeks", type="week", unit="week", offset=3)),
        ("this year", TimeHint(phrase="this year", type="year", unit="year", offset=0)),
        ("on 2025-03-01", TimeHint(phrase="2025-03-01", type="absolute", date="2025-03-01")),
        ("先週", TimeHint(phrase="先週", type="week", unit="week", offset=-1)),
    ],
)
def test_a_time_is_read_with_unit_and_offset(query: str, hint: TimeHint) -> None:
    assert parse_query_intent(query).time_hints == (hint,)


def test_a_date_that_does_not_exist_is_no_time() -> None:
    assert parse_query_intent("2026-13-45").time_hints == ()


def test_names_are_listed_once_whatever_their_case() -> None:
    assert parse_query_intent('DataHub, "datahub" and DataHub').entities == ("DataHub",)
