"""Finds the times mentioned in a text: in English, and the most common ones in six more languages (pure).

An ambiguous word counts only next to one that makes it a time: a month's name or a year after "in", "since"
or "between", a weekday after "on" or "last". So "may I" and "march on" are not times.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import groupby
from operator import itemgetter

from composable_memory.types import TimeHint, TimeRelation, TimeUnit
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

LONGEST_PREPOSITION = 60
"""How many characters before a time to search for its prepositions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMention:
    """A time and its place in the text, including its preposition."""

    start: int
    end: int
    hint: TimeHint


def time_mentions(text: str) -> list[TimeMention]:
    """Return the times mentioned in `text`, in order, without overlaps."""
    found = sorted(_found(text), key=lambda one: one.start)
    if any(_is_undecided(one.hint) for one in found) and _AHEAD.search(text) and not _BEHIND.search(text):
        found = [
            replace(one, hint=replace(one.hint, offset=0)) if _is_undecided(one.hint) else one
            for one in found
        ]
    mentions: list[TimeMention] = []
    number = 0
    while number < len(found):
        one, following = found[number], found[number + 1 : number + 2]
        # Words of one time do not count for the next as well: "last year" in "last year March".
        free_from = mentions[-1].end if mentions else 0
        stretch = _stretch(text, one, following[0], free_from) if following else None
        mention = stretch or _single(text, one, free_from, following[0].start if following else len(text))
        if mention is not None:
            mentions.append(mention)
        number += 2 if stretch else 1
    return mentions


@dataclass(frozen=True, slots=True)
class _Found:
    """A possible time; with `beside`, it is one only after one of these words."""

    start: int
    end: int
    hint: TimeHint
    beside: str


