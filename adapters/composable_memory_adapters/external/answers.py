"""Reads what a foreign memory answers: where its results are, and what their fields mean (pure).

Where the settings do not say it, the names that such memories commonly use are tried, so that most need no
mapping. Texts are data: nothing in them is followed, and no answer can make a result larger than its limits.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field, JsonValue

from composable_memory.config.base_model import SettingsModel
from composable_memory.query.calibration import Calibration, calibrate
from composable_memory.types import MemorySearchResult, SupportingFact
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_adapters.text.relevance import absolute_score, rarity
from composable_memory_adapters.text.snippets import SnippetMaker
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_RESULTS = 200
"""More results of one answer are not looked at."""
MAX_CHARACTERS = 20_000
"""What is kept of the text of a result."""
MAX_NAME = 300
TEXT_WEIGHT = 0.7
_DEPTH = 4

_LISTS = (
    "results memories hits items data documents entities facts observations matches passages chunks nodes"
    " edges episodes messages result records points"
).split()
_NAMES: Mapping[str, Sequence[str]] = {
    "text": (
        "text content memory fact snippet chunk body passage page_content observations observation summary"
        " description value message"
    ).split(),
    "path": "path file_path filepath file permalink uri url source".split(),
    "title": "title name heading".split(),
    "id": "id uuid _id key memory_id".split(),
    "score": "score _score similarity relevance relevance_score _rankingScore text_match".split(),
    "start_line": "start_line startLine line line_start".split(),
    "end_line": "end_line endLine line_end".split(),
    "valid_from": "valid_from validFrom valid_at".split(),
    "valid_to": "valid_to validTo invalid_at".split(),
    "date": "date created_at createdAt updated_at timestamp".split(),
}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class FieldNames(SettingsModel):
    """The field of a result that holds each of these, such as `memory` or `metadata.file.path`."""

    text: str | None = Field(default=None, description="The text of the passage.")
    path: str | None = Field(default=None, description="The file or address it is from.")
    title: str | None = Field(default=None, description="Its title.")
    id: str | None = Field(default=None, description="What names it for good, where it has no path.")
    score: str | None = Field(default=None, description="How well it answers.")
    start_line: str | None = Field(default=None, description="The first line, counted from 1.")
    end_line: str | None = Field(default=None, description="The last line.")
    valid_from: str | None = Field(default=None, description="Since when it holds.")
    valid_to: str | None = Field(default=None, description="Until when it held.")
    date: str | None = Field(default=None, description="When it was written.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an answer was read as; `dropped` counts the results without a text.

    `complaint` is what it says instead of results.
    """

    results: tuple[MemorySearchResult, ...]
    dropped: int = 0
    complaint: str = ""
    found_at: str | None = None
    """Where the results were; None where there are none."""


def read_answer(
    answer: JsonValue,
    query: KeywordQuery,
    *,
    backend_id: str,
    results_at: str | None,
    names: FieldNames,
    score_is: Literal["similarity", "distance"] = "similarity",
) -> Reading:
    """Return the results in an answer, best first; equal places are taken once."""
    found_at, rows = (results_at, _rows(pick(answer, results_at))) if results_at else _find(answer)
    snippets = SnippetMaker(query)
    results: dict[str, MemorySearchResult] = {}
    scores: dict[str, float | None] = {}
    dropped = 0
    for row in rows[:MAX_RESULTS]:
        text = _text(_value(row, "text", names))
        if not text:
            dropped += 1
            continue
        result = _result(row, text, snippets, names, backend_id)
        if result.key not in results:
            results[result.key] = result
            scores[result.key] = _score(_value(row, "score", names), score_is)
    return Reading(
        results=_ranked(results, scores),
        dropped=dropped,
        complaint="" if rows else _complaint(answer),
        found_at=found_at if rows else None,
    )


