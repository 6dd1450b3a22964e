"""Reads the answers of foreign memories: finds their results and maps their fields (pure).

If the settings do not say where these are, the names that such memories commonly use are tried, so that most
need no mapping. Texts are data: no instruction in them is followed, and no answer can exceed the size limits.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, cast

from pydantic import Field, JsonValue
from pydantic_core import from_json

from composable_memory.config.settings import SettingsModel
from composable_memory.json_documents import moment_in
from composable_memory.paths import FOREIGN
from composable_memory.query.calibration import Calibration, calibrate
from composable_memory.types import MemorySearchResult, SupportingFact
from composable_memory_adapters.text.query_terms import KeywordQuery
from composable_memory_adapters.text.relevance import StemCache, score
from composable_memory_adapters.text.snippets import Snippet, SnippetMaker
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_RESULTS = 200
"""How many results of one answer are read."""
MAX_CHARACTERS = 20_000
"""How much of a result's text is kept."""
MAX_READ = 1_000_000
"""How much of a text is kept when it is read whole."""
SHORT = 16 * 2**10
"""A shorter answer, in bytes, is parsed in place: handing it to a thread takes 0.1 ms, many times as long."""
AT_ONCE = 10_000
"""A shorter answer, in characters, is read in place, which takes a millisecond, or five for Chinese."""
MAX_NAME = 300
MAX_SCORE = 1e300
"""A larger score is treated as missing."""
MAX_NUMBER = 10**20
"""Larger numbers are accepted neither as lines nor as names."""
MOST_KEYS = 12
"""How many keys of an unreadable answer to report."""
TEXT_WEIGHT = 0.7
LARGER = 2
"""How many times larger than its results the foreign memory is assumed to be, to estimate how rare words are.

The results were found by these words: counted among them alone, common words would be worth nothing.
"""
MAX_SCORED = 6_000
"""How many characters of a text are scored, so that the longest answer takes 0.1 s."""
_DEPTH = 4

