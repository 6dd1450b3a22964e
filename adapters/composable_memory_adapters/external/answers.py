"""Reads what a foreign memory answers: where its results are, and what their fields mean (pure).

Where the settings do not say it, the names that such memories commonly use are tried, so that most need no
mapping. Texts are data: nothing in them is followed, and no answer can make a result larger than its limits.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from typing import Literal, cast

from pydantic import Field, JsonValue
from pydantic_core import from_json

from composable_memory.config.base_model import SettingsModel
from composable_memory.paths import FOREIGN
from composable_memory.query.calibration import Calibration, calibrate
from composable_memory.types import MemorySearchResult, SupportingFact
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_adapters.text.snippets import SnippetMaker
from composable_memory_adapters.text.text_scores import StemCache, score
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_RESULTS = 200
"""More results of one answer are not looked at."""
MAX_CHARACTERS = 20_000
"""What is kept of the text of a result."""
MAX_READ = 1_000_000
"""What is kept of a text that is read whole."""
MAX_NAME = 300
MAX_SCORE = 1e300
"""A larger score is none."""
MAX_NUMBER = 10**20
"""Larger numbers are neither lines nor names."""
MOST_KEYS = 12
"""So many keys are told of an answer that nobody could read."""
TEXT_WEIGHT = 0.7
MAX_SCORED = 6_000
"""Characters of a text that are scored, so that the longest answer takes 0.1 s."""
_DEPTH = 4

_LISTS = (
    "results memories hits items data documents entities facts observations matches passages chunks nodes"
    " edges episodes messages result records points"
).split()
_NAMES: Mapping[str, Mapping[str, None]] = {
    field_name: dict.fromkeys(common)
    for field_name, common in {
        "text": (
            "text content memory fact snippet chunk body passage page_content observations observation"
            " summary description value message"
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
        "type": "type kind".split(),
    }.items()
}
"""By field, the common names for it, the best first."""
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
    type: str | None = Field(default=None, description="Its type, for the filter of this name.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an answer was read as: its results, and what is wrong with the rest of it.

    `dropped` counts the results without a text, `bad_scores` the scores that are none. `complaint` is what it
    says instead of results. `keys` are those of an answer in which no results were found, or of a result
    without a text.
    """

    results: tuple[MemorySearchResult, ...]
    dropped: int = 0
    bad_scores: int = 0
    complaint: str = ""
    keys: str | None = None
    found_at: str | None = None
    """Where the results were; None where there are none."""
    places: Mapping[str, str] = field(default_factory=dict)
    """The path or id of each result as the answer has it, by its path here."""


def read_answer(
    answer: JsonValue,
    query: KeywordQuery,
    *,
    backend_id: str,
    results_at: str | None,
    names: FieldNames,
    score_is: Literal["similarity", "distance"] = "similarity",
    as_of: datetime | None = None,
) -> Reading:
    """Return the results in an answer, best first; equal places are taken once.

    `as_of` is the time that the question is about: whether a result holds then is said with it.
    """
    found_at, rows = _found(answer, results_at)
    if rows is not None:
        rows = [*rows[:MAX_RESULTS], *_relations(answer)[:MAX_RESULTS]]
    snippets = SnippetMaker(query)
    results: dict[str, MemorySearchResult] = {}
    scores: dict[str, float | None] = {}
    places: dict[str, str] = {}
    unread, bad_scores = [], 0
    for row in rows or ():
        fields = _fields(row, names)
        text = _text(fields.get("text"))
        if not text:
            unread.append(row)
            continue
        place = _place(fields)
        path = f"{backend_id}{FOREIGN}{_name(place) or _digest(text)}"
        result = _result(fields, text, path, snippets, as_of)
        if result.key not in results:
            given = fields.get("score")
            results[result.key] = result
            scores[result.key] = score = _score(given, score_is)
            bad_scores += score is None and given is not None
            places[result.path] = place
    complaint = "" if rows else _complaint(answer)
    return Reading(
        results=_ranked(results, scores),
        dropped=len(unread),
        bad_scores=bad_scores,
        complaint=complaint,
        keys=_keys(unread[0]) if unread else _keys(answer) if rows is None and not complaint else None,
        found_at=found_at if rows else None,
        places=places,
    )


