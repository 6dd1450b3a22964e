"""The stretch of time that a question asks for."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from composable_memory.query.intent import parse_query_intent
from composable_memory.time.windows import FAR_PAST, named_window, window_of
from composable_memory.types import TimeHint, TimeWindow

NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)  # a Wednesday


def window(query: str, now: datetime = NOW) -> TimeWindow | None:
    return window_of(parse_query_intent(query).time_hints, now)


def days(query: str, now: datetime = NOW) -> tuple[str, str]:
    """Return the first and the last day of the window, as dates."""
    found = window(query, now)
    assert found is not None
    return found.start.date().isoformat(), found.end.date().isoformat()


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        ("yesterday", "2026-06-09", "2026-06-09"),
        ("last week", "2026-06-01", "2026-06-07"),
        ("last month", "2026-05-01", "2026-05-31"),
        ("this year", "2026-01-01", "2026-12-31"),
        ("in the last 5 days", "2026-06-05", "2026-06-10"),
        ("last 2 months", "2026-04-10", "2026-06-10"),
        ("5 days ago", "2026-06-05", "2026-06-05"),
        ("2 months ago", "2026-04-01", "2026-04-30"),
        ("next 3 weeks", "2026-06-10", "2026-07-01"),
        ("in March", "2026-03-01", "2026-03-31"),
        ("in June", "2026-06-01", "2026-06-30"),
        ("in December", "2025-12-01", "2025-12-31"),
        ("on December 24th", "2025-12-24", "2025-12-24"),
        ("on February 29th", "2024-02-29", "2024-02-29"),
        ("in 2023", "2023-01-01", "2023-12-31"),
        ("Q1 2026", "2026-01-01", "2026-03-31"),
        ("in Q3", "2025-07-01", "2025-09-30"),
        ("on Monday", "2026-06-08", "2026-06-08"),
        ("on Thursday", "2026-06-04", "2026-06-04"),
        ("since March", "2026-03-01", "2026-06-10"),
        ("after March", "2026-04-01", "2026-06-10"),
        ("between March and May", "2026-03-01", "2026-05-31"),
        ("between November and February", "2025-11-01", "2026-02-28"),
        ("in March last year", "2025-03-01", "2025-03-31"),
        ("since March and until May", "2026-03-01", "2026-05-31"),
        ("in 2025, last week, whatever", "2025-01-01", "2026-06-07"),
    ],
)
def test_a_time_is_all_of_what_is_named(query: str, first: str, last: str) -> None:
    assert days(query) == (first, last)


@pytest.mark.parametrize(
    ("query", "moment"),
    [
        ("as of March", datetime(2026, 3, 31, 23, 59, 59, 999999, UTC)),
        ("as of 2026-03-01", datetime(2026, 3, 1, 23, 59, 59, 999999, UTC)),
        ("as of this year", NOW),
        ("as of today", NOW),
        ("as of March, what had happened last week", datetime(2026, 3, 31, 23, 59, 59, 999999, UTC)),
    ],
)
def test_as_of_asks_for_one_moment(query: str, moment: datetime) -> None:
    assert window(query) == TimeWindow(start=moment, end=moment)


def test_before_begins_in_the_far_past_and_ends_just_before() -> None:
    assert window("before 2026-03-01") == TimeWindow(
        start=FAR_PAST, end=datetime(2026, 2, 28, 23, 59, 59, 999999, UTC)
    )


def test_until_includes_what_is_named() -> None:
    found = window("until March 2026")

    assert found is not None
    assert found.end == datetime(2026, 3, 31, 23, 59, 59, 999999, UTC)


def test_days_are_those_of_the_zone_that_the_present_is_given_in() -> None:
    tokyo = timezone(timedelta(hours=9))

    found = window("yesterday", datetime(2026, 6, 10, 3, tzinfo=tokyo))

    assert found == TimeWindow(
        start=datetime(2026, 6, 8, 15, tzinfo=UTC), end=datetime(2026, 6, 9, 14, 59, 59, 999999, UTC)
    )


def test_a_question_without_a_time_has_no_window() -> None:
    assert window("which port does the dock controller use?") is None


def test_a_hint_that_names_nothing_has_no_window() -> None:
    assert window_of([TimeHint(phrase="then", type="absolute", date="some day")], NOW) is None


def test_a_present_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        window_of([], datetime(2026, 6, 10))  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize(
    "query", ["last 9999 years", "next 9999 years", "last 9999 months", "9999 weeks ago"]
)
def test_a_count_that_leads_out_of_the_calendar_stops_at_its_edge(query: str) -> None:
    found = window(query)

    assert found is not None
    assert found.start <= found.end


def test_a_weekday_is_that_of_the_week_that_is_named() -> None:
    wednesday = datetime(2026, 5, 20, 9, tzinfo=UTC)
    for query in ("上周一", "letzte Woche am Montag", "last week on Monday"):
        found = window(query, wednesday)
        assert found is not None
        assert found.start.date().isoformat() == found.end.date().isoformat() == "2026-05-11", query


def test_last_monday_is_never_today() -> None:
    monday = datetime(2026, 6, 8, 9, tzinfo=UTC)
    last = ("last Monday", "letzten Montag", "am vergangenen Montag", "el lunes pasado", "el pasado lunes",
            "lundi dernier")  # fmt: skip
    for query in last:
        assert days(query, monday) == ("2026-06-01", "2026-06-01"), query
        assert days(query, monday + timedelta(days=1)) == ("2026-06-08", "2026-06-08"), query
        assert named_window(query, monday) == window(query, monday), query
    for query in ("on Monday", "am Montag", "el lunes"):
        assert days(query, monday) == ("2026-06-08", "2026-06-08"), query
    assert days("since last Monday", monday) == ("2026-06-01", "2026-06-08")
    assert days("the last Tuesday in March 2026", monday) == ("2026-03-31", "2026-03-31")


def test_without_a_year_a_question_of_plans_asks_for_the_next_and_any_other_for_the_last() -> None:
    wednesday = datetime(2026, 3, 4, 9, tzinfo=UTC)
    cases = {
        ("2025-05-01", "2025-05-31"): "where did we meet in May?|Was war im Mai?|¿qué hicimos en mayo?"
        "|我们五月做了什么|what was planned for May?|last May|el mayo pasado|letztes Jahr im Mai",
        ("2026-05-01", "2026-05-31"): "what will we do in May?|what is planned for May?|next May"
        "|Was ist für Mai geplant?|Was machen wir im Mai?|¿qué haremos en mayo?|¿qué planes hay para mayo?"
        "|我们五月要做什么|this year in May|今年五月",
        ("2026-03-01", "2026-03-31"): "in March|what will we do in March?",
        ("2025-03-01", "2025-03-31"): "last March|im letzten März",
        ("2027-03-01", "2027-03-31"): "next March|nächsten März",
        ("2026-03-01", "2026-05-31"): "in spring|what is planned for spring?",
        ("2025-03-01", "2025-05-31"): "last spring|la primavera pasada|去年春天",
        ("2026-09-01", "2026-11-30"): "next autumn|im nächsten Herbst|el próximo otoño|计划秋天去哪里",
        ("2026-02-27", "2026-02-27"): "on Friday|am Freitag|el viernes|周五",
        ("2026-03-06", "2026-03-06"): "next Friday|what is planned for Friday?|el viernes que viene"
        "|am kommenden Freitag",
        ("2026-03-13", "2026-03-13"): "下周五|am Freitag nächster Woche",
        ("2026-03-09", "2026-03-15"): "next week|nächste Woche|la próxima semana|下周|la semaine prochaine",
    }
    for (first, last), queries in cases.items():
        for query in queries.split("|"):
            assert days(query, wednesday) == (first, last), query
