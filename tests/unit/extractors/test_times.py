"""A sentence says when it holds: by dates, by months and years, by words that count from when it was said."""

from datetime import UTC, datetime

from composable_memory_adapters.extractors.sentence_times import Validity, validity_of

SAID = datetime(2026, 5, 13, 15, 30, tzinfo=UTC)  # a Wednesday


def day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_moment_is_understood() -> None:
    cases: list[tuple[str, str]] = [
        ("We met on 2026-03-01.", "2026-03-01"),
        ("It rained on March 3, 2026 here.", "2026-03-03"),
        ("It rained on 3rd of March 2026 here.", "2026-03-03"),
        ("Am 3. März ist nichts, on 3 Mar. 2026 it was.", "2026-03-03"),
        ("In March 2026 it rained.", "2026-03-01"),
        ("In 2024 we moved.", "2024-01-01"),
        ("We met on March 3.", "2026-03-03"),
        ("We met on December 3.", "2025-12-03"),
        ("We met yesterday.", "2026-05-12"),
        ("Last week it rained.", "2026-05-06"),
        ("Last Friday it rained.", "2026-05-08"),
        ("Last Wednesday it rained.", "2026-05-06"),
        ("Two weeks ago it rained.", "2026-04-29"),
        ("A few days ago it rained.", "2026-05-10"),
        ("昨天我们去了上海。", "2026-05-12"),
        ("2025年3月2日我们结婚了。", "2025-03-02"),
    ]
    for text, date in cases:
        assert validity_of(text, SAID) == Validity(at=day(date))


def test_a_span_has_two_ends() -> None:
    span = Validity(start=day("2026-03-01"), end=day("2026-04-01"))

    assert validity_of("He is away from 2026-03-01 to 2026-04-01.", SAID) == span
    assert validity_of("Since March 1, 2026 and until April 1, 2026 he is away.", SAID) == span


def test_what_is_no_time_is_none() -> None:
    cases: list[str] = [
        "Room 2026 is free.",
        "You may 3 times try; 3 may be enough.",
        "On 2026-13-45 nothing happens.",
        "Call 2024-55 or 555-2024.",
        "The last item is here.",
    ]
    for text in cases:
        assert validity_of(text, SAID) == Validity()


def test_without_a_day_to_count_from_only_dates_are_understood() -> None:
    assert validity_of("Yesterday and last week and on March 3 it rained.", None) == Validity()
    assert validity_of("On 2026-03-01 it rained.", None) == Validity(at=day("2026-03-01"))


def test_a_time_before_the_calendar_is_none() -> None:
    assert validity_of("999 years ago it rained.", datetime(5, 1, 1, tzinfo=UTC)) == Validity()
