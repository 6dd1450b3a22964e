"""The JSON document of `cmem eval`."""

from collections.abc import Mapping

from composable_memory.learning import GoldenRun, QuestionScore
from composable_memory.tools import Document
from composable_memory_feedback.golden import GoldenScore

__all__ = ["EvalDocument", "FloorDocument", "MeasuresDocument"]


class MeasuresDocument(Document):
    """Means over golden questions, each from 0 to 1."""

    recall: float
    mrr: float
    ndcg: float
    questions: int

    @classmethod
    def of(cls, score: GoldenScore) -> "MeasuresDocument":
        """Return the document of a score."""
        return cls(recall=score.recall, mrr=score.mrr, ndcg=score.ndcg, questions=score.questions)


class FloorDocument(Document):
    """The answers kept before, as they were ranked `then` and with the weights in force `now`.

    `worse` names the questions whose nDCG falls.
    """

    holds: bool
    tolerance: float
    then: MeasuresDocument
    now: MeasuresDocument
    worse: tuple[str, ...]


class EvalDocument(Document):
    """`cmem eval`: what all backends together and each alone reach, and how each question went."""

    k: int
    composite: MeasuresDocument
    backends: Mapping[str, MeasuresDocument]
    questions: tuple[QuestionScore, ...]
    unanswered: tuple[str, ...]
    kept: int
    floor: FloorDocument | None = None

    @classmethod
    def of(cls, run: GoldenRun, *, k: int, tolerance: float) -> "EvalDocument":
        """Return the document of an evaluation; `tolerance` is how far the score may fall."""
        return cls(
            k=k,
            composite=MeasuresDocument.of(run.score),
            backends={one: MeasuresDocument.of(score) for one, score in run.score.by_backend.items()},
            questions=run.questions,
            unanswered=run.unanswered,
            kept=run.kept,
            floor=_floor(run, tolerance),
        )


def _floor(run: GoldenRun, tolerance: float) -> FloorDocument | None:
    if run.floor is None:
        return None
    return FloorDocument(
        holds=not run.floor.falls_by_more_than(tolerance),
        tolerance=tolerance,
        then=MeasuresDocument.of(run.floor.current),
        now=MeasuresDocument.of(run.floor.proposed),
        worse=run.floor.worse,
    )
