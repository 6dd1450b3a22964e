"""Golden questions: known answers, and the score below which no weight table is adopted."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import count
from pathlib import Path
from posixpath import normpath
from typing import Annotated

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit, Ranker
from composable_memory_feedback.metrics import ndcg
from composable_memory_feedback.weights import SAME, WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

_LINES = re.compile(r"(\d+):(\d+)(?::\d+)?")
"""What follows the path in the key of a result; the last part is the offset of a piece of a line."""
MOST_PLACES = 1000
"""A question with more known answers is assumed to be a mistake in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenPlace:
    """A place that answers a question: a file, or lines of it.

    `line` is the first one, from 1, or None for anywhere in the file; `last_line` is None for a single line.
    """

    path: str
    line: int | None = None
    last_line: int | None = None

    def __post_init__(self) -> None:
        first = 1 if self.line is None else self.line
        last = first if self.last_line is None else self.last_line
        if not 1 <= first <= last:
            raise ValueError(
                f"lines count from 1, and the first must not come after the last: {self.line} to "
                f"{self.last_line}"
            )

    def is_in(self, hit: RankedHit) -> bool:
        """Return whether a result, or a duplicate that it represents, shows any line of this place."""
        return any(self._is_at(key) for key in hit.keys)

    def _is_at(self, key: str) -> bool:
        lines = _LINES.fullmatch(key, len(self.path) + 1) if key.startswith(f"{self.path}:") else None
        if lines is None or self.line is None:
            return lines is not None
        return int(lines[1]) <= (self.last_line or self.line) and self.line <= int(lines[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenQuestion:
    """A question and all places known to answer it."""

    id: str
    question: str
    expected: tuple[GoldenPlace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenRecord:
    """A golden question as it was asked once, with all candidates, so that it can be ranked again."""

    question: GoldenQuestion
    query: LoggedQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenScore:
    """Means over golden questions, each from 0 to 1; `by_backend` is what each backend achieves alone."""

    recall: float
    mrr: float
    ndcg: float
    questions: int
    by_backend: Mapping[str, "GoldenScore"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenComparison:
    """Golden scores as asked and as proposed; `worse` names the questions whose nDCG falls."""

    current: GoldenScore
    proposed: GoldenScore
    worse: tuple[str, ...] = ()

    def falls_by_more_than(self, tolerance: float) -> bool:
        """Return whether nDCG or recall falls by more than `tolerance`."""
        lost = max(
            self.current.ndcg - self.proposed.ndcg,
            self.current.recall - self.proposed.recall,
        )
        return lost > tolerance + SAME


def read_questions(path: Path) -> list[GoldenQuestion]:
    """Read a file of golden questions, one JSON object per line; empty lines are skipped.

    A line has `question` (or `query`), and as `expect` a list of `"path"`, `"path#L3"`, `"path#L3-L5"` or
    `{"path": ..., "line": ..., "last_line": ...}`, or as `qrels` a list of `[path, line]`, where line 0 is
    the whole file. A question without `id` (or `qid`) is called `q<line of the file>`.

    Raises:
        FeedbackError: The file cannot be read, has no question, or has an invalid line, which is named.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(str(path), str(error)) from error
    questions: dict[str, GoldenQuestion] = {}
    for number, line in zip(count(1), lines, strict=False):
        if not line.strip():
            continue
        question = _read_line(line, number, f"line {number} of {path}")
        if question.id in questions:
            raise _unreadable(f"line {number} of {path}", f"the id {question.id!r} is taken already")
        questions[question.id] = question
    if not questions:
        raise _unreadable(str(path), "it has no questions")
    return list(questions.values())


def score_hits(hits: Sequence[RankedHit], expected: Sequence[GoldenPlace], k: int) -> GoldenScore:
    """Score the first `k` results of one ranking against the places known to answer.

    A place counts once, for the first result that shows it, and a result counts once, however many places it
    shows: two places in one passage are one for nDCG and two for recall.
    """
    missing = list(expected)
    gains: list[float] = []
    swallowed = 0
    for hit in hits[:k]:
        left = [place for place in missing if not place.is_in(hit)]
        found = len(missing) - len(left)
        gains.append(1.0 if found else 0.0)
        swallowed += max(0, found - 1)
        missing = left
    return GoldenScore(
        recall=(len(expected) - len(missing)) / len(expected) if expected else 1.0,
        mrr=next((1.0 / rank for rank, gain in enumerate(gains, 1) if gain), 0.0),
        ndcg=ndcg(gains, [1.0] * (len(expected) - swallowed), k),
        questions=1,
    )


def score_golden(records: Sequence[GoldenRecord], *, ranker: Ranker, k: int = 10) -> GoldenScore:
    """Score all golden questions under the weights they were asked with.

    What each backend achieves alone is the same under every table: its own candidates, all others dropped.
    """
    scores = _scores(records, None, ranker, k)
    backends = sorted({one for record in records for one in record.query.backends})
    alone = {one: _mean([_score_alone(record, one, ranker, k) for record in records]) for one in backends}
    return replace(_mean(scores), by_backend=alone)


def compare_golden(
    records: Sequence[GoldenRecord], table: WeightTable, ranker: Ranker, *, k: int = 10
) -> GoldenComparison:
    """Score all golden questions under the weights they were asked with, and under a table.

    The scores of single backends, which no table changes, are left out.
    """
    before = _scores(records, None, ranker, k)
    after = _scores(records, table, ranker, k)
    pairs = zip(records, before, after, strict=True)
    worse = [record.question.id for record, one, other in pairs if other.ndcg < one.ndcg - SAME]
    return GoldenComparison(current=_mean(before), proposed=_mean(after), worse=tuple(worse))


def _scores(
    records: Sequence[GoldenRecord], table: WeightTable | None, ranker: Ranker, k: int
) -> list[GoldenScore]:
    def score(record: GoldenRecord) -> GoldenScore:
        policy = record.query.policy if table is None else record.query.under(table)
        return score_hits(ranker(record.query, policy), record.question.expected, k)

    return [*map(score, records)]


def _score_alone(record: GoldenRecord, backend: str, ranker: Ranker, k: int) -> GoldenScore:
    query = record.query
    others = frozenset(query.backends) - {backend}
    policy = replace(query.policy, weights=dict.fromkeys(query.backends, 1.0), dropped=others)
    hits = ranker(query, policy) if backend in query.backends else ()
    return score_hits(hits, record.question.expected, k)


def _mean(scores: Sequence[GoldenScore]) -> GoldenScore:
    n = len(scores) or 1
    return GoldenScore(
        recall=sum(one.recall for one in scores) / n,
        mrr=sum(one.mrr for one in scores) / n,
        ndcg=sum(one.ndcg for one in scores) / n,
        questions=len(scores),
    )


_Line = Annotated[int, Field(ge=1, strict=True)]
_LineOrFile = Annotated[int, Field(ge=0, strict=True)]
"""As in test collections, where 0 stands for the whole file."""
_Path = Annotated[str, Field(min_length=1, max_length=4096)]


class _PlaceModel(BaseModel):
    model_config = ConfigDict(extra="ignore")

    path: _Path
    line: _Line | None = None
    last_line: _Line | None = Field(default=None, validation_alias=AliasChoices("last_line", "lastLine"))


class _QuestionModel(BaseModel):
    """A line of the file; unknown keys are the author's notes."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)

    id: str | None = Field(default=None, validation_alias=AliasChoices("id", "qid"))
    question: str = Field(min_length=1, validation_alias=AliasChoices("question", "query"))
    expect: list[_PlaceModel | _Path] = Field(default=[], max_length=MOST_PLACES)
    qrels: list[tuple[_Path, _LineOrFile | None]] = Field(default=[], max_length=MOST_PLACES)


def _read_line(line: str, number: int, subject: str) -> GoldenQuestion:
    try:
        model = _QuestionModel.model_validate_json(line)
        places = [_place(one) for one in model.expect]
        places += [GoldenPlace(path=normpath(path), line=at or None) for path, at in model.qrels]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith(("_", "constrained")))
        raise _unreadable(subject, f"{where}: {first['msg']}" if where else first["msg"]) from error
    except ValueError as error:
        raise _unreadable(subject, str(error)) from error
    if not places or not model.question.strip():
        raise _unreadable(subject, "it needs a question, and at least one place in `expect` or `qrels`")
    return GoldenQuestion(
        id=model.id or f"q{number}", question=model.question, expected=tuple(dict.fromkeys(places))
    )


def _place(written: _PlaceModel | str) -> GoldenPlace:
    if isinstance(written, _PlaceModel):
        return GoldenPlace(path=normpath(written.path), line=written.line, last_line=written.last_line)
    path, _, lines = written.rpartition("#L")
    first, _, last = lines.partition("-")
    last = last.removeprefix("L")
    if not path or not first.isdecimal() or (last and not last.isdecimal()):
        return GoldenPlace(path=normpath(written))
    return GoldenPlace(path=normpath(path), line=int(first), last_line=int(last) if last else None)


def _unreadable(subject: str, reason: str) -> FeedbackError:
    return FeedbackError("golden questions cannot be read", subject=subject, advice=reason)
