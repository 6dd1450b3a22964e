"""A language model judges how well the results of one query answered it."""

from composable_memory_feedback.judging.evaluator import (
    Aggregate,
    BackendAggregate,
    EvaluationOutcome,
    EvaluationStore,
    Evaluator,
    aggregate,
)
from composable_memory_feedback.judging.prompt import (
    JudgingPrompt,
    JudgingReply,
    ResultVerdict,
    judging_prompt,
    read_reply,
)

__all__ = [
    "Aggregate",
    "BackendAggregate",
    "EvaluationOutcome",
    "EvaluationStore",
    "Evaluator",
    "JudgingPrompt",
    "JudgingReply",
    "ResultVerdict",
    "aggregate",
    "judging_prompt",
    "read_reply",
]