_UNITS: Mapping[str, TimeUnit] = {
    "day": "day", "days": "day", "día": "day", "días": "day", "dia": "day", "dias": "day", "天": "day",
    "日": "day", "일": "day", "week": "week", "weeks": "week", "semana": "week", "semanas": "week",
    "周": "week", "週間": "week", "星期": "week", "주": "week", "month": "month", "months": "month",
    "mes": "month", "meses": "month", "个月": "month", "か月": "month", "ヶ月": "month", "カ月": "month",
    "개월": "month", "year": "year", "years": "year", "año": "year", "años": "year", "年": "year",
    "년": "year", "tag": "day", "tage": "day", "tagen": "day", "woche": "week", "wochen": "week",
    "monat": "month", "monate": "month", "monaten": "month", "jahr": "year", "jahre": "year",
    "jahren": "year", "jour": "day", "jours": "day", "semaine": "week", "semaines": "week", "mois": "month",
    "an": "year", "ans": "year",
}  # fmt: skip
_NUMBERS: Mapping[str, int] = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "a couple of": 2, "un": 1, "una": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5,
    "seis": 6, "siete": 7, "ocho": 8, "nueve": 9, "diez": 10, "few": 3, "ein": 1, "eine": 1, "einem": 1,
    "einen": 1, "einer": 1, "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8,
    "neun": 9, "zehn": 10, "une": 1, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5,
}  # fmt: skip
_MONTHS: Mapping[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "january jan enero januar jänner janvier", "february feb febrero februar février",
            "march mar marzo märz mär mars",
            "april apr abril avril", "may mayo mai", "june jun junio juni juin",
            "july jul julio juli juillet",
            "august aug agosto août", "september sept sep septiembre setiembre septembre",
            "october oct octubre oktober okt octobre",
            "november nov noviembre novembre", "december dec diciembre dezember dez décembre",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_WEEKDAYS: Mapping[str, int] = {
    name: number
    for number, names in enumerate(
        (
            "monday montag lunes lundi", "tuesday dienstag martes mardi",
            "wednesday mittwoch miércoles miercoles mercredi",
            "thursday donnerstag jueves jeudi", "friday freitag viernes vendredi",
            "saturday samstag sábado sabado samedi", "sunday sonntag domingo dimanche",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
_SEASONS: Mapping[str, int] = {
    name: number
    for number, names in {
        3: "spring frühling frühjahr primavera printemps 春", 6: "summer sommer verano été 夏",
        9: "autumn fall herbst otoño automne 秋", 12: "winter invierno hiver 冬",
    }.items()
    for name in names.split()
}  # fmt: skip
"""The month in which a northern season begins; winter belongs to the year of its December."""
_HAN_DIGITS = "一二三四五六七八九十"
_HAN_WEEKDAYS = "一二三四五六日"
_HAN_MONTH = rf"(?P<han_month>十[一二]?|(?<![{_HAN_DIGITS}])[一二三四五六七八九])"
_QUARTERS = ("first", "second", "third", "fourth")
_WORDS: Mapping[str, tuple[TimeUnit, int]] = {
    "the day before yesterday": ("day", -2), "yesterday": ("day", -1), "last night": ("day", -1),
    "today": ("day", 0), "tonight": ("day", 0), "this morning": ("day", 0), "this afternoon": ("day", 0),
    "this evening": ("day", 0), "tomorrow": ("day", 1),
    "anteayer": ("day", -2), "ayer": ("day", -1), "anoche": ("day", -1), "hoy": ("day", 0),
    "la semana pasada": ("week", -1), "esta semana": ("week", 0), "el mes pasado": ("month", -1),
    "este mes": ("month", 0), "el año pasado": ("year", -1), "este año": ("year", 0),
    "前天": ("day", -2), "昨天": ("day", -1), "今天": ("day", 0), "明天": ("day", 1), "上周": ("week", -1),
    "本周": ("week", 0), "这周": ("week", 0), "上个月": ("month", -1), "本月": ("month", 0),
    "这个月": ("month", 0), "去年": ("year", -1), "今年": ("year", 0),
    "一昨日": ("day", -2), "昨日": ("day", -1), "今日": ("day", 0), "明日": ("day", 1), "先週": ("week", -1),
    "今週": ("week", 0), "先月": ("month", -1), "今月": ("month", 0), "昨年": ("year", -1),
    "그저께": ("day", -2), "어제": ("day", -1), "오늘": ("day", 0), "내일": ("day", 1),
    "지난주": ("week", -1), "지난 주": ("week", -1), "이번 주": ("week", 0),
    "이번주": ("week", 0), "지난달": ("month", -1),
    "지난 달": ("month", -1), "이번 달": ("month", 0), "이번달": ("month", 0), "작년": ("year", -1),
    "올해": ("year", 0),
    "昨晚": ("day", -1), "今晚": ("day", 0), "大前天": ("day", -3), "上个星期": ("week", -1),
    "上星期": ("week", -1), "上个周": ("week", -1), "上上周": ("week", -2), "这个星期": ("week", 0),
    "前年": ("year", -2),
    "avant-hier": ("day", -2), "aujourd'hui": ("day", 0), "aujourd’hui": ("day", 0),
    "la semaine dernière": ("week", -1), "cette semaine": ("week", 0), "le mois dernier": ("month", -1),
    "ce mois": ("month", 0), "l'année dernière": ("year", -1), "l'an dernier": ("year", -1),
    "cette année": ("year", 0), "la semana anterior": ("week", -1), "antes de ayer": ("day", -2),
    "vorgestern": ("day", -2), "gestern": ("day", -1), "heute": ("day", 0), "vorletzte woche": ("week", -2),
    "letzte woche": ("week", -1), "letzter woche": ("week", -1), "letzten woche": ("week", -1),
    "vorige woche": ("week", -1), "vergangene woche": ("week", -1), "vergangenen woche": ("week", -1),
    "diese woche": ("week", 0), "dieser woche": ("week", 0), "letzten monat": ("month", -1),
    "letzter monat": ("month", -1), "vorigen monat": ("month", -1), "vergangenen monat": ("month", -1),
    "diesen monat": ("month", 0), "diesem monat": ("month", 0), "letztes jahr": ("year", -1),
    "letzten jahr": ("year", -1), "voriges jahr": ("year", -1), "vergangenes jahr": ("year", -1),
    "dieses jahr": ("year", 0), "diesem jahr": ("year", 0),
    "übermorgen": ("day", 2), "nächste woche": ("week", 1), "nächster woche": ("week", 1),
    "nächsten woche": ("week", 1), "kommende woche": ("week", 1), "nächsten monat": ("month", 1),
    "nächstes jahr": ("year", 1), "nächsten jahr": ("year", 1), "pasado mañana": ("day", 2),
    "la próxima semana": ("week", 1), "la semana que viene": ("week", 1), "el próximo mes": ("month", 1),
    "el mes que viene": ("month", 1), "el próximo año": ("year", 1), "el año que viene": ("year", 1),
    "后天": ("day", 2), "下周": ("week", 1), "下个星期": ("week", 1), "下星期": ("week", 1),
    "下个月": ("month", 1), "下月": ("month", 1), "明年": ("year", 1), "demain": ("day", 1),
    "la semaine prochaine": ("week", 1), "le mois prochain": ("month", 1), "l'année prochaine": ("year", 1),
}  # fmt: skip
_DIRECTION = {
    "last": -1,
    "past": -1,
    "previous": -1,
    "this": 0,
    "next": 1,
    "上": -1,
    "本": 0,
    "这": 0,
    "下": 1,
}


def _any_of(words: Mapping[str, object]) -> str:
    """Match one of `words`, the longest first; whole words if the script has spaces."""
    ordered = sorted(words, key=len, reverse=True)
    latin, others = ([one for one in ordered if (one[0] < "\u0250") is said] for said in (True, False))
    spaceless = [rf"\b{re.escape(one)}\b" if " " in one else re.escape(one) for one in others]
    return "|".join([rf"\b(?:{_by_first_letter(latin)})\b", *spaceless])


def _beginnings(words: Iterable[str], size: int) -> str:
    """Match the start of one of `words`, otherwise like `_any_of`."""
    begun = sorted({one[:size] for one in words})
    latin, others = ([one for one in begun if (one < "\u0250") is said] for said in (True, False))
    return "|".join([rf"\b(?:{_by_first_letter(latin)})", *map(re.escape, others)])


def _by_first_letter(words: Iterable[str]) -> str:
    """Match one of `words`, grouped by first letter, or the regex would try all of them everywhere."""
    same = groupby(sorted(words, key=itemgetter(0)), key=itemgetter(0))
    return "|".join(f"{one}(?:{'|'.join(re.escape(word[1:]) for word in begun)})" for one, begun in same)


_UNIT = rf"(?P<unit>{_any_of(_UNITS)})"
_COUNT = rf"(?P<count>\b\d{{1,4}}|{_any_of(_NUMBERS)})"
_ASIAN_COUNT = rf"(?:(?<!\d)(?P<count>\d{{1,4}})|(?P<han>[{_HAN_DIGITS}两]{{1,3}}))"
_MONTH = rf"(?P<month>{_any_of(_MONTHS)})\.?"
# "may" in lower case is a verb, unless it is next to a year or an ordinal.
_SURE_MONTH = rf"(?!(?:(?-i:may)|mars)\b){_MONTH}"
# After a name of a month that is also a first name or a verb, these words show that it is not a month.
_NOT_A_VERB = r"(?!\s+(?:asked|be|came|have|joined|left|moved|not|quit|said|says|started|told|went|wrote)\b)"
_DAY = r"(?P<day>\d{1,2})"
_ORDINAL = r"(?:st|nd|rd|th)"
_YEAR_DIGITS = r"(?:19|20)\d\d"
_YEAR = rf"(?P<year>{_YEAR_DIGITS})(?!\d)"
_WEEK = "(?:(?:calendar )?week|(?:kalender)?woche|semana|semaine)"
_WEEK_NUMBER = r"(?P<calendar_week>0?[1-9]|[1-4]\d|5[0-3])(?!\d)"
_NOT_INSIDE = r"(?<![A-Za-z0-9_/.:$€#-])"
_COUNTED_THINGS = (
    r"(?!\s*(?:%|(?:[kmg]?b|px|ms|s|bytes|characters|chars|chunks|dollars|euros|files|items|lines|metres|miles|"
    r"notes|people|pixels|points|records|requests|results|rows|seconds|steps|times|tokens|users|words)\b))"
)

_RELATIONS: Mapping[TimeRelation, str] = {
    "as-of": r"as (?:of|at)|(?:by|at) the end of|al? final(?:es)? de|a fecha de|截至|截止",
    "since": r"(?:ever )?since|starting (?:in|on|from)|desde|a partir de|seit|depuis|自从|自從|自",
    "until": r"(?:up )?until|up to|till|through|hasta|bis|jusqu['’](?:en|à|au)|直到",
    "before": r"before|prior to|earlier than|antes de|vor|avant",
    "after": r"after|later than|después de|despues de|tras|nach|après",
}
_RELATION = "|".join(f"(?P<{name.replace('-', '_')}>{words})" for name, words in _RELATIONS.items())
_FILLER = (
    r"(?:\s*(?:\b(?:the|el|la|del?|year|month|año|mes|dem|den|der|zum|jahr|monat)\b|"
    r"\b(?:beginning|start|middle|end|principios|finales|mediados) (?:of|de)\b|"
    r"\b(?:early|mid|late)\b-?|\b(?:anfang|mitte|ende)\b))*\s*"
)
_BEFORE = rf"(?<![\w-])(?:{_RELATION}){_FILLER}$"
_AFTER = (
    r"\s*(?:(?P<as_of>時点|时点|时为止|기준)|(?P<since>以来|以來|以降|이래|부터|起|onwards?\b)"
    r"|(?P<until>まで|까지|为止|為止)|(?P<before>之前|以前|이전|前|전)|(?P<after>之后|以后|以後|之後|后|後|이후))"
)


_NOTES = r"(?:notes?|diary|journal|log|entry|entries) (?:from|of|for)"
_BEFORE_A_MONTH = (
    rf"(?:back )?in|for|during|throughout|over|last|this|past|early|mid|late|{_NOTES}|en|durante|notas de|"
    "principios de|mediados de|finales de|"
    "im|anfang|mitte|ende|aus dem|vom|für|letzten|diesen|para|début|fin"
)
_BEFORE_A_YEAR = "(?:back )?in|during|throughout|over|for|from|of|early|mid|late|en|durante|de|im|aus dem"
_BEFORE_A_WEEKDAY = "on|last|this|past|from|for|am|letzten|vergangenen|diesen|vom|für|el|este|le"
_BEFORE_A_DAY = "am|vom|zum|seit|bis"

_SEASON = rf"\b(?P<season>{'|'.join(name for name in _SEASONS if name.isascii() or len(name) > 1)})\b"
_SEASON_NAME = _beginnings(_SEASONS, 4)
_MONTH_NAME = _beginnings(_MONTHS, 3)
_WORD = _beginnings((*_WORDS, *_WEEKDAYS, *_QUARTERS), 7)
_WEEKDAY = rf"\b(?P<weekday>{'|'.join(_WEEKDAYS)})\b"
_NAMED = rf"(?:{_WEEKDAY}|(?!(?-i:may)\b){_MONTH}|{_SEASON})"
_LAST = "last|past|previous|(?:letzt|vergangen|vorig)e[nmrs]?|pasad[oa]"
_NEXT = "next|(?:nächst|kommend)e[nmrs]?|próxim[oa]"
_WAY = "last|past|previous|this|next|últim|ago|hace|il y a|vor|letzten|vergangenen"

_RULES: tuple[tuple[str, str, str], ...] = (
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_YEAR}-(?P<number>\d\d)-(?P<day>\d\d)(?!\d|[-/]|\.\w)", ""),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_YEAR}/(?P<number>\d{{1,2}})/{_DAY}(?![\d/]|\.\w)", ""),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}(?P<day>1[3-9]|2\d|3[01])/(?P<number>\d{{1,2}})/{_YEAR}", ""),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}(?P<number>\d{{1,2}})/(?P<day>1[3-9]|2\d|3[01])/{_YEAR}", ""),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_DAY}-(?P<number>\d{{1,2}})-{_YEAR}(?!-|\.\w)", ""),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_DAY}\.\s?(?P<number>\d{{1,2}})\.\s?{_YEAR}(?!\.\w)", ""),
    (r"\d\.", rf"{_NOT_INSIDE}{_DAY}\.\s?(?P<number>\d{{1,2}})\.(?!\s?\w)", _BEFORE_A_DAY),
    (_MONTH_NAME, rf"{_MONTH}\s+{_DAY}{_ORDINAL}?(?:,\s*|\s+){_YEAR}", ""),
    (
        _MONTH_NAME,
        rf"{_NOT_INSIDE}{_DAY}(?:{_ORDINAL}|\.)?\s+(?:of\s+|de\s+)?{_MONTH}(?:,\s*|\s+(?:del?\s+)?){_YEAR}",
        "",
    ),
    (_MONTH_NAME, rf"{_MONTH}\s+{_DAY}{_ORDINAL}\b", ""),
    (_MONTH_NAME, rf"{_NOT_INSIDE}{_DAY}(?:{_ORDINAL}\s+(?:of\s+)?|\s+of\s+|\s+de\s+){_MONTH}\b", ""),
    (_MONTH_NAME, rf"{_NOT_INSIDE}{_DAY}\.\s*(?!may\b){_MONTH}(?!\w)", ""),
    (_MONTH_NAME, rf"{_SURE_MONTH}\s+{_DAY}(?![\d:%]|[.,]\d){_COUNTED_THINGS}", ""),
    (_MONTH_NAME, rf"{_NOT_INSIDE}{_DAY}\s+{_SURE_MONTH}(?!\w)", ""),
    (_MONTH_NAME, rf"{_MONTH}(?:,?\s+|\s+of\s+|\s+del?\s+){_YEAR}", ""),
    (
        "[月월]",
        rf"(?:{_YEAR}\s*[年년]\s*)?(?<!\d)(?P<number>\d{{1,2}})\s*[月월]份?(?:\s*(?P<day>\d{{1,2}})\s*[日号號일])?",
        "",
    ),
    (
        "月",
        rf"(?:{_YEAR}\s*年)?{_HAN_MONTH}月份?(?:(?P<han_day>[{_HAN_DIGITS}]{{1,3}})[日号號])?",
        "",
    ),
    ("[春夏秋冬]", rf"(?:{_YEAR}\s*年\s*的?)?(?P<season>[春夏秋冬])[天季]", ""),
    ("[年년]", rf"{_YEAR}\s*[年년]", ""),
    (_YEAR_DIGITS, rf"\bQ(?P<quarter>[1-4])(?:\s+of\s+|[\s,/-]*){_YEAR}", ""),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_YEAR}[\s/-]?Q(?P<quarter>[1-4])\b", ""),
    (_YEAR_DIGITS, rf"\b(?P<nth>{'|'.join(_QUARTERS)})\s+quarter(?:\s+of)?\s+{_YEAR}", ""),
    (
        _YEAR_DIGITS,
        rf"\b(?:(?-i:KW|CW)\s?|{_WEEK}\s+){_WEEK_NUMBER}(?:\s+(?:of|del?|von|in)\s+|[\s,/]*){_YEAR}",
        "",
    ),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_YEAR}-?W{_WEEK_NUMBER}\b", ""),
    ("KW", rf"\b(?-i:KW)\s?{_WEEK_NUMBER}(?![\d.])", ""),
    (_SEASON_NAME, rf"{_SEASON}(?:,?\s+|\s+of\s+|\s+del?\s+){_YEAR}", ""),
    (_WAY, rf"\b(?:in\s+the\s+)?(?P<way>last|past|previous|next)\s+{_COUNT}\s+{_UNIT}", ""),
    (_WAY, rf"\b(?:en\s+)?l[oa]s\s+últim[oa]s\s+{_COUNT}\s+{_UNIT}", ""),
    (_WAY, rf"\b(?:in\s+den\s+)?(?:letzten|vergangenen)\s+{_COUNT}\s+{_UNIT}", ""),
    ("最近|过去|過去|直近|최근", rf"(?:最近|过去|過去|直近|최근)\s*{_ASIAN_COUNT}\s*{_UNIT}[間间]?", ""),
    (_WAY, rf"{_COUNT}\s+{_UNIT}\s+(?P<ago>ago)\b", ""),
    (_WAY, rf"\b(?P<ago>hace)\s+{_COUNT}\s+{_UNIT}", ""),
    (_WAY, rf"\b(?P<ago>il y a)\s+{_COUNT}\s+{_UNIT}", ""),
    (_WAY, rf"\b(?P<ago>vor)\s+{_COUNT}\s+{_UNIT}", ""),
    ("[前전]", rf"{_ASIAN_COUNT}\s*{_UNIT}\s*(?P<ago>以?前|전)", ""),
    (
        "周|星期|礼拜",
        rf"(?P<way>上|本|这|下)(?P<week>)个?(?=(?:周|星期|礼拜)[{_HAN_WEEKDAYS}天])",
        "",
    ),
    ("周|星期|礼拜", rf"(?:周|星期|礼拜)(?P<han_weekday>[{_HAN_WEEKDAYS}天])", ""),
    (_WAY, r"\b(?P<way>last|past|previous|this|next)\s+(?P<unit>day|week|month|year)\b", ""),
    (_WORD, rf"(?P<word>{_any_of(_WORDS)})", ""),
    ("Q[1-4]", r"\bQ(?P<quarter>[1-4])\b(?!\s*\d)", _BEFORE_A_YEAR),
    (
        _NEXT,
        rf"\b(?:(?:on|for|im|am|el|la)\s+)?(?P<ahead>{_NEXT})\s+{_NAMED}(?!\w){_NOT_A_VERB}",
        "",
    ),
    ("que viene", rf"\b(?:(?:el|la|en)\s+)?{_NAMED}\s+(?P<ahead>que viene)\b", ""),
    (_LAST, rf"\b(?:(?:the|am|im|el|la)\s+)?(?P<back>{_LAST})\s+{_NAMED}(?!\w){_NOT_A_VERB}", ""),
    ("pasad|dernier", rf"\b(?:(?:el|le|la)\s+)?{_NAMED}\s+(?P<back>pasad[oa]|dernier)\b", ""),
    (_WORD, _WEEKDAY, _BEFORE_A_WEEKDAY),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_YEAR}-(?P<number>0[1-9]|1[0-2])(?![\d/-]|\.\w)", _BEFORE_A_YEAR),
    (_YEAR_DIGITS, rf"{_NOT_INSIDE}{_YEAR}(?![A-Za-z_%:/-]|[.,]\d){_COUNTED_THINGS}", _BEFORE_A_YEAR),
    (_SEASON_NAME, _SEASON, _BEFORE_A_MONTH),
    ("mars", r"(?:(?<=\ben )|(?<=\bdepuis )|(?<=\bavant )|(?<=\baprès )|(?<=\bentre ))(?P<month>mars)\b", ""),
    (_MONTH_NAME, rf"{_SURE_MONTH}(?!\w){_NOT_A_VERB}", _BEFORE_A_MONTH),
    (
        _MONTH_NAME,
        r"(?-i:(?P<month>may))(?=\s*(?:$|[^\w\s]|\d|(?:and|or|to|until|till|through|of|last|this)\b))",
        _BEFORE_A_MONTH,
    ),
)
"""What a text must contain for a rule to be tried, the rule, and the words it needs before it.

Rules that match more come first. Patterns are compiled on first use: most questions mention no time, and need
none.
"""
_SIGNS = tuple(dict.fromkeys(sign for sign, _, _ in _RULES))

