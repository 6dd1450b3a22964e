"""Laws of reading times that hold for any text and any present."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from composable_memory.query.intent import parse_query_intent
from composable_memory.time.expressions import time_mentions
from composable_memory.time.windows import window_of

PIECES = st.sampled_from(
    """as of | since | until | before | after | between | from | and | to | in | on |
    the end of | last | next | this | March | may | May | Dec | 2023 | 1999 | 2026-03-01 |
    2024-02-30 | 2026-03 | Q1 | Q4 2025 | 3 | 31 | 3rd | 9999 | days | weeks | year | month |
    ago | yesterday | today | monday | 2024年 | 3月 | 31日 | 以前 | 去年 | 3월 | 이후 | hace | días |
    marzo | de | , | . | - | about | I""".replace("\n", " ").split(" | ")
)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=12).map(lambda pieces: " ".join(one.strip() for one in pieces)),
    st.lists(PIECES, max_size=8).map(lambda pieces: "".join(one.strip() for one in pieces)),
    st.text(max_size=60),
)
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
PRESENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=ZONES)  # noqa: DTZ001


@given(text=TEXTS, now=PRESENTS)
def test_a_window_ends_no_sooner_than_it_begins_and_both_ends_are_in_utc(text: str, now: datetime) -> None:
    window = window_of(parse_query_intent(text).time_hints, now)

    if window is not None:
        assert window.start <= window.end
        assert window.start.tzinfo is UTC
        assert window.end.tzinfo is UTC


@given(text=TEXTS)
@example("last year March")
@example("2026年前天")
def test_every_phrase_stands_in_the_text_where_it_is_said_to(text: str) -> None:
    mentions = time_mentions(text)

    assert [text[one.start : one.end].lower() for one in mentions] == [one.hint.phrase for one in mentions]
    assert all(one.end <= other.start for one, other in pairwise(mentions))


@given(text=TEXTS, now=PRESENTS)
def test_as_of_never_asks_for_what_lies_ahead(text: str, now: datetime) -> None:
    hints = [one.hint for one in time_mentions(text) if one.hint.relation == "as-of"]

    window = window_of(hints, now)

    assert window is None or window.end <= now
