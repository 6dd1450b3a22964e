"""How long contents hold: a policy based on what they say, and the effect of its decision (pure)."""

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from math import isfinite

from composable_memory.content import MemoryContentObject, MemoryTemporalMetadata, TemporalPolicyDecision
from composable_memory.types import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When a content holds in the world, and until when it may be returned; None is open-ended."""

    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expires_at: datetime | None = None
    confidence: float | None = None

    def is_over(self, now: datetime) -> bool:
        """Return whether the content has expired and may no longer be returned."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class StandardTemporalPolicy:
    """Uses what a content says about itself, and gives the rest a time to live by kind.

    A content says it in its times and its metadata: `ttlSeconds` or `ttl_seconds`, and `confidence`. Without
    a time to live it never expires.
    """

    ttl_seconds: float | None = None
    ttl_by_kind: Mapping[str, float] = field(default_factory=dict)
    default_confidence: float | None = None

    async def evaluate(self, content: MemoryContentObject) -> TemporalPolicyDecision:
        """Return how long `content` holds."""
        times = _times(content)
        own = _number(content.metadata, ("ttlSeconds", "ttl_seconds"))
        confidence = _number(content.metadata, ("confidence",))
        return TemporalPolicyDecision(
            ttl_seconds=own if own is not None else self.ttl_by_kind.get(content.kind, self.ttl_seconds),
            valid_from=times.valid_from,
            valid_to=times.valid_to,
            confidence=self.default_confidence if confidence is None else min(1.0, max(0.0, confidence)),
        )


def lifetime_of(content: MemoryContentObject, decision: TemporalPolicyDecision | None) -> Lifetime:
    """Return the lifetime of a content under a decision: until its own end, or the end of its time to live.

    The time to live counts from when the content was observed; whichever end is earlier applies.
    """
    times, decided = _times(content), decision or TemporalPolicyDecision()
    ends = [times.expires_at, _after(observed_at(content), decided.ttl_seconds)]
    return Lifetime(
        valid_from=decided.valid_from or times.valid_from,
        valid_to=decided.valid_to or times.valid_to,
        expires_at=min((end for end in ends if end is not None), default=None),
        confidence=decided.confidence,
    )


def observed_at(content: MemoryContentObject) -> datetime | None:
    """Return when a content was said or seen, or else created."""
    times = _times(content)
    return times.observed_at or times.created_at


def _times(content: MemoryContentObject) -> MemoryTemporalMetadata:
    """Return a content's own times, or else those of its provenance."""
    provided = content.provenance.temporal if content.provenance else None
    return content.temporal or provided or MemoryTemporalMetadata()


def _after(start: datetime | None, seconds: float | None) -> datetime | None:
    if start is None or seconds is None:
        return None
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:  # beyond the end of the calendar is as good as never
        return None


def _number(metadata: Mapping[str, JsonValue], keys: Iterable[str]) -> float | None:
    for key in keys:
        value = metadata.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            return float(value)
    return None
