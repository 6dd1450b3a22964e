"""The short form of a finished query: one line for its merged list and the answers of all backends.

A path, or a passage that several backends found, is written once and referred to by number; derivable values
are left out. `full_lines` restores the lines of the separate events, and `short_detail` makes the short form
from events that were written separately.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from itertools import chain, compress, count, repeat
from operator import add, not_, sub
from typing import Any

import orjson

from composable_memory_ops_logs.events import (
    BackendResult,
    Candidate,
    Dropped,
    FinalResult,
    MadeWhenRead,
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
    value_from_wire,
    value_to_wire,
)

SHORT_FORM_VERSION = 2
"""The `schemaVersion` of a line in the short form."""

MOST_BYTES = 7_200
"""Target size of a line; with its `query.start` a query then takes 8 kB."""
LEAST_PREVIEW_BYTES = 6

_NUMBER = re.compile(r"\d+\.\d+")
Json = dict[str, Any]  # a line may contain anything; readers of `full_lines` validate the events
_Listed = tuple[str, Candidate]
"""A candidate, preceded by its backend."""
_Split = tuple[str, int | str | None, str]
"""The text before and after a candidate, or else a number, and in between the candidate or number."""


class ShortRanking:
    """The candidates in a short line, and what became of them; its rows refer to them by number.

    `candidates` are those of each backend, in the order of the line; `found` are all of them, each preceded
    by its backend. `shown` are the rows of the results, `ruled_out` those of the others. Types are not
    checked.

    Raises:
        ValueError: the line is inconsistent.
    """

    def __init__(self, short: Mapping[str, Any]) -> None:
        try:
            passages = _passages(short)
            self.candidates = [_candidates(answer, passages) for answer in short["backends"]]
            self.found: list[_Listed] = []
            for answer, own in zip(short["backends"], self.candidates, strict=True):
                self.found += zip(repeat(answer.get("backend", "")), own)
            self.weights: Mapping[str, float] = short["weights"]
            self.reasons: list[Any] = short["reasons"]
            self.shown: list[Any] = short["shown"]
            self.ruled_out: list[Any] = short["ruledOut"]
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(f"not a query: {error!r}") from error

    def key(self, one: int | str) -> str:
        """Return the key of a candidate, given as number, or as backend and key."""
        return self.found[one][1].key if isinstance(one, int) else one.partition(" ")[2]


def final_row(row: Sequence[Any]) -> list[Any]:
    """Return a row of a result with the omitted default values filled in."""
    return [*row, *_USUAL[len(row) - 3 :]]


def short_line(merged: OpsEvent, answers: Sequence[OpsEvent], mask: Callable[[Json], Json]) -> Json:
    """Return the line for a `query.merged` and the `query.backend_result` events before it.

    All of them belong to one query. `mask` masks secrets; it is given uncut previews, because part of a
    secret could not be recognised.

    Raises:
        ValueError: an answer is missing, candidates are not in the order of their ranks, or a result is not
        one of
            them.
        TypeError: it is another event.
    """
    detail = merged.detail
    if not isinstance(detail, QueryMerged):
        raise TypeError(f"{merged.action} is no merged list")
    found_by = {backend for backend, count in detail.dedup_stats.by_backend.items() if count}
    if not found_by <= {one.backend for one in answers}:
        raise ValueError("the answer of a backend is missing")
    given = [one.detail for one in answers if isinstance(one.detail, BackendResult)]
    if len(given) < len(answers):
        raise TypeError("there is more than the answers of backends")
    found = _Found([one.backend or "" for one in answers], [one.results for one in given])
    rest = _Rest(found, detail)
    shown, ruled_out = rest.shown(detail.final_results), rest.ruled_out(detail.dropped)
    short: Json = value_to_wire(detail, "final_results", "dropped", "near", "backend_attribution")
    attribution = {backend: list(paths) for backend, paths in detail.backend_attribution.items()}
    if attribution != _paths_by_backend((found.backends[row[0]], found.paths[row[0]]) for row in shown):
        short["backendAttribution"] = attribution
    short["backends"] = [*map(_answer, answers, given)]
    short |= {"shown": shown, "reasons": rest.reasons, "ruledOut": ruled_out}
    columns, whole = found.as_json([row[0] for row in shown])
    texts, numbers = found.tables()
    short = mask(short | texts) | numbers | {"near": [*chain.from_iterable(detail.near)]}
    parts = zip(map(_head, answers), short["backends"], columns, strict=True)
    short["backends"] = [head | answer | own for head, answer, own in parts]
    wire = head_to_wire(merged) | {"schemaVersion": SHORT_FORM_VERSION, "detail": short}
    if others := found.told.keys() - whole:
        previews = short.pop("previews")
        short["previews"] = _cut_to_fit(previews, others, MOST_BYTES - len(to_line(wire)))
    return wire


def events_from_line(line: bytes, *, as_written: bool = False) -> list[OpsEvent]:
    """Return the events in one line, in the order in which they happened.

    With `as_written`, a line in the short form is returned as one event, for `ShortRanking`.

    Raises:
        ValueError: the line is not JSON, or has no events.
    """
    wire = orjson.loads(line)
    wires = [wire]
    try:
        if wire.get("schemaVersion") == SHORT_FORM_VERSION and is_short(wire["detail"]):
            wires = [{**wire, "schemaVersion": 1}] if as_written else full_lines(wire)
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not a query: {error!r}") from error
    return [*map(event_from_wire, wires)]


def is_short(detail: Mapping[str, object]) -> bool:
    """Return whether the detail of a `query.merged` is in the short form."""
    return "ruledOut" in detail


def short_detail(merged: OpsEvent, answers: Iterable[OpsEvent]) -> Json:
    """Return the detail of a `query.merged` that was read back, in the short form.

    In logs of earlier versions, and if a backend was slow, its answers are in separate lines.

    Raises:
        ValueError: a line is inconsistent. Types are not checked.
    """
    try:
        whole = replace(merged, detail=value_from_wire(QueryMerged, merged.detail))
        heard = [replace(one, detail=value_from_wire(BackendResult, one.detail)) for one in answers]
        short: Json = short_line(whole, heard, lambda detail: detail)["detail"]
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not a query: {error!r}") from error
    return short


def full_lines(wire: Json) -> list[Json]:
    """Return the lines that a short line stands for, in the order in which they happened.

    Raises:
        AttributeError, IndexError, KeyError, TypeError, ValueError: the line is inconsistent.
    """
    short: Json = dict(wire["detail"])
    ranking = ShortRanking(short)
    final = [_full_final(row, ranking) for row in ranking.shown]
    lines = [
        _full_answer(wire, answer, [*map(value_to_wire, candidates)], short.get("queryId", ""))
        for answer, candidates in zip(short.pop("backends"), ranking.candidates, strict=True)
    ]
    near = short.pop("near")
    for name in ("shown", "reasons", "ruledOut", *_TABLES):
        short.pop(name, None)
    short |= {"finalResults": final, "dropped": [_full_dropped(row, ranking) for row in ranking.ruled_out]}
    short.setdefault("backendAttribution", _paths_by_backend((one["backend"], one["path"]) for one in final))
    short["near"] = [{"one": one, "other": other} for one, other in zip(near[::2], near[1::2], strict=True)]
    return [*lines, {**wire, "schemaVersion": 1, "detail": short}]


# --- the tables ---------------------------------------------------------------------------------------------

_TABLES = ("paths", "places", "previews", "sources", "origins", "startChars", "outdated")
_Passage = tuple[str, int, int, str, TakenFrom | None, int | None, tuple[TakenFrom, ...] | None, str | None]


class _Found:
    """What all backends found, as columns: the lists of the backends, laid end to end.

    Raises:
        ValueError: they are not in the order of their ranks.
    """

    def __init__(self, backends: Sequence[str], lists: Sequence[Sequence[Candidate]]) -> None:
        self._lists = lists
        self.backends: list[str] = []
        self.begins: dict[str, int] = {}  # if several have the same name, the first
        self._stretches: list[range] = []
        columns: list[list[Any]] = [[] for _ in range(10)]
        for backend, own in zip(backends, lists, strict=True):
            begin = len(columns[0])
            for column, more in zip(columns, _columns_of(own), strict=False):
                column += more
            self.begins.setdefault(backend, begin)
            self._stretches.append(range(begin, len(columns[0])))
            self.backends += [backend] * len(self._stretches[-1])
        self.paths, self._starts, self._ends, self._scores, self._sources, self._previews, *rest = columns
        self._exact, *self._rare = rest
        self._passages: dict[_Passage, int] = {}
        self.told: dict[int, str] = {}
        """The previews of some passages, by their numbers."""

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Return the candidates one by one."""
        return [*chain.from_iterable(self._lists)]

    def as_json(self, shown: Sequence[int]) -> tuple[list[Json], set[int]]:
        """Return the columns of each backend, and the passages of the results that are shown.

        Only these and facts have a preview; the text of any other can be read in its file.
        """
        known, told, previews = self._passages, self.told, self._previews
        rows = [
            *zip(self.paths, self._starts, self._ends, self._sources, *self._rare, repeat(None), strict=False)
        ]
        found = [known.setdefault(row, len(known)) for row in rows]
        for at in (*shown, *compress(count(), map(not_, self._starts))):
            if told.setdefault(found[at], previews[at]) != previews[at]:  # another part of the passage
                found[at] = known.setdefault((*rows[at][:-1], previews[at]), len(known))
                told[found[at]] = previews[at]
        columns: list[Json] = []
        for one in self._stretches:
            of = slice(one.start, one.stop)
            columns.append({"found": found[of], "scores": self._scores[of]})
            if any(self._exact[of]):
                columns[-1]["exact"] = [*compress(count(), self._exact[of])]
        return columns, {found[at] for at in shown}

    def tables(self) -> tuple[Json, Json]:
        """Return the tables of the passages: columns of texts, and columns of numbers."""
        paths, starts, ends, names, origins, start_chars, outdated, _ = (
            zip(*self._passages, strict=True) if self._passages else repeat((), 8)
        )
        known: dict[str, int] = {}
        numbers = [known.setdefault(path, len(known)) for path in paths]
        places = [*chain.from_iterable(zip(numbers, starts, map(sub, ends, starts), strict=True))]
        sources: dict[str, list[int]] = {}
        for number, source in enumerate(names if {*names} != {"memory"} else ()):
            if source != "memory":
                sources.setdefault(source, []).append(number)
        rare: dict[str, list[int]] = {"origins": [], "startChars": [], "outdated": []}
        for number, origin in enumerate(origins if any(origins) else ()):
            rare["origins"] += (number, *_numbered(origin, known)) if origin else ()
        for number, start_char in enumerate(start_chars if {*start_chars} != {None} else ()):
            rare["startChars"] += (number, start_char) if start_char is not None else ()
        for number, others in enumerate(outdated if any(outdated) else ()):
            rare["outdated"] += chain.from_iterable((number, *_numbered(one, known)) for one in others or ())
        previews = [self.told.get(number, "") for number in range(len(numbers))]
        texts: Json = {"paths": [*known], "previews": previews} | ({"sources": sources} if sources else {})
        return texts, {"places": places} | {name: table for name, table in rare.items() if table}