_LISTS = (
    "results memories hits items data documents entities facts observations matches passages chunks nodes"
    " edges episodes messages result records points"
).split()
_NAMES = {
    "text": (
        "text content memory fact snippet chunk body passage page_content observations observation"
        " summary preview excerpt description value message"
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
}
"""The common names of each field, best first."""
_FIELDS = {name: (field, rank) for field, names in _NAMES.items() for rank, name in enumerate(names)}
"""The field of each common name, and its rank among that field's names."""


class FieldNames(SettingsModel):
    """The field of a result that holds each of these, such as `memory` or `metadata.file.path`."""

    text: str | None = Field(default=None, description="The text of the passage.")
    path: str | None = Field(default=None, description="The file or address it comes from.")
    title: str | None = Field(default=None, description="Its title.")
    id: str | None = Field(default=None, description="Its permanent id, if it has no path.")
    score: str | None = Field(default=None, description="Its score.")
    start_line: str | None = Field(default=None, description="The first line, counted from 1.")
    end_line: str | None = Field(default=None, description="The last line.")
    valid_from: str | None = Field(default=None, description="Since when it is true.")
    valid_to: str | None = Field(default=None, description="Until when it was true.")
    date: str | None = Field(default=None, description="When it was written.")
    type: str | None = Field(default=None, description="Its type, for the filter of this name.")


@dataclass(slots=True, kw_only=True)
class Hit:
    """A result as it was read. Its score may change before a `MemorySearchResult` is made of it."""

    path: str
    place: str
    """Its path or id, exactly as in the answer."""
    text: str
    title: str
    lines: tuple[int, int]
    score: float | None
    fields: Mapping[str, JsonValue]

    @property
    def key(self) -> tuple[str, tuple[int, int]]:
        """Return what identifies it within one answer."""
        return self.path, self.lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The results read from an answer, best first, and what is wrong with the rest.

    `dropped` counts the results without a text, `bad_scores` those with an unusable score. `complaint` is
    what the answer says instead of results. `keys` are the keys of an answer without recognisable results, or
    of a result without a text.
    """

    hits: Sequence[Hit]
    dropped: int = 0
    bad_scores: int = 0
    complaint: str = ""
    keys: str | None = None
    found_at: str | None = None
    """Where the results were; None if there are none."""


def read_answer(
    answer: JsonValue,
    *,
    backend_id: str,
    results_at: str | None,
    names: FieldNames,
    score_is: Literal["similarity", "distance"] = "similarity",
    empty: str = "",
) -> Reading:
    """Return the results in an answer, best first; with the same path and lines, only the first.

    A text that begins with `empty` means that there are none.
    """
    said = _common(answer)[1].get("text") if isinstance(answer, dict) else answer
    if empty and isinstance(said, str) and said.strip().casefold().startswith(empty.casefold()):
        answer = ""
    found_at, rows = _found(answer, results_at)
    if rows is not None:
        rows = [*rows[:MAX_RESULTS], *_relations(answer)[:MAX_RESULTS]]
    configured = {name: path for name, path in names if path is not None}
    hits: dict[object, Hit] = {}
    unread, bad_scores = [], 0
    for row in rows or ():
        fields = _fields(row, configured)
        if not (text := _text(fields.get("text"))):
            unread.append(row)
            continue
        hit = _hit(fields, text, backend_id, score_is)
        if hits.setdefault(hit.key, hit) is hit:
            bad_scores += hit.score is None and fields.get("score") is not None
    complaint = "" if rows else _complaint(answer)
    return Reading(
        hits=_ranked([*hits.values()]),
        dropped=len(unread),
        bad_scores=bad_scores,
        complaint=complaint,
        keys=_keys(unread[0]) if unread else _keys(answer) if rows is None and not complaint else None,
        found_at=found_at if rows else None,
    )


def is_small(answer: JsonValue) -> bool:
    """Return whether an answer is small enough to be read on the event loop."""
    left, parts = AT_ONCE, [answer]
    while parts and left > 0:
        match parts.pop():
            case str(text):
                left -= len(text)
            case list(items):
                left -= len(items)
                parts += items
            case dict(fields):
                left -= 10 * len(fields)
                parts += fields.values()
    return left > 0


def results_of(
    hits: Sequence[Hit],
    query: KeywordQuery,
    as_of: datetime | None = None,
) -> tuple[MemorySearchResult, ...]:
    """Convert hits to results, each with the snippet that best answers the query.

    `as_of` is the time that the query is about; each fact says whether it holds then.
    """
    snippets = SnippetMaker(query)
    return tuple(_result(hit, snippets.snippet(hit.text), as_of) for hit in hits)


def found_names(answer: JsonValue, results_at: str | None) -> tuple[str, dict[str, str]]:
    """Return the path to the results of an answer, and the detected name of each field."""
    found_at, rows = _found(answer, results_at)
    names: dict[str, str] = {}
    for row in (rows or ())[:MAX_RESULTS]:
        if isinstance(row, dict):
            names = _common(row)[0] | names
    return found_at, names


def text_of(answer: JsonValue, names: FieldNames) -> str:
    """Return the whole text in the answer of a tool that reads one thing; empty if it has none."""
    found = _find(answer)
    configured = {name: path for name, path in names if path is not None}
    rows = [*found[1], *_relations(answer)] if found else []
    return "\n\n".join(filter(None, (_text(_fields(row, configured).get("text"), MAX_READ) for row in rows)))


def parsed(data: bytes | str) -> JsonValue:
    """Parse JSON, replacing lone surrogates and bytes that are not UTF-8 by question marks.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return cast("JsonValue", from_json(data))
    except ValueError:
        return cast("JsonValue", from_json(sound_json(data)))


def sound_json(data: bytes | str) -> bytes:
    """Return JSON with whatever stricter parsers would reject removed.

    Raises:
        ValueError: it is not JSON.
    """
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def joined(readings: Sequence[Reading]) -> Reading:
    """Merge the answers to a query's single words; results with more and rarer words come first.

    The more results a word has, the less it counts; a word without any lowers the scores of all.
    """
    if len(readings) == 1:
        return readings[0]
    weights = [1 / (1 + math.log(max(1, len(reading.hits)))) for reading in readings]
    hits: dict[object, Hit] = {}
    for reading, weight in zip(readings, weights, strict=True):
        for hit in reading.hits:
            known = hits.setdefault(hit.key, hit)
            known.score = (known.score or 0.0 if known is not hit else 0.0) + weight / sum(weights)
    for hit in hits.values():
        hit.score = min(1.0, hit.score or 0.0)
    return Reading(
        hits=_sorted(hits.values()),
        dropped=sum(reading.dropped for reading in readings),
        bad_scores=sum(reading.bad_scores for reading in readings),
        complaint=next((reading.complaint for reading in readings if reading.complaint), ""),
        keys=next((reading.keys for reading in readings if reading.keys is not None), None),
        found_at=next((reading.found_at for reading in readings if reading.found_at is not None), None),
    )


def compared(
    hits: Sequence[Hit],
    query: KeywordQuery,
    stems: StemCache | None = None,
) -> Sequence[Hit]:
    """Rescore hits as the builtin memory would: 0.7 by their words, 0.3 by their own scores.

    The meaning of a foreign score is unknown, and ranks say nothing at all if no result in the list is an
    answer. The more of the results have a word, the less it counts.
    """
    if not hits or not query.terms:
        return hits
    texts = [f"{hit.title}\n{hit.text[:MAX_SCORED]}" for hit in hits]
    said = score(query, texts, stems, times=LARGER)
    for hit, text in zip(hits, said, strict=True):
        hit.score = TEXT_WEIGHT * text.words + (1 - TEXT_WEIGHT) * (hit.score or 0.0)
    return _sorted(hits)


def pick(value: JsonValue, path: str) -> JsonValue:
    """Return the value at a path such as `data.results` or `0.hits`; None if there is nothing.

    A list on the way is mapped over: `groups.items` means the items of all groups.
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
    """Return the message of an answer without results: a text in place of results, or an `error`."""
    said = answer.get("error") if isinstance(answer, dict) else answer
    return said.strip() if isinstance(said, str) else ""


def _keys(answer: JsonValue) -> str:
    """List the keys of an answer; nested ones follow their parent's key and a dot."""
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
    """Return the path to an answer's results, and the results; None if it has no recognisable ones."""
    if not results_at:
        return _find(answer) or ("", [] if answer in (None, "", {}) else None)
    folder, _, name = results_at.rpartition(".")
    rows = pick(answer, results_at)
    if rows is None:  # some servers send null for an empty list
        around = pick(answer, folder)
        is_empty = not answer or (isinstance(around, dict) and name in around)
        return results_at, [] if is_empty else None
    return results_at, rows if isinstance(rows, list) else [rows] if rows != "" else []


def _relations(answer: JsonValue) -> list[JsonValue]:
    """Return a graph's relations between entities, each as a sentence."""
    given = answer.get("relations") if isinstance(answer, dict) else None
    rows = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    said = [(row.get("from"), str(row.get("relationType")).replace("_", " "), row.get("to")) for row in rows]
    return [f"{one} {verb} {other}" for one, verb, other in said if one and other]


def _find(answer: JsonValue, depth: int = _DEPTH) -> tuple[str, list[JsonValue]] | None:
    """Return the first list of results in an answer, and its path; a text alone is a single result."""
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


def _fields(row: JsonValue, configured: Mapping[str, str]) -> dict[str, JsonValue]:
    """Return a result's fields by their configured names, or else by the first common ones.

    An empty configured name means that there is no such field.
    """
    if not isinstance(row, dict):
        return {"text": row}
    fields = _common(row)[1]
    for name, path in configured.items():
        fields[name] = pick(row, path) if path else None
    return fields


def _common(row: Mapping[str, JsonValue]) -> tuple[dict[str, str], dict[str, JsonValue]]:
    """Return the names and values of a result's fields that have common names.

    Fields of the result itself take precedence over those one level deeper.
    """
    names: dict[str, str] = {}
    values: dict[str, JsonValue] = {}
    levels: list[tuple[str, Mapping[str, JsonValue]]] = [("", row)]
    for prefix, level in levels:  # grows while the first level is read
        ranks: dict[str, int] = {}
        for name, value in level.items():
            if isinstance(value, dict):
                if not prefix:
                    levels.append((f"{name}.", value))
            elif name in _FIELDS and (value or value in (0, False)):
                field, rank = _FIELDS[name]
                if rank < ranks.get(field, rank + (field not in names)):
                    ranks[field], names[field], values[field] = rank, f"{prefix}{name}", value
    if "entityType" in row and "id" not in names and "title" in names:  # a graph, where names serve as ids
        names["id"], values["id"] = names["title"], values["title"]
    return names, values


def _text(value: JsonValue, most: int = MAX_CHARACTERS) -> str:
    if isinstance(value, list):
        value = "\n".join(filter(None, (_text(part, most) for part in value)))
    if not isinstance(value, str):
        return ""
    text = value.strip()[:most]
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _hit(
    fields: Mapping[str, JsonValue], text: str, backend_id: str, score_is: Literal["similarity", "distance"]
) -> Hit:
    place = fields.get("path")
    if not (name := _name(place)):
        place = fields.get("id")
        name = _name(place)
    first = _line(fields.get("start_line"))
    return Hit(
        path=f"{backend_id}{FOREIGN}{name or _digest(text)}",
        place=str(place) if name else "",
        text=text,
        title=_name(fields.get("title")),
        lines=(first, max(first, _line(fields.get("end_line")))),
        score=_score(fields.get("score"), score_is),
        fields=fields,
    )


def _result(hit: Hit, shown: Snippet, as_of: datetime | None) -> MemorySearchResult:
    fields, known, facts = hit.fields, dict[str, JsonValue](), tuple[SupportingFact, ...]()
    since, until = moment_in(fields.get("valid_from")), moment_in(fields.get("valid_to"))
    if since:
        known["valid_at"] = since.isoformat()
    if written := moment_in(fields.get("date")):
        known["date"] = written.date().isoformat()
    if type_ := _name(fields.get("type")):
        known["type"] = type_
    if since or until:
        holds = as_of is None or ((since is None or since <= as_of) and (until is None or as_of < until))
        fact = SupportingFact(text=shown.text, valid_from=since, valid_to=until, as_of=as_of, holds=holds)
        facts = (fact,)
    return MemorySearchResult(
        path=hit.path,
        start_line=hit.lines[0],
        end_line=hit.lines[1],
        score=hit.score or 0.0,
        snippet=shown.text,
        highlights=shown.highlights,
        text=hit.text,
        title=hit.title,
        metadata=known,
        facts=facts,
    )


def _ranked(hits: Sequence[Hit]) -> Sequence[Hit]:
    """Return hits with scores in [0, 1], best first: their own if all have one, else by rank."""
    given = [hit.score for hit in hits if hit.score is not None]
    values: Sequence[float]
    if len(given) == len(hits):
        if given and given[0] < 0.0 and given == sorted(given):  # like SQLite's BM25: the lowest is the best
            given = [-score for score in given]
        order = sorted(range(len(hits)), key=lambda at: -given[at])
        hits, sound = [hits[at] for at in order], [given[at] for at in order]
        usable = bool(sound) and sound[-1] >= 0.0 and 0.0 < sound[0] <= 1.0
        values = sound if usable else calibrate(sound, Calibration.AUTO, absolute=False)[0]
    else:
        values = calibrate([0.0] * len(hits), Calibration.RANK)[0]
    for hit, value in zip(hits, values, strict=True):
        hit.score = value
    return hits


def _sorted(hits: Iterable[Hit]) -> Sequence[Hit]:
    return sorted(hits, key=lambda hit: -(hit.score or 0.0))


def _score(value: JsonValue, score_is: Literal["similarity", "distance"]) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MAX_SCORE:
        return None
    return 1 / (1 + max(0.0, value)) if score_is == "distance" else float(value)


def _line(value: JsonValue) -> int:
    if value is None:
        return 0
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < MAX_NUMBER:
        return 0
    return number


def _name(value: JsonValue) -> str:
    """Return a name without anything that would make it another path, or control a terminal."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_NUMBER:
        value = str(value)
    if not isinstance(value, str) or not value:
        return ""
    if value.isalnum():  # true for most values that are only ids
        return value[:MAX_NAME]
    bare = "".join(char for char in value.replace("\\", "/") if char.isprintable())
    parts = [part for part in bare.strip().split("/") if part not in ("", ".", "..")]
    return "/".join(parts)[:MAX_NAME]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
