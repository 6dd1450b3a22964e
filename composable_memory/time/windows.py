"""Turns the times in a question into one window of time (pure; the present is an argument)."""

import re
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from composable_memory.time.expressions import time_mentions
from composable_memory.types import TimeHint, TimeUnit, TimeWindow
from composable_memory_ops_logs.quick_dataclass import dataclass

FAR_PAST = datetime(1, 1, 1, tzinfo=UTC)
"""Start of the time before something."""

FAR_FUTURE = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
"""End of a span that leads beyond the calendar."""

_Days = tuple[date, date]
"""The first and last day of a named time."""

_INSTANT = timedelta(microseconds=1)
_ALMOST_A_WEEK = timedelta(days=6)
_ALMOST_A_YEAR = timedelta(days=360)
_NAMED = re.compile(
    r"(?P<year>\d{4}|-)(?:-(?:Q(?P<quarter>[1-4])|W(?P<week>\d\d)|(?P<month>\d\d)(?:-(?P<day>\d\d))?))?"
)
_WEEKDAY = re.compile(r"-W-([1-7])")
_SPAN = re.compile(r"(\d{1,6})\s*([smhdw])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


MOST_DAYS = 400
"""A longer window does not distinguish notes."""
SHORT_DAYS = 7
TIME_BONUS = 0.2
"""Added to a note's score for each level by which its day matches the days asked for.

Measured in docs/retrieval-measurements.md.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpan:
    """The days that a question asks about, both ends included; with `any_year`, in every year."""

    first: date
    last: date
    any_year: bool = False

    @property
    def days(self) -> int:
        """Return the number of days."""
        return (self.last - self.first).days + 1

    @property
    def is_year(self) -> bool:
        """Return whether it is exactly one calendar year."""
        return (self.first.month, self.first.day) == (1, 1) and self.last == date(self.first.year, 12, 31)

    def level(self, day: date) -> float:
        """Return how well a day matches: 2 for the day or the week, 1 for the month, 0 for no match."""
        if self.first <= day <= self.last:
            return 2.0 if self.days <= SHORT_DAYS else 1.0
        is_same_month = (day.year, day.month) == (self.first.year, self.first.month)
        if self.days == 1 and is_same_month:
            return 1.0
        if self.any_year and day.month == self.first.month:
            return 0.5
        return 0.0


def window_of(hints: Sequence[TimeHint], now: datetime) -> TimeWindow | None:
    """Return the window of time that `hints` ask for together, both ends in UTC; None without hints.

    A named time is meant as a whole, in the time zone of `now`: "last month" and "March 2024" are calendar
    months, "yesterday" is a day, weeks begin on Mondays. "The last 5 days" begin with the day five days ago
    and end now. "Since" ends now and "before" begins with `FAR_PAST`. "As of" asks for one moment: the end of
    the named time, or `now` if that is earlier; it overrides all other times. A month, quarter, season, day
    or weekday without a year is in the year that another hint names, else the latest that has begun, or the
    next if the question is about the future.

    Several hints ask for their intersection, or if that is empty, for everything from the first to the last.

    Raises:
        ValueError: `now` is naive.
    """
    if now.tzinfo is None or now.utcoffset() is None:
        raise ValueError("the present must be an aware time")
    hints = [hint for hint in hints if hint.relation == "as-of"] or hints
    dated = [hint for hint in hints if not _is_without_year(hint)]
    windows = [window for hint in dated if (window := _window(hint, now, now.date()))]
    for hint in hints:
        if _is_without_year(hint):
            latest = _latest_day(windows, now, weekday=_WEEKDAY.fullmatch(hint.date or "") is not None)
            windows += filter(None, [_window(hint, now, latest)])
    return _shared(windows)


def named_window(text: str, now: datetime) -> TimeWindow | None:
    """Return the window of time that a whole text names; None if it names none.

    This is an ISO date or time, a year, a month, a span back from now such as `7d`, or words such as "last
    week". A time without a time zone is in that of `now`.

    Raises:
        ValueError: `now` is naive.
    """
    text = text.strip()
    if days := _NAMED.fullmatch(text):
        named = _last_named(text, now.date()) if days["year"] != "-" else None
        return TimeWindow(start=_beginning(named[0], now), end=_end(named[1], now)) if named else None
    try:
        if span := _SPAN.fullmatch(text):
            # In UTC, so that clock changes neither add nor remove hours.
            moment = now.astimezone(UTC) - timedelta(seconds=int(span[1]) * _SECONDS[span[2].casefold()])
            return TimeWindow(start=moment, end=moment)
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)).astimezone(UTC)
        return TimeWindow(start=moment, end=moment)
    except (ValueError, OverflowError):
        pass
    for phrase in (f"in {text}", f"on {text}"):
        mentions = time_mentions(phrase)
        if len(mentions) == 1 and mentions[0].start <= 3 and mentions[0].end == len(phrase):
            return window_of([mentions[0].hint], now)
    return None


def _is_without_year(hint: TimeHint) -> bool:
    return hint.date is not None and hint.date.startswith("-")


def _latest_day(windows: Sequence[TimeWindow], now: datetime, *, weekday: bool) -> date:
    """Return the latest day on which a time without a year may begin: in a named year, or today.

    For a weekday, in a named week or month.
    """
    shortest = _ALMOST_A_WEEK if weekday else _ALMOST_A_YEAR
    years = [one for one in windows if shortest < one.end - one.start < 2 * _ALMOST_A_YEAR]
    return min((one.end for one in years), default=now).astimezone(now.tzinfo).date()


def _shared(windows: Sequence[TimeWindow]) -> TimeWindow | None:
    if not windows:
        return None
    starts, ends = [one.start for one in windows], [one.end for one in windows]
    if max(starts) <= min(ends):
        return TimeWindow(start=max(starts), end=min(ends))
    return TimeWindow(start=min(starts), end=max(ends))


def _window(hint: TimeHint, now: datetime, latest: date) -> TimeWindow | None:
    """Return the window of one hint; None if it names none."""
    present = now.astimezone(UTC)
    days = _days(hint, now.date(), latest)
    if days is None:
        return None
    start, end = _beginning(days[0], now), _end(days[1], now)
    match hint.relation:
        case "as-of":
            moment = min(end, present)
            return TimeWindow(start=moment, end=moment)
        case "since":
            return TimeWindow(start=start, end=max(present, start))
        case "after":
            return TimeWindow(start=moved(end, _INSTANT), end=max(present, moved(end, _INSTANT)))
        case "until":
            return TimeWindow(start=FAR_PAST, end=end)
        case "before":
            return TimeWindow(start=FAR_PAST, end=moved(start, -_INSTANT))
        case None if hint.offset is not None and hint.offset < -1:
            return TimeWindow(start=start, end=present)
        case None if hint.offset is not None and hint.offset > 1:
            return TimeWindow(start=present, end=max(present, end))
    return TimeWindow(start=start, end=end)


def _days(hint: TimeHint, today: date, latest: date) -> _Days | None:
    if hint.date is None:
        if hint.unit is None or hint.offset is None:
            return None
        is_span = hint.relation is None and abs(hint.offset) > 1
        return (
            _counted_span(hint.unit, hint.offset, today) if is_span else _unit(hint.unit, hint.offset, today)
        )
    first = _first_days(hint.date, hint, today, latest)
    if first is None or hint.until is None:
        return first
    last = _next_named(hint.until, first[0])  # "between November and March" spans the new year
    return (min(first[0], last[0]), max(first[1], last[1])) if last else first


def _first_days(named: str, hint: TimeHint, today: date, latest: date) -> _Days | None:
    """Return the first days of a hint: of the last such time, the last that is over, or the next."""
    if hint.offset is None or latest != today:  # another hint names the year, or the week
        return _last_named(named, latest)
    if hint.offset >= 0:
        return _next_named(named, today, later=hint.offset > 0)
    first = _last_named(named, _shift_days(today, -1))
    last = _next_named(hint.until or named, first[0]) if first else None
    return _last_named(named, _shift_days(first[0], -1)) if first and last and last[1] >= today else first


def _next_named(text: str, today: date, *, later: bool = False) -> _Days | None:
    """Return the days named by `TimeHint.date`; without a year, the next that are not over."""
    if weekday := _WEEKDAY.fullmatch(text):
        day = _shift_days(today, (int(weekday[1]) - today.isoweekday() - later) % 7 + later)
        return day, day
    named = _NAMED.fullmatch(text)
    if named is None or named["year"] != "-":
        return _last_named(text, today)
    found = (_in_year(year, named) for year in range(today.year, min(today.year + 9, date.max.year + 1)))
    return next((days for days in found if days and (days[0] > today if later else days[1] >= today)), None)


def _last_named(text: str, latest: date) -> _Days | None:
    """Return the days named by `TimeHint.date`; without a year, the last that began by `latest`."""
    if weekday := _WEEKDAY.fullmatch(text):
        day = latest - timedelta(days=(latest.isoweekday() - int(weekday[1])) % 7)
        return day, day
    named = _NAMED.fullmatch(text)
    if named is None:
        return None
    years = [int(named["year"])] if named["year"] != "-" else range(latest.year, max(0, latest.year - 9), -1)
    found = (_in_year(year, named) for year in years)
    return next((days for days in found if days and (named["year"] != "-" or days[0] <= latest)), None)


def _in_year(year: int, named: re.Match[str]) -> _Days | None:
    try:
        if named["quarter"]:
            last_month = 3 * int(named["quarter"])
            return date(year, last_month - 2, 1), _last_of_month(year, last_month)
        if named["week"]:
            monday = date.fromisocalendar(year, int(named["week"]), 1)
            return monday, _shift_days(monday, 6)
        if named["day"]:
            day = date(year, int(named["month"]), int(named["day"]))
            return day, day
        if named["month"]:
            return date(year, int(named["month"]), 1), _last_of_month(year, int(named["month"]))
        return date(year, 1, 1), date(year, 12, 31)
    except ValueError:  # no such day in that year
        return None


def _unit(unit: TimeUnit, offset: int, today: date) -> _Days:
    """Return the whole day, week, month or year that is `offset` units from the present one."""
    if unit == "day":
        day = _shift_days(today, offset)
        return day, day
    if unit == "week":
        monday = _shift_days(_shift_days(today, -today.weekday()), 7 * offset)
        return monday, _shift_days(monday, 6)
    first = _shift_months(today.replace(day=1), offset if unit == "month" else 12 * offset)
    if unit == "month":
        return first, _last_of_month(first.year, first.month)
    return first.replace(month=1), first.replace(month=12, day=31)


def _counted_span(unit: TimeUnit, offset: int, today: date) -> _Days:
    """Return the days between today and the day that is `offset` units away, the earlier first."""
    if unit in ("day", "week"):
        other = _shift_days(today, offset * (7 if unit == "week" else 1))
    else:
        other = _shift_months(today, offset * (12 if unit == "year" else 1))
    return min(today, other), max(today, other)


def _shift_days(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        return date.min if days < 0 else date.max


def _shift_months(day: date, months: int) -> date:
    """Return the same day `months` later, or the last of that month if it has no such day."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not date.min.year <= year <= date.max.year:
        return date.min if months < 0 else date.max
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _last_of_month(year: int, month: int) -> date:
    return date(year, month, monthrange(year, month)[1])


def _beginning(day: date, now: datetime) -> datetime:
    return in_zone(datetime.combine(day, time.min, now.tzinfo))


def _end(day: date, now: datetime) -> datetime:
    return in_zone(datetime.combine(day, time.max, now.tzinfo))


def moved(moment: datetime, by: timedelta) -> datetime:
    """Shift a time, but not beyond the edges of the calendar."""
    try:
        return moment + by
    except OverflowError:
        return FAR_PAST if by < timedelta() else FAR_FUTURE


def in_zone(moment: datetime, zone: tzinfo | None = UTC) -> datetime:
    """Convert an aware time to another time zone, but not beyond the edges of the calendar."""
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return FAR_PAST if moment.year == FAR_PAST.year else FAR_FUTURE