_AHEAD = Pattern(
    r"\b(?:will|shall|won['’]t|going to|gonna|upcoming|coming up|plan(?:s|ned|ning)?|scheduled|due"
    r"|werde[nt]?|wird|geplant|plan(?:en|st|t)|vor(?:haben|habe|hast)|anstehen\w*|machen wir|mache ich"
    r"|v(?:oy|as?|amos|an) a|\w+(?:aré|ará|arán|aremos|eré|erá|erán|eremos|iré|irá|irán|iremos)"
    r"|plan(?:es|ead[oa]s?)|previst[oa]s?|pendientes?)\b|\w['’]ll\b"
    r"|将(?!军)|(?<![主重需必])要(?!求)|打算|计划|准备|安排|即将",
    re.IGNORECASE,
)
_BEHIND = Pattern(
    r"\b(?:was(?! (?:ist|mach|passier|steh|wird|werd))|were|had|did|have (?:i|we) (?!to)\w+ed"
    r"|war(?:en)?|hatten?|wurden?|haben? (?:ich|wir) .*\b(?-i:ge\w+(?:t|en))"
    r"|fue(?:ron)?|había\w*|hubo|hicimos|hice|tuv\w+|estaban?)\b|了|过|曾",
    re.IGNORECASE,
)
"""Words that show whether a text is about the future, and about the past; the latter win."""


