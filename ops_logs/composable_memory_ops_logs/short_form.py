"""The short form of a finished query: one line for its merged list and what every backend answered.

A path, and a passage that several backends found, is written once and referred to by number; what follows
from other numbers is left out. `full_lines` gives back the lines that the events have by themselves. What
does not fit the short form, because it does not follow from the candidates, stands in it as it is.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import add, itemgetter
from typing import Any, NamedTuple

import orjson

from composable_memory_ops_logs.events import (
    PIECES_TOLD,
    BackendResult,
    Candidate,
    Dropped,
    FinalResult,
    OpsEvent,
    QueryMerged,
    TakenFrom,
    place_key,
)
from composable_memory_ops_logs.line_format import (
    event_from_wire,
    format_time,
    head_to_wire,
    to_line,
    value_to_wire,
)

SHORT_FORM_VERSION = 2
"""The `schemaVersion` of a line in the short form."""

MOST_BYTES = 7_250
"""What a line should take at most; with its `query.start` a query takes 8 kB then."""
LEAST_PREVIEW_BYTES = 8

_NUMBER = re.compile(r"\d+\.\d+")
Json = dict[
    str, Any
]  # what a line holds may be anything; `full_lines` is checked by whoever reads its events
Columns = dict[str, list[Any]]
"""Candidates: of each field, what it is for every candidate."""
_Listed = tuple[str, Columns, int]
"""One candidate: its backend, the candidates of that backend, and its place among them."""


class _Found(NamedTuple):
    """One candidate of one backend, by its number among all of a query; attributions name its label."""

    number: int
    backend: str
    candidate: Candidate
    label: str


def short_line(merged: OpsEvent, answers: Sequence[OpsEvent], mask: Callable[[Json], Json]) -> Json:
    """Return the line of a `query.merged` and the `query.backend_result` events before it.

    All of them are of one query. `mask` masks secrets; it is given whole previews, because a secret that was
    cut could not be told.

    Raises:
        ValueError: candidates do not stand in the order of their ranks, or have hashes.
        TypeError: it is another event.
    """
    detail = merged.detail
    if not isinstance(detail, QueryMerged):
        raise TypeError(f"{merged.action} is no merged list")
    tables, found = _Tables(), list[_Found]()
    heads, backends = [], []
    for event in answers:
        given = event.detail
        if not isinstance(given, BackendResult):
            raise TypeError(f"{event.action} is no answer of a backend")
        candidates = list(given.results)
        ranks = range(1, len(candidates) + 1)
        if [one.rank for one in candidates] != [*ranks] or any(map(_HASH, candidates)):
            raise ValueError("the short form has ranks by places, and no hashes")
        heads.append(_head(event))
        backends.append(_answer(event, given, candidates, tables))
        name = event.backend or ""
        found += [_Found(at, name, one, f"{name} {one.key}") for at, one in enumerate(candidates, len(found))]
    rest = _Rest(found, detail)
    shown = [rest.final(one) for one in detail.final_results]
    ruled_out = [rest.dropped(one) for one in detail.dropped]
    whole = set(tables.numbers_of(found[row[0]].candidate for row in shown if isinstance(row, list)))
    short: Json = value_to_wire(detail, "final_results", "dropped", "near", "backend_attribution")
    attribution = {backend: list(paths) for backend, paths in detail.backend_attribution.items()}
    if attribution != _paths_by_backend((one.backend, one.path) for one in detail.final_results):
        short["backendAttribution"] = attribution
    short |= {"backends": backends, "shown": shown, "reasons": rest.reasons, "ruledOut": ruled_out}
    short["near"] = [place for pair in detail.near for place in pair]
    short = mask(short | tables.as_json())
    short["backends"] = [head | answer for head, answer in zip(heads, short["backends"], strict=True)]
    previews = short.pop("previews")
    wire = head_to_wire(merged) | {"schemaVersion": SHORT_FORM_VERSION, "detail": short}
    short["previews"] = tables.cut(previews, whole, MOST_BYTES - len(to_line(wire)))
    return wire


def events_from_line(line: bytes, *, by_column: bool = False) -> list[OpsEvent]:
    """Return the events of one line, in the order in which they happened; `by_column` is as in `full_lines`.

    Raises:
        ValueError: the line is not JSON or not of events.
    """
    wire = orjson.loads(line)
    try:
        if wire["schemaVersion"] == SHORT_FORM_VERSION and "ruledOut" in wire["detail"]:
            return [*map(event_from_wire, full_lines(wire, by_column=by_column))]
    except (AttributeError, LookupError, TypeError) as error:
        if isinstance(wire, dict) and "schemaVersion" not in wire:
            return [event_from_wire(wire)]
        raise ValueError(f"not a query: {error!r}") from error
    return [event_from_wire(wire)]


def full_lines(wire: Json, *, by_column: bool = False) -> list[Json]:
    """Return the lines that a line in the short form stands for, in the order in which they happened.

    With `by_column`, the candidates of a backend are an object of lists, which takes a third of the time.

    Raises:
        AttributeError, IndexError, KeyError, TypeError, ValueError: the line lies.
    """
    short: Json = dict(wire["detail"])
    passages = _passages(short)
    lines, found = [], list[_Listed]()
    for answer in short.pop("backends"):
        numbers, scores = answer.pop("found"), answer.pop("scores")
        columns = {name: [*map(column.__getitem__, numbers)] for name, column in passages.items()}
        columns |= {"score": scores, "rank": [*range(1, len(scores) + 1)], "exact": [False] * len(scores)}
        for number in answer.pop("exact", ()):
            columns["exact"][number] = True
        backend = answer.get("backend", "")
        found += [(backend, columns, at) for at, _ in enumerate(zip(numbers, scores, strict=True))]
        results = columns if by_column else _rows(columns)
        lines.append(_full_answer(wire, answer, results, short.get("queryId", "")))
    optional = ("origin", "startChar") if short.get("rules", 1) >= PIECES_TOLD else ("origin",)
    final = [_full_final(row, found, short["weights"], optional) for row in short.pop("shown")]
    reasons = short.pop("reasons")
    dropped = [_full_dropped(row, found, reasons, optional) for row in short.pop("ruledOut")]
    near = short.pop("near")
    for table in _TABLES:
        short.pop(table, None)
    short |= {"finalResults": final, "dropped": dropped}
    short.setdefault("backendAttribution", _paths_by_backend((one["backend"], one["path"]) for one in final))
    short["near"] = [{"one": one, "other": other} for one, other in zip(near[::2], near[1::2], strict=True)]
    return [*lines, {**wire, "schemaVersion": 1, "detail": short}]


# --- the tables ---------------------------------------------------------------------------------------------

_TABLES = ("paths", "places", "previews", "sources", "origins", "startChars", "outdated")
_Passage = tuple[str, int, int, str, str, TakenFrom | None, int | None, tuple[TakenFrom, ...] | None]
_OF_A_PASSAGE = (
    "path",
    "start_line",
    "end_line",
    "source",
    "snippet_preview",
    "origin",
    "start_char",
    "outdated",
)
_HASH = itemgetter(Candidate._fields.index("content_hash"))
_passage_of: Callable[[Candidate], _Passage] = itemgetter(*map(Candidate._fields.index, _OF_A_PASSAGE))


class _Tables:
    """The paths and the passages of a query, each once."""

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        self._passages: dict[_Passage, int] = {}

    def numbers_of(self, candidates: Iterable[Candidate]) -> list[int]:
        known = self._passages
        return [known.setdefault(passage, len(known)) for passage in map(_passage_of, candidates)]

    def as_json(self) -> Json:
        places: list[int] = []
        sources: dict[str, list[int]] = {}
        origins: list[int] = []
        start_chars: list[int] = []
        outdated: list[int] = []
        previews: list[str] = []
        paths = self._paths
        for number, (path, start, end, source, preview, origin, start_char, others) in enumerate(
            self._passages
        ):
            previews.append(preview)
            places += (paths.setdefault(path, len(paths)), start, end - start)
            if source != "memory":
                sources.setdefault(source, []).append(number)
            if origin is not None:
                origins += (number, *self._lines(origin))
            if start_char is not None:
                start_chars += (number, start_char)
            if others:
                outdated += chain.from_iterable((number, *self._lines(other)) for other in others)
        rare = {"sources": sources, "origins": origins, "startChars": start_chars, "outdated": outdated}
        tables: Json = {"paths": list(self._paths), "places": places, "previews": previews}
        return tables | {name: table for name, table in rare.items() if table}

    def _lines(self, taken: TakenFrom) -> tuple[int, int, int]:
        path = self._paths.setdefault(taken.path, len(self._paths))
        return path, taken.start_line, taken.end_line - taken.start_line

    def cut(self, previews: list[str], whole: set[int], most_bytes: int) -> list[str]:
        """Return the previews, cut so that all take so much at most, but for those that are wanted whole.

        What is left is shared by facts first, which stand in no file, and then by the others.
        """
        sizes = [*map(_size, previews)]
        if sum(sizes) <= most_bytes:
            return previews
        facts = {at for at, passage in enumerate(self._passages) if passage[1] == 0} - whole
        others = set(range(len(previews))) - whole - facts
        left = most_bytes - sum(sizes[number] for number in whole)
        for numbers, of_others in ((facts, len(others) * (LEAST_PREVIEW_BYTES + _QUOTES)), (others, 0)):
            for at, number in enumerate(sorted(numbers, key=sizes.__getitem__)):
                share = max(LEAST_PREVIEW_BYTES + _QUOTES, (left - of_others) // (len(numbers) - at))
                if sizes[number] > share:
                    previews[number] = _cut(previews[number], share - _QUOTES)
                left -= min(sizes[number], share)
        return previews


_QUOTES = 3
"""What a text takes in a list beside itself."""


def _size(text: str) -> int:
    return (len(text) if text.isascii() else len(text.encode(errors="replace"))) + _QUOTES


def _cut(text: str, most_bytes: int) -> str:
    if text.isascii():
        return text[:most_bytes]
    return text.encode(errors="replace")[:most_bytes].decode(errors="ignore")


def _passages(short: Json) -> Columns:
    """Return what candidates say of their passages, by the number of the passage."""
    paths, places, previews = short["paths"], short["places"], short["previews"]
    count = len(previews)
    if len(places) != 3 * count:
        raise ValueError(f"{len(places)} numbers are no places of {count} passages")
    columns: Columns = {
        "path": [paths[path] for path in places[::3]],
        "startLine": places[1::3],
        "endLine": [*map(add, places[1::3], places[2::3])],
        "source": ["memory"] * count,
        "snippetPreview": previews,
    }
    for name, numbers in short.get("sources", {}).items():
        for number in numbers:
            columns["source"][number] = name
    for number, *place in _in_fours(short.get("origins", ())):
        columns.setdefault("origin", [None] * count)[number] = _lines(paths, *place)
    within = short.get("startChars", ())
    for number, start_char in zip(within[::2], within[1::2], strict=True):
        columns.setdefault("startChar", [None] * count)[number] = start_char
    for number, *place in _in_fours(short.get("outdated", ())):
        column = columns.setdefault("outdated", [None] * count)
        column[number] = [*(column[number] or ()), _lines(paths, *place)]
    return columns


def _rows(columns: Columns) -> list[Json]:
    """Return candidates one by one, without what they do not have."""
    return [
        {name: one for name, one in zip(columns, row, strict=True) if one is not None}
        for row in zip(*columns.values(), strict=True)
    ]


def _in_fours(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return zip(numbers[::4], numbers[1::4], numbers[2::4], numbers[3::4], strict=True)


def _lines(paths: Sequence[str], path: int, start: int, length: int) -> Json:
    return {"path": paths[path], "startLine": start, "endLine": start + length}


# --- what each backend answered -----------------------------------------------------------------------------


def _head(event: OpsEvent) -> Json:
    """Return what of an answer no backend has a say in."""
    head: Json = {"id": event.id, "ts": format_time(event.ts), "status": event.status}
    return head if event.duration_ms is None else head | {"durationMs": event.duration_ms}


def _answer(event: OpsEvent, detail: BackendResult, candidates: Sequence[Candidate], tables: _Tables) -> Json:
    answer: Json = {} if event.backend is None else {"backend": event.backend}
    answer |= value_to_wire(detail, "results", "query_id")
    answer["found"] = tables.numbers_of(candidates)
    answer["scores"] = [one.score for one in candidates]
    if exact := [at for at, one in enumerate(candidates) if one.exact]:
        answer["exact"] = exact
    return answer


def _full_answer(wire: Json, answer: Json, results: list[Json] | Columns, query_id: str) -> Json:
    line = {"id": answer.pop("id"), "ts": answer.pop("ts"), "action": BackendResult.action}
    line |= {"status": answer.pop("status"), "traceId": wire["traceId"], "schemaVersion": 1}
    line |= {key: wire[key] for key in ("sessionKey", "runId") if key in wire}
    line |= {key: answer.pop(key) for key in ("backend", "durationMs") if key in answer}
    return {**line, "detail": {**answer, "results": results, "queryId": query_id}}


# --- the merged list ----------------------------------------------------------------------------------------


class _Rest:
    """Writes what became of the candidates, by their numbers."""

    def __init__(self, found: Sequence[_Found], merged: QueryMerged) -> None:
        self._found = found
        # The first, where several have one label.
        self._by_label = {one.label: one for one in reversed(found)}
        self._begins: dict[str, int] = {}  # at which number the candidates of each backend begin
        for one in found:
            self._begins.setdefault(one.backend, one.number)
        self._weights = merged.weights
        self._known: dict[tuple[str, ...], int] = {}

    @property
    def reasons(self) -> list[tuple[str, ...]]:
        """The reasons so far: the reason, and what stands before and after that which differs."""
        return list(self._known)

    def final(self, one: FinalResult) -> object:
        """Return `[candidate, score, calibrated score, others, support, weight]`, or the whole."""
        found = self._ranked(one.backend, one.backend_rank)
        if found is None or not _is_same(found.candidate, one):
            return value_to_wire(one)
        row: list[object] = [found.number, one.score, one.calibrated_score]
        row += [[self._named(label) for label in one.merged_with], one.support]
        if repr(self._weights.get(one.backend)) != repr(one.weight):
            return [*row, one.weight]
        if repr(one.support) == "0.0":
            return row[:4] if one.merged_with else row[:3]
        return row

    def dropped(self, one: Dropped) -> object:
        """Return `[candidate, reason, what differs]`, or the whole."""
        label = f"{one.backend} {place_key(one.path, one.start_line, one.end_line, one.start_char)}"
        found = self._by_label.get(label)
        if found is None or (*_place(found.candidate), found.candidate.origin) != (*_place(one), one.origin):
            return value_to_wire(one)
        before, what, after = self._parted(one.detail)
        reason = self._known.setdefault((one.reason, before, after), len(self._known))
        return [found.number, reason] if what is None else [found.number, reason, what]

    def _ranked(self, backend: str, rank: int) -> _Found | None:
        number = self._begins.get(backend, len(self._found)) + rank - 1
        one = self._found[number] if number < len(self._found) else None
        return one if one and (one.backend, one.candidate.rank) == (backend, rank) else None

    def _named(self, label: str) -> int | str:
        found = self._by_label.get(label)
        return label if found is None else found.number

    def _parted(self, text: str) -> tuple[str, int | str | None, str]:
        """Part a text at the candidate that it ends with, or at its first number."""
        for backend in self._begins:
            before, named, rest = text.partition(f"{backend} ")
            if named and (found := self._by_label.get(named + rest)):
                return before, found.number, ""
        if number := _NUMBER.search(text):
            return text[: number.start()], number[0], text[number.end() :]
        return text, None, ""


def _is_same(candidate: Candidate, one: FinalResult) -> bool:
    """Return whether a result says of its candidate what the candidate says itself."""
    return (
        (*_place(candidate), candidate.origin, candidate.snippet_preview)
        == (*_place(one), one.origin, one.snippet_preview)
    ) and repr(candidate.score) == repr(one.raw_score)  # 1 and 1.0 are equal, and not the same in a line


def _place(one: Candidate | FinalResult | Dropped) -> tuple[str, int, int, int | None]:
    return one.path, one.start_line, one.end_line, one.start_char


_USUAL: list[Any] = [(), 0.0, None]
"""What is left out at the end of a row of a result: others, support, weight."""


def _full_final(
    row: Any, found: Sequence[_Listed], weights: Mapping[str, float], optional: Sequence[str]
) -> Json:
    if isinstance(row, dict):
        return row
    number, score, calibrated, *more = row
    row = [*more, *_USUAL[len(more) :]]
    others, support, weight = row
    backend, columns, at = found[number]
    return {
        "path": columns["path"][at],
        "startLine": columns["startLine"][at],
        "endLine": columns["endLine"][at],
        "score": score,
        "backend": backend,
        "rawScore": columns["score"][at],
        "calibratedScore": calibrated,
        "weight": weights[backend] if weight is None else weight,
        "backendRank": columns["rank"][at],
        "mergedWith": [_named(one, found) for one in others],
        "support": support,
        "snippetPreview": columns["snippetPreview"][at],
        **_had(columns, at, optional),
    }


def _full_dropped(
    row: Any, found: Sequence[_Listed], reasons: Sequence[Sequence[str]], optional: Sequence[str]
) -> Json:
    if isinstance(row, dict):
        return row
    number, kind, *more = row
    (backend, columns, at), (reason, before, after) = found[number], reasons[kind]
    what = "".join([_named(one, found) for one in more])
    return {
        "path": columns["path"][at],
        "startLine": columns["startLine"][at],
        "endLine": columns["endLine"][at],
        "backend": backend,
        "reason": reason,
        "detail": f"{before}{what}{after}",
        **_had(columns, at, optional),
    }


def _had(columns: Columns, at: int, optional: Sequence[str]) -> Json:
    """Return what only some candidates have."""
    return {name: columns[name][at] for name in optional if name in columns and columns[name][at] is not None}


def _named(one: int | str, found: Sequence[_Listed]) -> str:
    """Return what a text names: the label of a candidate, where its number stands for it."""
    if not isinstance(one, int):
        return one
    backend, columns, at = found[one]
    path, start, end = (columns[name][at] for name in ("path", "startLine", "endLine"))
    start_char = columns["startChar"][at] if "startChar" in columns else None
    return f"{backend} {place_key(path, start, end, start_char)}"


def _paths_by_backend(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for backend, path in pairs:
        paths.setdefault(backend, []).append(path)
    return paths
