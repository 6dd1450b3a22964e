"""What learning reports: which weights are in force, what is advised, what was replayed and evaluated."""

from collections.abc import Mapping
from dataclasses import field
from statistics import fmean

from composable_memory.learning.active_weights import WeightsReport
from composable_memory_feedback.advice.proposal import Proposal, Verdict
from composable_memory_feedback.golden import GoldenComparison, GoldenScore
from composable_memory_feedback.judgements import BackendDay, JudgementKind
from composable_memory_feedback.judging import EvaluationOutcome
from composable_memory_feedback.store.stored_values import Evaluation
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A proposal, what the guardrails say of it, and how many judged queries it rests on."""

    proposal: Proposal
    verdict: Verdict
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRun:
    """What an evaluation brought.

    `signals` counts the judgements that use implied. `left` queries are not judged yet; `stopped` says why
    the run ended before all were.
    """

    signals: int
    outcomes: tuple[EvaluationOutcome, ...] = ()
    left: int = 0
    stopped: str | None = None

    @property
    def evaluations(self) -> list[Evaluation]:
        """Return what was written down of the queries that the model was asked about."""
        return [one.evaluation for one in self.outcomes if one.evaluation]

    @property
    def precision(self) -> float | None:
        """Return the mean over the queries that were judged; None where none was."""
        judged = [one.precision for one in self.evaluations if one.error is None and one.judged_count]
        return fmean(judged) if judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningStats:
    """What is known about the quality of the answers, and what finding it out has cost."""

    weights: WeightsReport
    quota_left: int
    """How many queries a language model may still judge within this hour."""
    days: tuple[BackendDay, ...] = ()
    kinds: Mapping[JudgementKind, int] = field(default_factory=dict)
    judged_queries: int = 0
    evaluations: int = 0
    failed_evaluations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionScore:
    """How one golden question was answered; `first_rank` is the place of the first right result, from 1."""

    id: str
    question: str
    recall: float
    mrr: float
    ndcg: float
    first_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenRun:
    """What the golden questions say of the memory as it is.

    `floor` compares with the answers that were kept before; None where none were. `unanswered` names
    questions that no backend could be asked; `kept` is how many are kept as the floor from now on.
    """

    score: GoldenScore
    questions: tuple[QuestionScore, ...]
    floor: GoldenComparison | None = None
    unanswered: tuple[str, ...] = ()
    kept: int = 0