def _is_undecided(hint: TimeHint) -> bool:
    """Return whether a hint may mean the last such time or the next."""
    return (
        hint.date is not None
        and hint.date.startswith("-")
        and hint.offset is None
        and hint.relation
        in (
            None,
            "during",
            "until",
            "before",
        )
    )


_FROM = r"(?<![\w-])(?:between|from|entre|desde|del?|zwischen|vo[nm]|从|從)\s*(?:the\s+|el\s+|dem\s+)?$"
_TO = (
    r"\s*(?:and|to|until|till|through|y|al?|hasta|und|bis|et|[-–~～]|到|至|から|부터|と)"
    r"\s*(?:the\s+|el\s+|zum\s+|dem\s+)?"
)


def _found(text: str) -> Iterator[_Found]:
    signs = {sign for sign in _SIGNS if _compiled(sign).search(text)}
    taken: list[tuple[int, int]] = []
    for sign, pattern, beside in _RULES:
        for match in _compiled(pattern).finditer(text) if sign in signs else ():
            if any(start < match.end() and match.start() < end for start, end in taken):
                continue
            if (hint := _hint(match)) is not None:
                taken.append(match.span())
                yield _Found(*match.span(), hint, beside)


def _single(text: str, one: _Found, free_from: int, free_to: int) -> TimeMention | None:
    """Return a single time, with its relation to the question; None if it is not one after all.

    Its own words lie between `free_from` and `free_to`.
    """
    start, end, hint = one.start, one.end, one.hint
    if before := _ending(_BEFORE, text, free_from, start):
        start, hint = start - len(before.group()), replace(hint, relation=_relation(before))
    elif after := _compiled(_AFTER).match(text, end, free_to):
        end, hint = after.end(), replace(hint, relation=_relation(after))
    elif one.beside and text.strip(" ?.!") != text[start:end]:
        word = _ending(rf"(?<![\w-])(?:{one.beside})\b{_FILLER}$", text, free_from, start)
        if word is None:
            return None
        start -= len(word.group())
    return TimeMention(start=start, end=end, hint=replace(hint, phrase=text[start:end].lower()))


