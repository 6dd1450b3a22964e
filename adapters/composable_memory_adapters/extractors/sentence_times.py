"""Finds the time a sentence refers to: dates, months, years, and words such as "yesterday" (pure)."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from composable_memory.data_files import tables
from composable_memory.time.windows import FAR_FUTURE, moved
from composable_memory_ops_logs.quick_dataclass import dataclass

_WORDS = tables(__package__, "sentence_times.toml")
MONTH_NAMES = {name: n for n, names in enumerate(_WORDS["months"], 1) for name in names.split()}
DAY_NAMES = {name: n for n, names in enumerate(_WORDS["days"]) for name in names.split()}
_SEASONS = {name: int(month) for month, names in _WORDS["seasons"].items() for name in names.split()}
"""The first month of each season in the northern hemisphere."""
_NUMBERS = {word: n for n, words in enumerate(_WORDS["numbers"], 1) for word in words.split()}
_CHINESE_NUMBERS = {word: n for n, word in enumerate("一 二 三 四 五 六 七 八 九 十 十一 十二".split(), 1)}
_UNITS = {"day": 1, "tag": 1, "día": 1, "week": 7, "woche": 7, "semana": 7, "month": 30, "monat": 30}
_UNITS |= {"mes": 30, "year": 365, "jahr": 365, "año": 365, "天": 1, "周": 7, "个月": 30, "年": 365}
DAYS_BACK = {words: int(days) for days, some in _WORDS["days_back"].items() for words in some}
HALF_A_YEAR = timedelta(days=183)
_CHINESE_YEARS = {"前年": -2, "去年": -1, "今年": 0, "明年": 1}

_PAST = re.compile(
    rf"(?<!\w)(?:{'|'.join(_WORDS['past'].strip().splitlines())})(?!\w)|了|过|曾|当时", re.IGNORECASE
)
"""Words of a clause about the past, in which "in May" means last May."""


def _any_of(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))  # type: ignore[call-overload]


_MONTH = f"(?:{_any_of(MONTH_NAMES)})"
_WHICH = (
    "(?:last|this|next|past|(?:letzt|vergangen|dies|nächst|kommend)e[nmrs]?|pasad[oa]|est[ea]|próxim[oa])"
)
_PASSED = r"(?:\s+pasad[oa]\b)?"
_LEAD = (
    r"(?P<from>since|(?:starting|beginning)(?: on| in| from)?|from|as of|effective|seit|ab|von|desde"
    r"|a partir del?)"
    r"|(?P<to>and until|until|till|up to|through|to|und bis|bis zum|bis|y hasta|hasta|a(?= (?:\d{4}"
    r"|[a-zé]+ de \d)))"
    r"|(?P<at>on|in|during|by|at|am|im|um|en|el|de)"
)
_DONE_IN = re.compile(r"\b(?:bin|ist|sind|hat|habe|haben|zog|zogen|wurden?|war|waren|[a-zäöüß]+ten?) $")
_GOES_ON = re.compile(r" (?:nach|von|aus|in|bei|zu[mr]?|[a-zäöü]*ge[a-zäöüß]+(?:t|en)|[a-zäöü]+t)\b|[,.]?$")
"""The context of a year that German gives without "in": "ist 2019 nach Graz gezogen"."""
_OF = r"(?:\s+(?:of|de|del))?"
_TIME = re.compile(
    rf"(?<!\w)(?:(?:{_LEAD})\s+)?(?:the\s+|dem\s+|den\s+|el\s+|la\s+)?(?:"
    r"(?P<y0>\d{4})-(?P<m0>\d{2})-(?P<d0>\d{2})(?![\w-])"
    rf"|(?P<m1>{_MONTH})\.?\s+(?P<d1>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<y1>\d{{4}}))?(?![\d:])"
    rf"|(?P<d2>\d{{1,2}})(?:st|nd|rd|th|\.)?{_OF}\s+(?P<m2>{_MONTH})\b\.?(?:(?:{_OF}|,)\s+(?P<y2>\d{{4}}))?"
    rf"|(?P<last>{_WHICH})?\s*(?P<m3>{_MONTH})\b(?:(?:{_OF}|,)\s+(?P<y3>\d{{4}})"
    rf"|(?P<y5>){_PASSED})(?!\w)"
    rf"|(?P<lastseason>{_WHICH})?\s*(?P<season>{_any_of(one for one in _SEASONS if len(one) > 1)})\b"
    rf"(?:{_OF}\s+(?P<y6>\d{{4}}))?{_PASSED}"
    r"|(?P<y4>(?:19|20)\d{2})(?![\w-])(?!\s*(?:ms|mm|kg|km|eur|%))"
    rf"|(?:vor\s+|hace\s+)?(?P<n>\d{{1,3}}|(?:a\s+)?(?:{_any_of(_NUMBERS)}))(?:\s+of)?\s+"
    r"(?P<unit>day|week|month|year|tag|woche|monat|jahr|día|semana|mes|año)(?:s|en|e|n|es)?(?P<ago>\s+ago)?"
    rf"|(?P<lastday>{_WHICH})?\s*(?<!\blos )(?P<weekday>{_any_of(DAY_NAMES)})(?P<each>s(?<!es))?{_PASSED}"
    rf"|(?P<word>{_any_of(word for word in DAYS_BACK if word.isascii() or word[0] < 'ÿ')})"
    r")(?!\w)",
    re.IGNORECASE,
)
_CHINESE_DAY = r"(?P<y>\d{4})年(?:(?P<m>\d{1,2})月(?:(?P<d>\d{1,2})[日号])?)?"
_CHINESE = re.compile(
    rf"(?:在|于)?(?P<from>从|自从?)?(?P<to>到|至|直到)?(?:{_CHINESE_DAY}"
    rf"|(?P<year>{'|'.join(_CHINESE_YEARS)})?(?:(?P<m2>\d{{1,2}}|十[一二]?|[一二三四五六七八九])月份?"
    rf"(?:(?P<d2>\d{{1,2}})[日号])?(?![\w])?|(?P<season>[春夏秋冬])[天季])"
    rf"|(?P<n>\d{{1,3}}|[一二两三四五六七八九十])(?P<unit>天|周|个月|年)前"
    rf"|(?P<which>[上下这]个?)?(?P<weekday>(?:周|星期|礼拜)[一二三四五六日天])"
    rf"|(?P<word>{_any_of(w for w in DAYS_BACK if w[0] > 'ÿ')}))"
    r"(?P<since>起|以来|开始)?(?P<till>为止|止)?，?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """When something holds; None if the text does not say.

    `at` is a time without further detail, and `until` its end: for a month, the start of the next.
    """

    start: datetime | None = None
    end: datetime | None = None
    at: datetime | None = None
    until: datetime | None = None


_Span = tuple[datetime, datetime]
"""The start and end of a time."""


def without_times(text: str, said: datetime | None) -> tuple[str, Validity]:
    """Return a sentence without its time expressions, and their meaning; "yesterday" counts from `said`."""
    start = end = at = until = None
    kept, last = [], 0
    is_past = _PAST.search(text) is not None
    for match in (*_found(text),):
        read = _span if match.re is _TIME else _chinese_span
        span = read(match, said, is_past=is_past)
        lead = _lead(match)
        if lead == "from":
            start = start or (span and span[0])
        elif lead == "to":
            end = end or (span and _end(span))
        elif span and at is None:
            at, until = span
        kept.append(text[last : match.start()])
        last = match.end()
    rest = (" " if text[:1].isascii() else "").join([*kept, text[last:]]) if kept else text
    if end and at and not start and at < end:  # "de 2015 a 2019"
        start, at, until = at, None, None
    if start and end and end <= start:  # "from May to July 2025"
        start, end = (
            (same, end) if (same := _date(end.year, start.month, start.day)) and same < end else (start, None)
        )
    return rest, Validity(start=start, end=end, at=at, until=until)


def _found(text: str) -> Iterator[re.Match[str]]:
    for match in _TIME.finditer(text):
        if not _is_no_time(match):
            yield match
    if not text.isascii():
        yield from _CHINESE.finditer(text)


def _is_no_time(match: re.Match[str]) -> bool:
    """Return whether words only look like a time: a bare "2026", "may", a number of days, "a" and "to"."""
    if match["y4"]:
        is_german = _DONE_IN.search(match.string, 0, match.start()) and _GOES_ON.match(
            match.string, match.end()
        )
        return not (match["from"] or match["to"] or match["at"] or is_german)
    if match["unit"]:
        return not (match["ago"] or match[0].lower().startswith(("vor ", "hace ")))
    if match["season"]:
        return not (match["from"] or match["to"] or match["at"] or match["lastseason"])
    month = match["m1"] or match["m2"] or match["m3"]
    if month and month[0].islower() and (month in ("may", "mar") or match["y5"] is not None):
        return not (match["from"] or match["to"] or match["at"]) or month == "mar"
    if month and match["y5"] is not None and not match["last"]:
        return not (match["from"] or match["to"] or match["at"])
    return False


def _lead(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups.get("since"):
        return "from"
    if groups.get("till"):
        return "to"
    return next((name for name in ("from", "to") if groups.get(name)), "at")


def _end(span: _Span) -> datetime:
    """Return the end of something that holds until a time: includes a month or a year, but not a day."""
    return span[1] if span[1] - span[0] > timedelta(days=1) else span[0]


def _span(match: re.Match[str], said: datetime | None, *, is_past: bool) -> _Span | None:
    if match["word"] or match["unit"]:
        return _counted(match, said)
    which = (match["last"] or match["lastseason"] or match["lastday"] or "").lower()
    is_next = which.startswith(("next", "nächst", "kommend", "próxim"))
    is_last = which.startswith(("last", "past", "letzt", "vergangen", "pasad")) or "pasad" in match[0].lower()
    is_past = (
        is_past or is_last or (match["from"] or "").lower() in ("since", "seit", "desde")
    ) and not is_next
    if match["weekday"]:
        if match["each"] or not (is_past or is_next or match["from"]) or said is None:
            return None  # "on Mondays", or "on Monday", which may be last or next
        day = DAY_NAMES[match["weekday"].lower()]
        if is_next:
            return _days_before(said, (said.weekday() - day) % 7 - 7)
        return _days_before(said, (said.weekday() - day - is_last) % 7 + is_last)  # never today: last Monday
    year = int(match["y0"] or match["y1"] or match["y2"] or match["y3"] or match["y4"] or match["y6"] or 0)
    if match["season"]:
        return _calendar(year, _SEASONS[match["season"].lower()], 0, said, is_past=is_past, months=3)
    name = match["m1"] or match["m2"] or match["m3"]
    month = MONTH_NAMES[name.lower()] if name else int(match["m0"] or 0)
    day = int(match["d0"] or match["d1"] or match["d2"] or 0)
    return _calendar(year, month, day, said, is_past=is_past)


def _calendar(
    year: int, month: int, day: int, said: datetime | None, *, is_past: bool, months: int = 1
) -> _Span | None:
    """Return a year, some months or a day; without a year, the last one if past, else the nearest."""
    if not year:
        if said is None:
            return None
        near = _date(said.year, month, day or 1)
        limit = timedelta(0) if is_past else HALF_A_YEAR
        year = said.year - (near is not None and near - said > limit)
    first = _date(year, month or 1, day or 1)
    if first is None:
        return None
    if day:
        return first, moved(first, timedelta(days=1))
    over = (month or 1) - 1 + (months if month else 12)
    return first, _date(year + over // 12, over % 12 + 1, 1) or FAR_FUTURE


def _counted(match: re.Match[str], said: datetime | None) -> _Span | None:
    """Return the day that words such as "yesterday" or "two weeks ago" refer to."""
    if said is None:
        return None
    if match["word"]:
        return _days_before(said, DAYS_BACK[" ".join(match["word"].lower().split())])
    number = match["n"].lower().removeprefix("a ")
    count = _NUMBERS.get(number) or (int(number) if number.isdigit() else 1)
    return _days_before(said, count * _UNITS[match["unit"].lower()])


def _chinese_span(match: re.Match[str], said: datetime | None, *, is_past: bool) -> _Span | None:
    if match["y"]:
        return _calendar(int(match["y"]), int(match["m"] or 0), int(match["d"] or 0), said, is_past=is_past)
    if match["m2"] or match["season"]:
        year = said.year + _CHINESE_YEARS[match["year"]] if said and match["year"] else 0
        if match["season"]:
            return _calendar(year, _SEASONS[match["season"]], 0, said, is_past=is_past, months=3)
        month = _CHINESE_NUMBERS.get(match["m2"]) or (int(match["m2"]) if match["m2"].isdigit() else 0)
        day = int(match["d2"] or 0)
        return _calendar(year, month, day, said, is_past=is_past) if 0 < month <= 12 else None
    if said is None:
        return None
    if match["weekday"]:
        day = "一二三四五六日".index(match["weekday"][-1].replace("天", "日"))
        which = (match["which"] or "")[:1]
        if which in ("上", "下"):
            return _days_before(said, said.weekday() - day + (7 if which == "上" else -7))
        return _days_before(said, (said.weekday() - day) % 7) if is_past else None
    if match["word"]:
        return _days_before(said, DAYS_BACK[match["word"]])
    count = 2 if match["n"] == "两" else _CHINESE_NUMBERS.get(match["n"]) or int(match["n"])
    return _days_before(said, count * _UNITS[match["unit"]])


def _days_before(said: datetime, days: int) -> _Span | None:
    try:
        first = said.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)
        return first, first + timedelta(days=1)
    except OverflowError:
        return None


def _date(year: int, month: int, day: int) -> datetime | None:
    try:
        return datetime(year, month, day, tzinfo=UTC)
    except ValueError:
        return None
