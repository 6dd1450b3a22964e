"""A language model judges how well the results of one query answered it."""

from composable_memory_feedback.judging.evaluator import EvaluationOutcome, Evaluator

__all__ = ["EvaluationOutcome", "Evaluator"]