def _stretch(text: str, one: _Found, other: _Found, free_from: int) -> TimeMention | None:
    """Return the time from `one` to `other`, if the words between and before them say so."""
    first, last = one.hint.date, other.hint.until or other.hint.date
    if first is None or last is None or not _compiled(_TO).fullmatch(text, one.end, other.start):
        return None
    opening = _ending(_FROM, text, free_from, one.start)
    if opening is None and (
        (one.beside and other.beside)
        or text[one.end : other.start].strip().lower() in ("and", "y", "und", "et", "と")
    ):
        return None
    if first.startswith("--") and not last.startswith("-"):
        first = last[:4] + first[1:]
    start = one.start - len(opening.group()) if opening else one.start
    hint = TimeHint(
        phrase=text[start : other.end].lower(), type="absolute", date=first, until=last, relation="during"
    )
    return TimeMention(start=start, end=other.end, hint=hint)


def _ending(pattern: str, text: str, free_from: int, end: int) -> re.Match[str] | None:
    """Match `text` right before `end`, but not before `free_from`."""
    return _compiled(pattern).search(text, max(free_from, end - LONGEST_PREPOSITION), end)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _relation(match: re.Match[str]) -> TimeRelation:
    name = (match.lastgroup or "").replace("_", "-")
    return next(relation for relation in _RELATIONS if relation == name)