def found_names(answer: JsonValue, results_at: str | None) -> tuple[str, dict[str, str]]:
    """Return where the results of an answer are, and the name of each field that was found by itself."""
    found_at, rows = (results_at, _rows(pick(answer, results_at))) if results_at else _find(answer)
    names: dict[str, str] = {}
    for row in rows[:MAX_RESULTS]:
        for field in _NAMES:
            if field not in names and isinstance(row, dict) and (name := _common(row, field)[0]):
                names[field] = name
    return found_at, names


def joined(readings: Sequence[Reading]) -> Reading:
    """Return the answers to the words of a question as one: first what has most of them, and rare ones.

    A word counts the less the more results it has; one without any keeps the scores of the others down.
    """
    if len(readings) == 1:
        return readings[0]
    weights = [1 / (1 + math.log(max(1, len(reading.results)))) for reading in readings]
    results: dict[str, MemorySearchResult] = {}
    scores: dict[str, float] = {}
    for reading, weight in zip(readings, weights, strict=True):
        for result in reading.results:
            results.setdefault(result.key, result)
            scores[result.key] = scores.get(result.key, 0.0) + weight / sum(weights)
    order = sorted(results, key=lambda key: -scores[key])
    return Reading(
        results=tuple(replace(results[key], score=min(1.0, scores[key])) for key in order),
        dropped=sum(reading.dropped for reading in readings),
        complaint=next((reading.complaint for reading in readings if reading.complaint), ""),
        found_at=next((reading.found_at for reading in readings if reading.found_at is not None), None),
    )


def compared(reading: Reading, query: KeywordQuery) -> Reading:
    """Return results scored as the builtin memory scores: 0.7 by the words of a question, 0.3 by their own.

    What a foreign score stands for nobody knows, and a place says nothing at all of a list in which nothing
    answers. A word counts the less the more of the results have it.
    """
    results, terms = reading.results, range(len(query.terms))
    if not results or not terms:
        return reading
    snippets = SnippetMaker(query)
    has = [snippets.words_in(f"{result.title}\n{result.text}") for result in results]
    weights = [rarity(len(has), sum(term in words for words in has)) for term in terms]
    shares = [sum(weights[term] for term in words) for words in has]
    said = [absolute_score(share, scale=sum(weights)) for share in shares]
    scored = [
        replace(result, score=TEXT_WEIGHT * text + (1 - TEXT_WEIGHT) * result.score)
        for result, text in zip(results, said, strict=True)
    ]
    return replace(reading, results=tuple(sorted(scored, key=lambda result: -result.score)))


def pick(value: JsonValue, path: str) -> JsonValue:
    """Return what is at a path such as `data.results` or `0.hits`; None where there is nothing.

    A list in between is looked through: `groups.items` are the items of all groups.
    """
    for part in path.split(".") if path else ():
        if isinstance(value, list) and not part.isdigit():
            inner = [each.get(part) for each in value if isinstance(each, dict)]
            value = [one for each in inner for one in (each if isinstance(each, list) else [each])]
        elif isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _complaint(answer: JsonValue) -> str:
    """Return what an answer without results says: a text where they were expected, or an `error`."""
    said = answer.get("error") if isinstance(answer, dict) else answer
    return said.strip() if isinstance(said, str) else ""


def _rows(value: JsonValue) -> list[JsonValue]:
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _find(answer: JsonValue, depth: int = _DEPTH) -> tuple[str, list[JsonValue]]:
    """Return the first list of results in an answer and where it is; a text alone is one result."""
    if isinstance(answer, list):
        return "", answer
    if isinstance(answer, str):
        return "", [answer] if answer.strip() else []
    if not isinstance(answer, dict) or not depth:
        return "", []
    for name in _LISTS:
        value = answer.get(name)
        if isinstance(value, list):
            return name, value
        if isinstance(value, dict):
            inner, rows = _find(value, depth - 1)
            if rows:
                return f"{name}.{inner}" if inner else name, rows
    has_text = any(isinstance(answer.get(name), str) for name in _NAMES["text"])
    return "", [answer] if has_text else []


