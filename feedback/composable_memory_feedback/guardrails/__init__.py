"""Guardrails for advisors: limit a proposed table to a small safe step, and check what speaks against it.

Only the proportions of weights matter to a ranking, so all limits are read with the heaviest backend as 1.
A proposal that turns the order round therefore arrives over several changes: first the lighter backends come
up to the heaviest, then another one leads.
"""

from composable_memory_feedback.guardrails.checks import check
from composable_memory_feedback.guardrails.step_limits import HARDLY, Clamped, clamp_steps

__all__ = ["HARDLY", "Clamped", "check", "clamp_steps"]