_SAME_LETTER = dict.fromkeys(map(ord, "\u0130\u0131"), "i")
"""What else a case-insensitive pattern matches as an i: the Turkish ones."""


def _hint(match: re.Match[str]) -> TimeHint | None:
    """Turn a match into a hint; the phrase is filled in once its surroundings are known."""
    said = {
        name: value.translate(_SAME_LETTER).casefold() for name, value in match.groupdict().items() if value
    }
    if "han" in said:
        said["count"] = str(_han_number(said["han"]))
    if "week" in match.groupdict() and match["week"] is not None:
        return _counted("week", _DIRECTION[said["way"]], is_span=False)
    if "word" in said:
        return _counted(*_WORDS[said["word"]], is_span=False)
    if "unit" in said:
        count = said.get("count", "1")
        number = int(count) if count.isdecimal() else _NUMBERS[count]
        return _counted(
            _UNITS[said["unit"]], number * _DIRECTION[said.get("way", "last")], is_span="ago" not in said
        )
    offset = -1 if "back" in said else 1 if "ahead" in said else None
    if "season" in said:
        return replace(_season(_SEASONS[said["season"]], said.get("year", "-")), offset=offset)
    named = _date(said)
    return TimeHint(phrase="", type="absolute", date=named, offset=offset) if named else None