def found_names(answer: JsonValue, results_at: str | None) -> tuple[str, dict[str, str]]:
    """Return where the results of an answer are, and the name of each field that was found by itself."""
    found_at, rows = _found(answer, results_at)
    names: dict[str, str] = {}
    for row in (rows or ())[:MAX_RESULTS]:
        for name_of in _NAMES:
            if name_of not in names and isinstance(row, dict) and (name := _common(_levels(row), name_of)[0]):
                names[name_of] = name
    return found_at, names


def text_of(answer: JsonValue, names: FieldNames) -> str:
    """Return the whole text in the answer of a tool that reads one thing; empty where there is none."""
    found = _find(answer)
    rows = [*found[1], *_relations(answer)] if found else []
    return "\n\n".join(filter(None, (_text(_fields(row, names).get("text"), MAX_READ) for row in rows)))


def parsed(data: bytes | str) -> JsonValue:
    """Return what JSON says; halves of surrogate pairs and bytes that are no UTF-8 become question marks.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return cast("JsonValue", from_json(data))
    except ValueError:
        return cast("JsonValue", from_json(sound_json(data)))


def sound_json(data: bytes | str) -> bytes:
    """Return JSON without what stricter readers refuse.

    Raises:
        ValueError: it is no JSON.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


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
        bad_scores=sum(reading.bad_scores for reading in readings),
        complaint=next((reading.complaint for reading in readings if reading.complaint), ""),
        keys=next((reading.keys for reading in readings if reading.keys is not None), None),
        found_at=next((reading.found_at for reading in readings if reading.found_at is not None), None),
        places={path: place for reading in readings for path, place in reading.places.items()},
    )


def compared(reading: Reading, query: KeywordQuery, stems: StemCache | None = None) -> Reading:
    """Return results scored as the builtin memory scores: 0.7 by their words, 0.3 by their own scores.

    What a foreign score stands for nobody knows, and a place says nothing at all of a list in which nothing
    answers. A word counts the less the more of the results have it.
    """
    results = reading.results
    if not results or not query.terms:
        return reading
    said = score(query, [f"{one.title}\n{one.text[:MAX_SCORED]}" for one in results], stems)
    scored = [
        replace(result, score=TEXT_WEIGHT * text.words + (1 - TEXT_WEIGHT) * result.score)
        for result, text in zip(results, said, strict=True)
    ]
    return replace(reading, results=tuple(sorted(scored, key=lambda result: -result.score)))


def pick(value: JsonValue, path: str) -> JsonValue:
    """Return what is at a path such as `data.results` or `0.hits`; None where there is nothing.

    A list in between is looked through: `groups.items` are the items of all groups.
    """
    for part in path.split(".") if path else ():
        if isinstance(value, list) and not part.isdigit():
            inner = [each[part] for each in value if isinstance(each, dict) and part in each]
            found = [one for each in inner for one in (each if isinstance(each, list) else [each])]
            value = found if inner or not value else None
        elif isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _complaint(answer: JsonValue) -> str:
    """Return what an answer without results says: a text where they were expected, or an `error`."""
    said = answer.get("error") if isinstance(answer, dict) else answer
    return said.strip() if isinstance(said, str) else ""


def _keys(answer: JsonValue) -> str:
    """Return the keys of an answer, those within another one behind it and a dot."""
    if not isinstance(answer, dict):
        return f"none (it is a {type(answer).__name__})"
    names = [
        f"{name}.{inner}" if inner else name
        for name, value in answer.items()
        for inner in (value if isinstance(value, dict) and value else [""])
    ]
    told = ", ".join(_name(name) for name in names[:MOST_KEYS])
    return f"{told}, …" if len(names) > MOST_KEYS else told


def _found(answer: JsonValue, results_at: str | None) -> tuple[str, list[JsonValue] | None]:
    """Return where the results of an answer are, and the results; None where nothing says that it has any."""
    if not results_at:
        return _find(answer) or ("", [] if answer in (None, "", {}) else None)
    folder, _, name = results_at.rpartition(".")
    rows = pick(answer, results_at)
    if rows is None:  # some say null for an empty list
        around = pick(answer, folder)
        is_empty = not answer or (isinstance(around, dict) and name in around)
        return results_at, [] if is_empty else None
    return results_at, rows if isinstance(rows, list) else [rows] if rows != "" else []


