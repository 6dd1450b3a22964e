"""Times in documents of other programs are read in the forms that programs write."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from composable_memory.json_documents import moment_in
from composable_memory.transcripts import said_at

MORNING = datetime(2026, 3, 1, 10, tzinfo=UTC)
SECONDS = MORNING.timestamp()


@pytest.mark.parametrize(
    "given",
    [
        "2026-03-01T10:00:00Z",
        " 2026-03-01T11:00:00+01:00 ",
        "2026-03-01T10:00:00",
        MORNING,
        MORNING.replace(tzinfo=None),
        SECONDS,
        int(SECONDS),
        SECONDS * 1000,
    ],
)
def test_a_time_is_read_from_text_or_from_a_count(given: object) -> None:
    assert moment_in(given) == MORNING


def test_a_time_keeps_the_zone_it_names() -> None:
    moment = moment_in("2026-03-01T00:30:00+01:00")

    assert moment is not None
    assert (moment.date().day, moment.utcoffset()) == (1, timedelta(hours=1))


@pytest.mark.parametrize(
    "given",
    [
        *(None, True, "", "yesterday", "10", [], {}, float("nan"), float("inf"), 1e300),
        *("0001-01-01T00:00:00+14:00", datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-12)))),
    ],
)
def test_what_gives_no_time_is_none(given: object) -> None:
    assert moment_in(given) is None


@pytest.mark.parametrize("count", [SECONDS, SECONDS * 1000])
def test_a_message_is_dated_by_seconds_as_by_milliseconds(count: float) -> None:
    assert said_at({"role": "user", "content": "Hello", "timestamp": count}) == MORNING
