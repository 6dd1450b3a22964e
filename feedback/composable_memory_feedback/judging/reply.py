"""Reads what a model says of results, whatever it put around it; what makes no sense is left out (pure)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, StrictInt, ValidationError

from composable_memory_feedback.judging.prompt import MAX_SUGGESTIONS
from composable_memory_feedback.language_model import json_object_in, one_line

__all__ = ["JudgingReply", "ResultVerdict", "read_reply"]

MAX_RATIONALE_CHARS = 300
MAX_SUGGESTION_CHARS = 300
MAX_ITEMS = 200
"""How many entries of a reply are looked at; ten are expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultVerdict:
    """What the model says of the result with this number, from 0; `relevance` is from 0 to 1."""

    index: int
    relevance: float
    was_used: bool
    would_be_useful: bool
    rationale: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingReply:
    """What could be read, by number; `problem` says what is wrong where nothing could."""

    verdicts: tuple[ResultVerdict, ...] = ()
    suggestions: tuple[str, ...] = ()
    problem: str | None = None


def read_reply(text: str, *, results: int) -> JudgingReply:
    """Read a reply about so many results.

    Relevance outside of 0 to 1 is moved to the nearer end. An entry is left out that has no finite
    relevance, that speaks of a result which is not there, or of one that was judged further up.
    """
    found = json_object_in(text)
    if found is None:
        return JudgingReply(problem="the reply holds no JSON object")
    judgments = found.get("judgments")
    if not isinstance(judgments, list):
        return JudgingReply(problem="the reply holds no list of judgments")
    verdicts = _verdicts(judgments[:MAX_ITEMS], results)
    return JudgingReply(
        verdicts=verdicts,
        suggestions=_suggestions(found.get("systemSuggestions")),
        problem=None if verdicts else "the reply judges none of the results",
    )


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True)

    index: Annotated[StrictInt, Field(alias="resultIndex")]
    relevance: Annotated[FiniteFloat, Field(alias="relevanceScore")]
    was_used: Annotated[bool, Field(alias="wasUsed")] = False
    would_be_useful: Annotated[bool, Field(alias="wouldBeUseful")] = False
    rationale: str | None = None


def _verdicts(judgments: Sequence[object], results: int) -> tuple[ResultVerdict, ...]:
    verdicts: dict[int, ResultVerdict] = {}
    for entry in judgments:
        try:
            item = _Item.model_validate(entry)
        except ValidationError:
            continue
        if 0 <= item.index < results and item.index not in verdicts:
            verdicts[item.index] = _verdict(item)
    return tuple(verdicts[index] for index in sorted(verdicts))


def _verdict(item: _Item) -> ResultVerdict:
    return ResultVerdict(
        index=item.index,
        relevance=min(1.0, max(0.0, item.relevance)),
        was_used=item.was_used,
        would_be_useful=item.would_be_useful,
        rationale=one_line(item.rationale or "", MAX_RATIONALE_CHARS),
    )


def _suggestions(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    lines = (one_line(one, MAX_SUGGESTION_CHARS) for one in texts[:MAX_SUGGESTIONS] if isinstance(one, str))
    return tuple(line for line in lines if line)
