"""The time of this machine over a year."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from composable_memory.time.local_time import LOCAL_TIME
from composable_memory.time.windows import named_window


@pytest.fixture(params=["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ZoneInfo]:
    with monkeypatch.context() as there:
        there.setenv("TZ", request.param)
        time.tzset()
        yield ZoneInfo(request.param)
    time.tzset()


def test_it_is_that_of_the_zone_in_summer_in_winter_and_where_they_meet(zone: ZoneInfo) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for moment in (begin + timedelta(minutes=30 * number) for number in range(48 * 365)):
        here, there = moment.astimezone(LOCAL_TIME), moment.astimezone(zone)
        assert here.replace(tzinfo=zone) == there
        assert here.fold == there.fold
        assert here.utcoffset() == there.utcoffset()
        assert here.astimezone(UTC) == moment


def test_a_span_back_from_now_is_as_long_where_the_clocks_change(zone: ZoneInfo) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for moment in (now + timedelta(hours=number) for number in range(24 * 365)):
        window = named_window("2h", moment.astimezone(LOCAL_TIME))
        assert window is not None
        assert window.start == moment - timedelta(hours=2)


def test_the_edges_of_the_calendar_have_a_time() -> None:
    for year in (1, 9999):
        assert datetime(year, 1, 1, tzinfo=LOCAL_TIME).utcoffset() is not None
