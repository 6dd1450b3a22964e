"""A sentence says when it holds: by dates, by months and years, by words that count from when it was said."""

from datetime import UTC, datetime

from composable_memory.time.windows import FAR_FUTURE
from composable_memory_adapters.extractors.sentence_times import Validity, without_times

SAID = datetime(2026, 5, 13, 15, 30, tzinfo=UTC)  # a Wednesday


def day(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None


def validity_of(text: str, said: datetime | None = SAID) -> Validity:
    return without_times(text, said)[1]


def test_a_moment_is_understood() -> None:
    cases: list[tuple[str, str, str]] = [
        ("We met on 2026-03-01.", "2026-03-01", "2026-03-02"),
        ("It rained on March 3, 2026 here.", "2026-03-03", "2026-03-04"),
        ("It rained on 3rd of March 2026 here.", "2026-03-03", "2026-03-04"),
        ("Am 3. März 2026 war nichts.", "2026-03-03", "2026-03-04"),
        ("El 3 de marzo de 2026 llovió.", "2026-03-03", "2026-03-04"),
        ("In March 2026 it rained.", "2026-03-01", "2026-04-01"),
        ("In 2024 we moved.", "2024-01-01", "2025-01-01"),
        ("We met on March 3.", "2026-03-03", "2026-03-04"),
        ("We met on December 3.", "2025-12-03", "2025-12-04"),
        ("We met yesterday.", "2026-05-12", "2026-05-13"),
        ("Last week it rained.", "2026-05-06", "2026-05-07"),
        ("Last Friday it rained.", "2026-05-08", "2026-05-09"),
        ("Last Wednesday it rained.", "2026-05-06", "2026-05-07"),
        ("Two weeks ago it rained.", "2026-04-29", "2026-04-30"),
        ("Vor zwei Wochen hat es geregnet.", "2026-04-29", "2026-04-30"),
        ("Llovió hace dos semanas.", "2026-04-29", "2026-04-30"),
        ("昨天我们去了上海。", "2026-05-12", "2026-05-13"),
        ("2025年3月2日我们结婚了。", "2025-03-02", "2025-03-03"),
        ("三天前下了雨。", "2026-05-10", "2026-05-11"),
    ]
    for text, at, until in cases:
        assert validity_of(text) == Validity(at=day(at), until=day(until)), text


def test_without_a_year_the_past_is_the_last_one_and_the_future_the_next() -> None:
    said = datetime(2026, 3, 4, 12, tzinfo=UTC)  # a Wednesday
    cases: list[tuple[str, str, str]] = [
        ("2025-05-01", "2025-06-01", ("We met in May.|Trafen wir uns im Mai.|Wir haben uns im Mai getroffen."
         "|Nos conocimos en mayo.|我们五月见过面。|We moved last May.|El pasado mayo me mudé.")),
        ("2026-05-01", "2026-06-01", ("We meet in May.|Wir treffen uns im Mai.|Nos vemos en mayo."
         "|我们五月见面。|We are off next May.|Im nächsten Mai ist frei.")),
        ("2026-02-27", "2026-02-28", ("We met on Friday.|Wir haben uns am Freitag getroffen."
         "|Nos vimos el viernes.|我们周五见了面。|我们上周五见面。")),
        ("2026-03-06", "2026-03-07", "Next Friday it is closed.|Am nächsten Freitag ist zu."),
        ("2026-03-13", "2026-03-14", "我们下周五见面。"),
        ("2025-09-01", "2025-12-01", ("We met in autumn.|Wir trafen uns im Herbst.|Nos conocimos en otoño."
         "|我们秋天见过面。|Last autumn it rained.|去年秋天下雨。")),
        ("2025-12-01", "2026-03-01", "We met in the winter of 2025."),
    ]  # fmt: skip
    for at, until, texts in cases:
        for text in texts.split("|"):
            assert validity_of(text, said) == Validity(at=day(at), until=day(until)), text
    for text in ("On Fridays we met.", "Los lunes llegó tarde.", "Wir treffen uns am Freitag."):
        assert validity_of(text, said) == Validity(), text
    assert validity_of("Tom lived in Leeds until May.", said).end == day("2025-06-01")
    assert validity_of("Tom lives in Leeds until May.", said).end == day("2026-06-01")


def test_a_span_has_two_ends_and_lasts_to_the_end_of_a_month_or_a_year() -> None:
    cases: list[tuple[str, str | None, str | None]] = [
        ("He is away from 2026-03-01 to 2026-04-01.", "2026-03-01", "2026-04-01"),
        ("Since March 1, 2026 and until April 1, 2026 he is away.", "2026-03-01", "2026-04-01"),
        ("She led it until June 2025.", None, "2025-07-01"),
        ("Sie leitete es bis März 2024.", None, "2024-04-01"),
        ("Vivió allí de 2015 a 2019.", "2015-01-01", "2020-01-01"),
        ("她从2015年到2019年住在南京。", "2015-01-01", "2020-01-01"),
        ("Desde marzo de 2023 trabaja allí.", "2023-03-01", None),
        ("From May to July 2025 he was there.", "2025-05-01", "2025-08-01"),
    ]
    for text, start, end in cases:
        assert validity_of(text) == Validity(start=day(start), end=day(end)), text


def test_what_ends_before_it_begins_has_no_end() -> None:
    assert validity_of("He was there from May 2025 until March 2024.") == Validity(start=day("2025-05-01"))


def test_what_is_no_time_is_none() -> None:
    cases: list[str] = [
        "Room 2026 is free.",
        "You may 3 times try; 3 may be enough.",
        "On 2026-13-45 nothing happens.",
        "Call 2024-55 or 555-2024.",
        "The last item is here.",
        "On Monday it is closed.",
    ]
    for text in cases:
        assert validity_of(text) == Validity(), text


def test_without_a_day_to_count_from_only_dates_are_understood() -> None:
    assert validity_of("Yesterday and last week and on March 3 it rained.", None) == Validity()
    assert validity_of("On 2026-03-01 it rained.", None).at == day("2026-03-01")


def test_a_time_before_the_calendar_is_none() -> None:
    assert validity_of("999 years ago it rained.", datetime(5, 1, 1, tzinfo=UTC)) == Validity()


def test_a_time_at_the_end_of_the_calendar_has_no_time_after_it() -> None:
    said = datetime(9999, 12, 31, tzinfo=UTC)

    assert validity_of("It rained on December 31, 9999.", said).at == said
    assert validity_of("It rains until December 9999.", said).end == FAR_FUTURE
    assert validity_of("It rained today, and next Monday.", said) == Validity()


def test_what_was_said_of_time_is_left_out() -> None:
    cases: list[tuple[str, str]] = [
        ("Jonas arbeitet seit März 2023 bei Bosch.", "Jonas arbeitet bei Bosch."),
        ("Since 2021 Lucia lives in Vigo.", "Lucia lives in Vigo."),
        ("王小明从2023年3月起在华为工作。", "王小明在华为工作。"),
    ]
    for text, rest in cases:
        assert " ".join(without_times(text, SAID)[0].split()) == rest