def _season(month: int, year: str) -> TimeHint:
    last = f"{year}-{month + 2:02}" if month < 12 else f"{year if year == '-' else int(year) + 1}-02"
    return TimeHint(phrase="", type="absolute", date=f"{year}-{month:02}", until=last, relation="during")


def _counted(unit: TimeUnit, offset: int, *, is_span: bool) -> TimeHint:
    relation: TimeRelation | None = "during" if abs(offset) > 1 and not is_span else None
    return TimeHint(phrase="", type=unit, unit=unit, offset=offset, relation=relation)


def _date(said: Mapping[str, str]) -> str | None:
    """Return the date in a match, in the format of `TimeHint.date`; None if there is no such day."""
    year = said.get("year", "-")
    if "weekday" in said:
        return f"-W-{_WEEKDAYS[said['weekday']]}"
    if "han_weekday" in said:
        return f"-W-{_HAN_WEEKDAYS.index(said['han_weekday'].replace('天', '日')) + 1}"
    if "han_month" in said:
        renamed = {"han_month": "number", "han_day": "day"}
        said = {renamed[name]: str(_han_number(said[name])) for name in renamed.keys() & said.keys()}
    if "quarter" in said or "nth" in said:
        return f"{year}-Q{said.get('quarter') or _QUARTERS.index(said['nth']) + 1}"
    if "calendar_week" in said:
        return f"{year}-W{int(said['calendar_week']):02}"
    if "month" not in said and "number" not in said:
        return year
    month = _MONTHS[said["month"]] if "month" in said else int(said["number"])
    day = int(said.get("day", 1))
    if not _exists(int(year) if year != "-" else 2000, month, day):
        return None
    return f"{year}-{month:02}-{day:02}" if "day" in said else f"{year}-{month:02}"


def _han_number(text: str) -> int:
    """Parse a number below 100, such as 三, 十二 and 三十一."""
    tens, ten, ones = text.replace("两", "二").rpartition("十")
    number = _HAN_DIGITS.index(ones) + 1 if ones and ones in _HAN_DIGITS else 0
    return number + (10 * (_HAN_DIGITS.index(tens) + 1 if tens and tens in _HAN_DIGITS else 1) if ten else 0)


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True
