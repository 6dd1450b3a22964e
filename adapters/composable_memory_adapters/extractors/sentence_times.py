"""Finds the time a sentence speaks of: dates, months, years, and words such as "yesterday" (pure)."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from composable_memory_adapters.extractors.word_lists import MONTHS, WEEKDAYS
from composable_memory_ops_logs.quick_dataclass import dataclass

_MONTH_NUMBERS = {name[:length]: n for n, name in enumerate(MONTHS, 1) for length in (3, len(name))} | {
    "sept": 9
}
_MONTH = rf"(?P<{{}}>{'|'.join(MONTHS)}|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_NUMBERS = {word: n for n, word in enumerate(_NUMBER_WORDS)}
_NUMBERS |= {"a": 1, "an": 1, "a few": 3, "a couple of": 2, "couple of": 2}

_TIME = re.compile(
    r"(?<!\w)(?:(?P<lead>since|from|starting|as of|effective|until|till|up to|through|to|by|on|in|during"
    r"|seit|desde|depuis|bis|hasta|jusqu'au)\s+)?(?:the\s+)?(?:"
    r"(?P<y0>\d{4})-(?P<m0>\d{2})-(?P<d0>\d{2})"
    rf"|{_MONTH.format('m1')}\s+(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<y1>\d{{4}}))?(?!\d)"
    rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?{_MONTH.format('m2')}(?:,?\s+(?P<y2>\d{{4}}))?"
    rf"|{_MONTH.format('m3')},?\s+(?P<y3>\d{{4}})"
    r"|(?P<y4>(?:19|20)\d{2})(?![\w-])"
    r"|(?P<ago>(?P<n>\d{1,3}|a few|a couple of|couple of|an?|one|two|three|four|five|six|seven|eight|nine|ten"
    r"|eleven|twelve)\s+(?P<unit>day|week|month|year)s?\s+ago)"
    rf"|(?P<last>last\s+(?:night|week|month|year|weekend|{'|'.join(WEEKDAYS)}))"
    r"|(?P<day>yesterday|today|this morning|ayer|gestern|hier)(?!\w)"
    r")|(?P<cjk>(?P<cy>\d{4})年(?:(?P<cm>\d{1,2})月(?:(?P<cd>\d{1,2})[日号])?)?)(?P<after>以来|起|から|まで|为止|到)?"
    r"|(?P<cday>昨天|昨日|어제|上周|先週|지난주|上个月|先月|지난달|去年|작년)",
    re.IGNORECASE,
)
_QUICK = re.compile(
    r"\d{4}|ago\b|yesterday|last |today|this morning|ayer|gestern|hier|[昨先上去]|어제|지난|작년|"
    rf"{'|'.join(name[:3] for name in MONTHS)}",
    re.IGNORECASE,
)
_FROM = frozenset(
    {"since", "from", "starting", "as of", "effective", "seit", "desde", "depuis", "以来", "起", "から"}
)
_TO = frozenset({"until", "till", "up to", "through", "to", "bis", "hasta", "jusqu'au", "まで", "为止", "到"})
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}
_BACK = {
    "today": 0, "this morning": 0, "yesterday": 1, "last night": 1, "ayer": 1, "gestern": 1, "hier": 1,
    "last week": 7, "last weekend": 7, "last month": 30, "last year": 365,
    "昨天": 1, "昨日": 1, "어제": 1, "上周": 7, "先週": 7, "지난주": 7, "上个月": 30, "先月": 30,
    "지난달": 30, "去年": 365, "작년": 365,
}  # fmt: skip
HALF_A_YEAR = timedelta(days=183)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """When something holds; None where the words do not say. `at` is a time of which nothing more is said."""

    start: datetime | None = None
    end: datetime | None = None
    at: datetime | None = None


UNKNOWN = Validity()


def validity_of(text: str, observed_at: datetime | None) -> Validity:
    """Return the time that a sentence speaks of; words such as "yesterday" count from `observed_at`."""
    if not _QUICK.search(text):
        return UNKNOWN
    start = end = at = None
    for lead, moment in _moments(text, observed_at):
        if lead in _FROM:
            start = start or moment
        elif lead in _TO:
            end = end or moment
        else:
            at = at or moment
    return Validity(start=start, end=end, at=at)


def day_in(text: str, observed_at: datetime | None) -> datetime | None:
    """Return the first time that a text speaks of, whatever it says of it."""
    return next((moment for _, moment in _moments(text, observed_at)), None)


def _moments(text: str, observed_at: datetime | None) -> Iterator[tuple[str, datetime]]:
    for match in _TIME.finditer(text):
        lead = (match["lead"] or match["after"] or "").lower()
        if (match["y4"] and not lead) or (match["m2"] or match["m1"]) == "may":
            continue  # a bare number may be anything, and "may" without a capital is a verb
        moment = _relative(match, observed_at) or _absolute(match, observed_at)
        if moment is not None:
            yield lead, moment


def _absolute(match: re.Match[str], observed_at: datetime | None) -> datetime | None:
    year = _first(match, "y0", "y1", "y2", "y3", "y4", "cy")
    month_name = _first(match, "m1", "m2", "m3")
    day = int(_first(match, "d0", "d1", "d2", "cd") or 1)
    if month_name:
        month = _MONTH_NUMBERS[month_name.lower().rstrip(".")]
    else:
        month = int(_first(match, "m0", "cm") or 1)
    if year:
        return _date(int(year), month, day)
    return _nearest(month, day, observed_at) if month_name and observed_at else None


def _first(match: re.Match[str], *groups: str) -> str | None:
    """Return the first of these groups that matched."""
    return next((match[group] for group in groups if match[group]), None)


def _nearest(month: int, day: int, observed_at: datetime) -> datetime | None:
    """Return the day that is meant when no year is said: of this year, unless that is long to come."""
    moment = _date(observed_at.year, month, day)
    if moment is None:
        return None
    return _date(observed_at.year - 1, month, day) if moment - observed_at > HALF_A_YEAR else moment


def _relative(match: re.Match[str], observed_at: datetime | None) -> datetime | None:
    if observed_at is None:
        return None
    today = observed_at.replace(hour=0, minute=0, second=0, microsecond=0)
    if match["ago"]:
        count = _NUMBERS.get(match["n"].lower()) or int(match["n"])
        return _days_before(today, count * _DAYS[match["unit"].lower()])
    phrase = " ".join((match["last"] or match["day"] or match["cday"] or "").lower().split())
    if phrase in _BACK:
        return _days_before(today, _BACK[phrase])
    if phrase:
        return _days_before(today, (today.weekday() - WEEKDAYS.index(phrase.split()[1]) - 1) % 7 + 1)
    return None


def _days_before(moment: datetime, days: int) -> datetime | None:
    try:
        return moment - timedelta(days=days)
    except OverflowError:
        return None


def _date(year: int, month: int, day: int) -> datetime | None:
    try:
        return datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None