def _relations(answer: JsonValue) -> list[JsonValue]:
    """Return what a graph says of two entities, each as a sentence."""
    given = answer.get("relations") if isinstance(answer, dict) else None
    rows = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    said = [(row.get("from"), str(row.get("relationType")).replace("_", " "), row.get("to")) for row in rows]
    return [f"{one} {verb} {other}" for one, verb, other in said if one and other]


def _find(answer: JsonValue, depth: int = _DEPTH) -> tuple[str, list[JsonValue]] | None:
    """Return the first list of results in an answer and where it is; a text alone is one result."""
    if isinstance(answer, list):
        return "", answer
    if isinstance(answer, str):
        return "", [answer] if answer.strip() else []
    if not isinstance(answer, dict) or not depth:
        return None
    empty = None
    for name in _LISTS:
        value = answer.get(name)
        if isinstance(value, list):
            return name, value
        if isinstance(value, dict) and (found := _find(value, depth - 1)):
            inner, rows = found
            if rows:
                return f"{name}.{inner}" if inner else name, rows
            empty = empty or found
    has_text = any(isinstance(answer.get(name), str) for name in _NAMES["text"])
    return ("", [answer]) if has_text else empty


def _fields(row: JsonValue, names: FieldNames) -> dict[str, JsonValue]:
    """Return the fields of a result by their configured names, or by the first common ones.

    An empty name stands for nothing.
    """
    if not isinstance(row, dict):
        return {"text": row}
    levels = _levels(row)
    return {
        field_name: _common(levels, field_name)[1] if configured is None else pick(row, configured)
        for field_name in _NAMES
        if (configured := getattr(names, field_name)) != ""
    }


def _levels(row: Mapping[str, JsonValue]) -> list[tuple[str, Mapping[str, JsonValue]]]:
    """Return a result and what is a level deeper in it, with what stands before their names."""
    return [("", row), *((f"{name}.", one) for name, one in row.items() if isinstance(one, dict))]


def _common(
    levels: Sequence[tuple[str, Mapping[str, JsonValue]]], field_name: str
) -> tuple[str | None, JsonValue]:
    """Return the first common name of a field that a result has, and its value."""
    common = _NAMES[field_name]
    for prefix, level in levels:
        if not common.keys().isdisjoint(level):
            for name in common:
                if (value := level.get(name)) not in (None, "", []) and not isinstance(value, dict):
                    return f"{prefix}{name}", value
    return None, None


def _text(value: JsonValue, most: int = MAX_CHARACTERS) -> str:
    if isinstance(value, list):
        value = "\n".join(filter(None, (_text(part, most) for part in value)))
    if not isinstance(value, str):
        return ""
    text = value.strip()[:most]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _place(fields: Mapping[str, JsonValue]) -> str:
    """Return what names a result in the memory that it is from."""
    return next((str(fields[one]) for one in ("path", "id") if _name(fields.get(one))), "")


def _result(
    fields: Mapping[str, JsonValue],
    text: str,
    path: str,
    snippets: SnippetMaker,
    as_of: datetime | None,
) -> MemorySearchResult:
    first = _line(fields.get("start_line"))
    last = max(first, _line(fields.get("end_line")))
    shown = snippets.snippet(text)
    since, until, written = (_moment(fields.get(one)) for one in ("valid_from", "valid_to", "date"))
    known = {
        "valid_at": since.isoformat() if since else "",
        "date": written.date().isoformat() if written else "",
        "type": _name(fields.get("type")),
    }
    holds = as_of is None or ((since is None or since <= as_of) and (until is None or as_of < until))
    fact = SupportingFact(text=shown.text, valid_from=since, valid_to=until, as_of=as_of, holds=holds)
    return MemorySearchResult(
        path=path,
        start_line=first,
        end_line=last,
        score=0.0,
        snippet=shown.text,
        highlights=shown.highlights,
        text=text,
        title=_name(fields.get("title")),
        metadata={name: value for name, value in known.items() if value},
        facts=(fact,) if since or until else (),
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= MAX_SCORE:
        return None
    return 1 / (1 + max(0.0, value)) if score_is == "distance" else float(value)


def _line(value: JsonValue) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < MAX_NUMBER:
        return 0
    return number


def _name(value: JsonValue) -> str:
    """Return a name without what would make it another path, or steer a terminal."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_NUMBER:
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
