"""A language model judges how well the results of one query answered it."""

from composable_memory_feedback.judging.aggregate import Aggregate, BackendAggregate, aggregate
from composable_memory_feedback.judging.evaluator import EvaluationOutcome, EvaluationStore, Evaluator
from composable_memory_feedback.judging.prompt import JudgingPrompt, judging_prompt
from composable_memory_feedback.judging.reply import JudgingReply, ResultVerdict, read_reply

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
