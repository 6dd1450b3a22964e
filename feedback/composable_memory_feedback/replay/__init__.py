"""Replay logged queries under another policy: which rankings change, and what the judgements say of it."""

from composable_memory_feedback.replay.comparing import LEAST_CASES, by_importance, changed, gate, replay
from composable_memory_feedback.replay.report import (
    GateVerdict,
    Judged,
    Move,
    PolicyChange,
    QueryReplay,
    ReplayReport,
    compared,
)

__all__ = [
    "LEAST_CASES",
    "GateVerdict",
    "Judged",
    "Move",
    "PolicyChange",
    "QueryReplay",
    "ReplayReport",
    "by_importance",
    "changed",
    "compared",
    "gate",
    "replay",
]
