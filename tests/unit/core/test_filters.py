"""Filters in a query, and what passes them."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from composable_memory.errors import InvalidArgument
from composable_memory.query.filters import (
    combine,
    filter_results,
    may_pass,
    parse_since,
    parse_until,
    path_matches,
    read_filters,
)
from composable_memory.time.windows import FAR_PAST
from composable_memory.types import MemorySearchResult, Origin, SearchFilters, SearchOptions

NOW = datetime(2026, 5, 10, 9, tzinfo=UTC)


def test_filters_are_taken_out_of_a_query() -> None:
    cases = {
        "path:projects/* tag:#work budget": ("budget", {"paths": ("projects/*",), "tags": ("#work",)}),
        'path:"my notes" budget': ("budget", {"paths": ("my notes",)}),
        'budget "exact  phrase" -draft': (
            'budget "exact phrase"',
            {"phrases": ("exact phrase",), "without": ("draft",)},
        ),
        "budget -draft -final": ("budget", {"without": ("draft", "final")}),
        "budget after:2026-04": ("budget", {"since": datetime(2026, 4, 1, tzinfo=UTC)}),
        "budget before:2026-04": (
            "budget",
            {"until": datetime(2026, 4, 1, tzinfo=UTC) - timedelta(microseconds=1)},
        ),
        "what is in tag:work?": ("what is in", {"tags": ("work",)}),
        "tag:work, path:Daily;": ("", {"tags": ("work",), "paths": ("Daily",)}),
        "what changed after:2026-04?": ("what changed", {"since": datetime(2026, 4, 1, tzinfo=UTC)}),
        'what is in path:"20?"?': ("what is in", {"paths": ("20?",)}),
        'who sang "Yesterday" in tag:music?': ('who sang "Yesterday" in', {"tags": ("music",)}),
    }
    for query, (left, named) in cases.items():
        assert read_filters(query, NOW) == (left, SearchFilters(**named)), query  # type: ignore[arg-type]


def test_ordinary_words_are_no_filters() -> None:
    for query in (
        'who sang "Yesterday"?',
        "methods -dash exact or approximate -dash for pressures .",
        "the well-known e-mail",
        "path: where",
        "after: lunch",
        "https://example.org/path:x",
        "5 -3",
        "ls -la.txt",
        "see xtag:work",
    ):
        assert read_filters(query, NOW) == (query, SearchFilters()), query


def test_times_are_read_in_the_zone_of_the_asker() -> None:
    now = NOW.astimezone(timezone(timedelta(hours=9)))
    since = {
        "2026": "2026-01-01",
        "2026-04": "2026-04-01",
        "2026-Q2": "2026-04-01",
        "2026-W21": "2026-05-18",
        "yesterday": "2026-05-09",
    }
    until = {"2026": "2026-12-31", "2026-04": "2026-04-30", "last week": "2026-05-03", "May": "2026-05-31"}
    for text, day in since.items():
        assert parse_since(text, now) == datetime.fromisoformat(f"{day}T00:00:00+09:00"), text
    for text, day in until.items():
        assert parse_until(text, now) == datetime.fromisoformat(f"{day}T23:59:59.999999+09:00"), text
    assert parse_since("7d", now) == parse_since("1W", now) == now - timedelta(days=7)
    assert parse_since("7\u017f", now) == now - timedelta(seconds=7)  # a long s, which is an s in any case
    assert parse_since("2026-04-14T10:00", now) == datetime.fromisoformat("2026-04-14T10:00+09:00")


def test_nothing_is_before_the_first_day_of_the_calendar() -> None:
    assert read_filters("x before:0001-01-01", NOW)[1].until == FAR_PAST


def test_what_is_no_filter_is_refused_by_name() -> None:
    for query, named in {"x after:lunch": "after:", "x before:2026-13": "before:"}.items():
        with pytest.raises(InvalidArgument) as caught:
            read_filters(query, NOW)
        assert caught.value.argument == named
    for wrong in (
        {"since": NOW, "until": NOW - timedelta(days=1)},
        {"since": datetime(2026, 4, 1)},  # noqa: DTZ001 - what is refused
        {"tags": "work"},
        {"tags": (" # ",)},
        {"sources": ("mail",)},
    ):
        with pytest.raises(InvalidArgument):
            SearchFilters(**wrong)
    with pytest.raises(InvalidArgument):
        SearchOptions(now=datetime(2026, 4, 1))  # noqa: DTZ001 - what is refused


def test_a_path_is_matched_as_in_a_shell() -> None:
    path = "work/alpha/plan.md"
    for pattern in ("work", "work/", "work/alpha", "alpha", "*.md", "plan.*", "work/*/plan.md", "**/plan.md",
                    "work/**", "work/al?ha/*", "./work"):  # fmt: skip
        assert path_matches(path, ["nowhere", pattern]), pattern
    for pattern in ("wor", "work/*.md", "plan", "work/?/plan.md", "beta", "*.markdown", "plan.md.bak"):
        assert not path_matches(path, [pattern]), pattern


def test_filters_of_two_places_hold_together() -> None:
    early, late = NOW - timedelta(days=9), NOW
    one = SearchFilters(since=early, until=late, tags=("a",))
    other = SearchFilters(since=late, tags=("b",), paths=("c",))
    assert combine(one, other) == SearchFilters(since=late, until=late, tags=("a", "b"), paths=("c",))
    assert combine(one, SearchFilters()) is one


def passage(path: str, snippet: str = "", **more: object) -> MemorySearchResult:
    given = {"start_line": 1, "end_line": 2, "score": 0.5} | more
    return MemorySearchResult(path=path, snippet=snippet, **given)  # type: ignore[arg-type]


def test_results_are_ruled_out_as_far_as_they_tell() -> None:
    note = passage("memory/2026-04-14.md", "the Exact\nphrase, and a draft")
    plan = passage("work/plan.md", "…")
    talk = passage("sessions/a.jsonl", source="sessions")
    fact = passage(
        "graph/1", "Ada works here", start_line=0, end_line=0, origin=Origin(path="work/plan.md"),
        metadata={"valid_at": "2026-03-01T00:00:00Z"},
    )  # fmt: skip
    everything = [note, plan, talk, fact]
    april = datetime(2026, 4, 1, tzinfo=UTC)
    cases: list[tuple[SearchFilters, list[MemorySearchResult], tuple[str, ...]]] = [
        (SearchFilters(paths=("work",)), [plan, fact], ()),
        (SearchFilters(sources=("sessions",)), [talk], ()),
        (SearchFilters(types=("fact",)), [fact], ()),
        (SearchFilters(types=("note", "transcript")), [note, plan, talk], ()),
        (SearchFilters(types=(".MD",)), [note, plan], ()),
        (SearchFilters(since=april, types=("note",)), [note, plan], ("date",)),
        (SearchFilters(until=april, types=("fact",)), [fact], ()),
        (SearchFilters(since=april, types=("fact",)), [], ()),
        (SearchFilters(tags=("x",), paths=("*.jsonl",)), [talk], ("tag",)),
        (SearchFilters(phrases=("exact phrase",), sources=("memory",)), [note, plan], ("phrase",)),
        (SearchFilters(without=("draft",), types=("md",)), [plan], ("-word",)),
        (SearchFilters(without=("ada",), types=("fact",)), [], ()),
    ]
    for filters, kept, unknown in cases:
        assert filter_results(everything, filters) == (tuple(kept), unknown), filters


def test_a_day_passes_if_some_moment_of_it_does() -> None:
    noon = datetime(2026, 4, 14, 12, tzinfo=UTC)
    assert may_pass(date(2026, 4, 14), SearchFilters(since=noon)) is True
    assert may_pass(date(2026, 4, 13), SearchFilters(since=noon)) is False
    assert may_pass(date(2026, 4, 14), SearchFilters(until=noon)) is True
    assert may_pass(None, SearchFilters(until=noon)) is None