def _value(row: JsonValue, field: str, names: FieldNames) -> JsonValue:
    """Return a field of a result by its configured name, or by the first common one, up to a level deeper."""
    if not isinstance(row, dict):
        return row if field == "text" else None
    name = getattr(names, field)
    return _common(row, field)[1] if name is None else pick(row, name)


def _common(row: Mapping[str, JsonValue], field: str) -> tuple[str | None, JsonValue]:
    """Return the first common name of a field that a result has, up to a level deeper, and its value."""
    inner = [(f"{name}.", one) for name, one in row.items() if isinstance(one, dict)]
    for prefix, level in [("", row), *inner]:
        for common in _NAMES[field]:
            if (value := level.get(common)) not in (None, "", []) and not isinstance(value, dict):
                return f"{prefix}{common}", value
    return None, None


def _text(value: JsonValue) -> str:
    if isinstance(value, list):
        value = "\n".join(part for part in map(_text, value) if part)
    return value.strip()[:MAX_CHARACTERS] if isinstance(value, str) else ""


def _result(
    row: JsonValue, text: str, snippets: SnippetMaker, names: FieldNames, backend_id: str
) -> MemorySearchResult:
    first = _line(_value(row, "start_line", names))
    last = max(first, _line(_value(row, "end_line", names)))
    shown = snippets.snippet(text)
    place = _name(_value(row, "path", names)) or _name(_value(row, "id", names)) or _digest(text)
    since, until = (_moment(_value(row, name, names)) for name in ("valid_from", "valid_to"))
    written = _moment(_value(row, "date", names))
    return MemorySearchResult(
        path=f"{backend_id}/{place}",
        start_line=first,
        end_line=last,
        score=0.0,
        snippet=shown.text,
        highlights=shown.highlights,
        text=text,
        title=_name(_value(row, "title", names)),
        metadata={"date": written.date().isoformat()} if written else {},
        facts=(SupportingFact(text=shown.text, valid_from=since, valid_to=until),) if since or until else (),
    )


def _ranked(
    results: Mapping[str, MemorySearchResult], scores: Mapping[str, float | None]
) -> tuple[MemorySearchResult, ...]:
    """Return results with scores in [0, 1], best first: their own if all have one, else by their places."""
    given = [score for score in scores.values() if score is not None]
    order = [*results]
    if len(given) == len(order):
        if given and given[0] < 0.0 and given == sorted(given):  # as BM25 of SQLite: the lowest is the best
            scores = {key: -score for key, score in zip(order, given, strict=True)}
        order.sort(key=lambda key: -(scores[key] or 0.0))
        sound = [scores[key] or 0.0 for key in order]
        usable = bool(sound) and sound[-1] >= 0.0 and 0.0 < sound[0] <= 1.0
        values = sound if usable else calibrate(sound, Calibration.AUTO, absolute=False)[0]
    else:
        values = calibrate([0.0] * len(order), Calibration.RANK)[0]
    return tuple(replace(results[key], score=score) for key, score in zip(order, values, strict=True))


def _score(value: JsonValue, score_is: Literal["similarity", "distance"]) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return 1 / (1 + max(0.0, value)) if score_is == "distance" else float(value)


def _line(value: JsonValue) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 0


def _name(value: JsonValue) -> str:
    """Return a name without what would make it another path, or steer a terminal."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return ""
    bare = "".join(char for char in value.replace("\\", "/") if char.isprintable())
    parts = [part for part in bare.strip().split("/") if part not in ("", ".", "..")]
    return "/".join(parts)[:MAX_NAME]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _moment(value: JsonValue) -> datetime | None:
    """Return a time given as ISO 8601 or as seconds since 1970, in UTC where no zone is named."""
    try:
        if isinstance(value, str) and _DAY.match(value):
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None