def _columns_of(candidates: Sequence[Candidate]) -> Iterable[Sequence[Any]]:
    if isinstance(candidates, MadeWhenRead) and candidates.rows:
        return candidates.rows()
    if not candidates:
        return ()
    paths, starts, ends, scores, ranks, sources, previews, _, *rest = zip(*candidates, strict=True)
    if ranks != (*range(1, len(ranks) + 1),):
        raise ValueError("the short form has ranks by places")
    return paths, starts, ends, scores, sources, previews, *rest


def _numbered(taken: TakenFrom, paths: dict[str, int]) -> tuple[int, int, int]:
    path = paths.setdefault(taken.path, len(paths))
    return path, taken.start_line, taken.end_line - taken.start_line


def _cut_to_fit(previews: list[str], others: Set[int], most_bytes: int) -> list[str]:
    """Return the previews, the `others` cut so that all of them together fit into `most_bytes`."""
    sizes = [_QUOTES + (len(one) if one.isascii() else len(_utf8(one))) for one in previews]
    left = most_bytes - sum(sizes) + sum(sizes[number] for number in others)
    ascending = sorted(others, key=sizes.__getitem__)
    for at, number in enumerate(ascending):
        share = max(LEAST_PREVIEW_BYTES + _QUOTES, left // (len(ascending) - at))
        if sizes[number] > share:  # and so are all after it
            for one in ascending[at:]:
                previews[one] = _cut(previews[one], share - _QUOTES)
            break
        left -= sizes[number]
    return previews


_QUOTES = 3
"""Overhead of a text in a list."""


def _utf8(text: str) -> bytes:
    return text.encode(errors="replace")


def _cut(text: str, most_bytes: int) -> str:
    if text.isascii():
        return text[:most_bytes]
    return _utf8(text)[:most_bytes].decode(errors="ignore")


def _passages(short: Mapping[str, Any]) -> tuple[Sequence[Any], ...]:
    """Return the columns of the passages: path, lines, source, preview, origin, piece of a line, outdated."""
    paths, places, previews = short["paths"], short["places"], short["previews"]
    count = len(previews)
    if len(places) != 3 * count:
        raise ValueError(f"{len(places)} numbers are no places of {count} passages")
    sources = ["memory"] * count
    origins: list[Any] = [None] * count
    pieces: list[Any] = [None] * count
    outdated: list[Any] = [None] * count
    for name, numbers in short.get("sources", {}).items():
        for number in numbers:
            sources[number] = name
    for number, *place in _in_fours(short.get("origins", ())):
        origins[number] = _lines(paths, *place)
    within = short.get("startChars", ())
    for number, start_char in zip(within[::2], within[1::2], strict=True):
        pieces[number] = start_char
    for number, *place in _in_fours(short.get("outdated", ())):
        outdated[number] = (*(outdated[number] or ()), _lines(paths, *place))
    starts = places[1::3]
    ends = [*map(add, starts, places[2::3])]
    return [paths[path] for path in places[::3]], starts, ends, sources, previews, origins, pieces, outdated


def _candidates(answer: Mapping[str, Any], passages: Sequence[Sequence[Any]]) -> list[Candidate]:
    numbers, scores = answer["found"], answer["scores"]
    exact = [False] * len(scores)
    for number in answer.get("exact", ()):
        exact[number] = True
    paths, starts, ends, sources, previews, *rest = (map(one.__getitem__, numbers) for one in passages)
    no_hashes = repeat(None, len(scores))
    rows = zip(
        paths, starts, ends, scores, range(1, len(scores) + 1), sources, previews, no_hashes, exact, *rest,
        strict=True,
    )  # fmt: skip
    return [*map(tuple.__new__, repeat(Candidate), rows)]  # a third of the time of calling the class


def _in_fours(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return zip(numbers[::4], numbers[1::4], numbers[2::4], numbers[3::4], strict=True)


def _lines(paths: Sequence[str], path: int, start: int, length: int) -> TakenFrom:
    return TakenFrom(paths[path], start, start + length)


# --- what each backend answered -----------------------------------------------------------------------------


def _head(event: OpsEvent) -> Json:
    """Return the part of an answer that no backend determines."""
    head: Json = {"id": event.id, "ts": format_time(event.ts), "status": event.status}
    return head if event.duration_ms is None else head | {"durationMs": event.duration_ms}


def _answer(event: OpsEvent, detail: BackendResult) -> Json:
    """Return the part of an answer that the backend determines, except its candidates."""
    answer: Json = {} if event.backend is None else {"backend": event.backend}
    return answer | value_to_wire(detail, "results", "query_id")


def _full_answer(wire: Json, short: Json, results: list[Json], query_id: str) -> Json:
    answer = {key: value for key, value in short.items() if key not in ("found", "scores", "exact")}
    line = {"id": answer.pop("id"), "ts": answer.pop("ts"), "action": BackendResult.action}
    line |= {"status": answer.pop("status"), "traceId": wire["traceId"], "schemaVersion": 1}
    line |= {key: wire[key] for key in ("sessionKey", "runId") if key in wire}
    line |= {key: answer.pop(key) for key in ("backend", "durationMs") if key in answer}
    return {**line, "detail": {**answer, "results": results, "queryId": query_id}}


# --- the merged list ----------------------------------------------------------------------------------------


class _Rest:
    """Writes what became of the candidates, by number."""

    def __init__(self, found: _Found, merged: QueryMerged) -> None:
        self._found = found
        self._weights = merged.weights
        self._known: dict[tuple[str, ...], int] = {}

    @cached_property
    def _labels(self) -> list[str]:
        return [
            f"{backend} {one.key}"
            for backend, one in zip(self._found.backends, self._found.candidates, strict=True)
        ]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Numbers by label; if several have the same label, the first."""
        return dict(zip(reversed(self._labels), range(len(self._labels) - 1, -1, -1), strict=True))

    @property
    def reasons(self) -> list[tuple[str, ...]]:
        """The reasons so far: the reason, and the text before and after the part that varies."""
        return list(self._known)

    def shown(self, results: Sequence[FinalResult]) -> list[list[Any]]:
        """Return for each result `[candidate, score, calibrated score, others, support, weight]`."""
        if isinstance(results, MadeWhenRead) and results.rows:
            return [
                self._result(self._at(one), score, calibrated, [*map(self._at, others)], support, weight)
                for one, score, calibrated, others, support, weight in results.rows()
            ]
        return [self._final(one) for one in results]

    def ruled_out(self, dropped: Sequence[Dropped]) -> list[list[Any]]:
        """Return for each dropped candidate `[candidate, reason, part that varies]`."""
        if isinstance(dropped, MadeWhenRead) and dropped.rows:
            return [
                self._loser(
                    self._at(one), reason, _split_at_number(text) if by is None else (text, self._at(by), "")
                )
                for one, reason, text, by in dropped.rows()
            ]
        return [self._dropped(one) for one in dropped]

    def _at(self, candidate: tuple[str, int]) -> int:
        backend, rank = candidate
        return self._found.begins[backend] + rank - 1

    def _result(
        self, number: int, score: float, calibrated: float, others: list[Any], support: float, weight: float
    ) -> list[Any]:
        if repr(self._weights.get(self._found.backends[number])) != repr(weight):
            return [number, score, calibrated, others, support, weight]
        if repr(support) != "0.0":
            return [number, score, calibrated, others, support]
        return [number, score, calibrated, others] if others else [number, score, calibrated]

    def _loser(self, number: int, reason: str, detail: _Split) -> list[Any]:
        before, what, after = detail
        kind = self._known.setdefault((reason, before, after), len(self._known))
        return [number, kind] if what is None else [number, kind, what]

    def _final(self, one: FinalResult) -> list[Any]:
        found = self._found
        number = found.begins.get(one.backend, len(found.paths)) + one.backend_rank - 1
        if number >= len(found.paths) or not _is_same(found.backends[number], found.candidates[number], one):
            raise ValueError(f"{one.backend} {one.path} is a result, and no candidate")
        others = [self._numbers.get(label, label) for label in one.merged_with]
        return self._result(number, one.score, one.calibrated_score, others, one.support, one.weight)

    def _dropped(self, one: Dropped) -> list[Any]:
        label = f"{one.backend} {place_key(one.path, one.start_line, one.end_line, one.start_char)}"
        number = self._numbers.get(label)
        candidates = self._found.candidates
        if number is None or candidates[number].origin != one.origin:
            alike = (at for at, other in enumerate(self._labels) if other == label)
            number = next((at for at in alike if candidates[at].origin == one.origin), None)
        if number is None:
            raise ValueError(f"{label} was ruled out, and is no candidate")
        return self._loser(number, one.reason, self._split(one.detail))

    def _split(self, text: str) -> _Split:
        """Split a text around the candidate that it ends with, or around its first number."""
        for backend in self._found.begins:
            before, named, rest = text.partition(f"{backend} ")
            if named and (number := self._numbers.get(named + rest)) is not None:
                return before, number, ""
        return _split_at_number(text)


def _split_at_number(text: str) -> _Split:
    if told := _NUMBER.search(text):
        return text[: told.start()], told[0], text[told.end() :]
    return text, None, ""


def _is_same(backend: str, candidate: Candidate, one: FinalResult) -> bool:
    """Return whether a result repeats what its candidate says."""
    return (
        backend,
        *_place(candidate),
        candidate.origin,
        candidate.rank,
        candidate.snippet_preview,
        repr(candidate.score),  # 1 and 1.0 are equal, but written differently
    ) == (
        one.backend,
        *_place(one),
        one.origin,
        one.backend_rank,
        one.snippet_preview,
        repr(one.raw_score),
    )


def _place(one: Candidate | FinalResult) -> tuple[str, int, int, int | None]:
    return one.path, one.start_line, one.end_line, one.start_char


_USUAL: list[Any] = [(), 0.0, None]
"""Default values, omitted at the end of a row: others, support, weight."""


def _full_final(row: Any, ranking: ShortRanking) -> Json:
    if isinstance(row, dict):  # of an earlier version, or of an answer that was written before
        return row
    number, score, calibrated, others, support, weight = final_row(row)
    backend, one = ranking.found[number]
    line = {
        "path": one.path,
        "startLine": one.start_line,
        "endLine": one.end_line,
        "score": score,
        "backend": backend,
        "rawScore": one.score,
        "calibratedScore": calibrated,
        "weight": ranking.weights[backend] if weight is None else weight,
        "backendRank": one.rank,
        "mergedWith": [_named(other, ranking.found) for other in others],
        "support": support,
        "snippetPreview": one.snippet_preview,
    }
    return _with_rare_fields(line, one)


def _full_dropped(row: Any, ranking: ShortRanking) -> Json:
    if isinstance(row, dict):  # of an earlier version, as in `_full_final`, or one of several at one place
        return row
    number, kind, *more = row
    (backend, one), (reason, before, after) = ranking.found[number], ranking.reasons[kind]
    what = "".join([_named(other, ranking.found) for other in more])
    line = {
        "path": one.path,
        "startLine": one.start_line,
        "endLine": one.end_line,
        "backend": backend,
        "reason": reason,
        "detail": f"{before}{what}{after}",
    }
    return _with_rare_fields(line, one)


def _with_rare_fields(line: Json, one: Candidate) -> Json:
    """Add fields that only some candidates have."""
    if one.origin is not None:
        line["origin"] = value_to_wire(one.origin)
    if one.start_char is not None:
        line["startChar"] = one.start_char
    return line


def _named(one: int | str, found: Sequence[_Listed]) -> str:
    """Return what a text refers to: the label of a candidate if it is a number, or the text itself."""
    if not isinstance(one, int):
        return one
    backend, candidate = found[one]
    return f"{backend} {candidate.key}"


def _paths_by_backend(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for backend, path in pairs:
        paths.setdefault(backend, []).append(path)
    return paths
