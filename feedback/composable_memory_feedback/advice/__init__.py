"""Proposals for better weights, and the advisors that make them."""

from composable_memory_feedback.advice.proposal import (
    AdviceLimits,
    BackendAdvice,
    Objection,
    Proposal,
    Verdict,
)

__all__ = ["AdviceLimits", "BackendAdvice", "Objection", "Proposal", "Verdict"]
