"""How long a content holds follows from what it says itself, and from the policy."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from composable_memory.content import MemoryContentObject, MemoryTemporalMetadata, TemporalPolicyDecision
from composable_memory.ingest.lifetimes import Lifetime, StandardTemporalPolicy, lifetime_of

DAY = datetime(2026, 5, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)


def content(
    kind: str = "message", metadata: dict[str, object] | None = None, **times: Any
) -> MemoryContentObject:
    return MemoryContentObject(
        id="c",
        kind=kind,
        text="text",
        metadata=metadata or {},  # type: ignore[arg-type]
        temporal=MemoryTemporalMetadata(**times),
    )


async def test_the_times_of_a_content_are_believed() -> None:
    decision = await StandardTemporalPolicy().evaluate(content(valid_from=DAY, valid_to=DAY + HOUR))

    assert decision == TemporalPolicyDecision(valid_from=DAY, valid_to=DAY + HOUR)


@pytest.mark.parametrize(
    ("metadata", "kind", "seconds"),
    [
        ({"ttlSeconds": 5}, "event", 5),
        ({"ttl_seconds": 6.5}, "event", 6.5),
        ({}, "event", 60),
        ({}, "message", 600),
        ({"ttlSeconds": "soon"}, "message", 600),
        ({"ttlSeconds": float("nan")}, "message", 600),
        ({"ttlSeconds": True}, "message", 600),
    ],
)
async def test_a_time_to_live_is_its_own_or_that_of_its_kind(
    metadata: dict[str, object], kind: str, seconds: float
) -> None:
    policy = StandardTemporalPolicy(ttl_seconds=600, ttl_by_kind={"event": 60})

    assert (await policy.evaluate(content(kind, metadata))).ttl_seconds == seconds


async def test_confidence_is_kept_between_nothing_and_certainty() -> None:
    policy = StandardTemporalPolicy(default_confidence=0.7)
    given = [await policy.evaluate(content(metadata={"confidence": value})) for value in (0.4, 7, -1)]

    assert [one.confidence for one in given] == [0.4, 1.0, 0.0]
    assert (await policy.evaluate(content())).confidence == 0.7


def test_a_content_expires_at_the_earlier_of_its_own_time_and_its_time_to_live() -> None:
    ttl = TemporalPolicyDecision(ttl_seconds=3600)

    assert lifetime_of(content(observed_at=DAY), ttl).expires_at == DAY + HOUR
    assert lifetime_of(content(observed_at=DAY, expires_at=DAY), ttl).expires_at == DAY
    assert lifetime_of(content(created_at=DAY), ttl).expires_at == DAY + HOUR
    assert lifetime_of(content(), ttl).expires_at is None


def test_a_time_to_live_beyond_the_calendar_never_ends() -> None:
    assert lifetime_of(content(observed_at=DAY), TemporalPolicyDecision(ttl_seconds=1e18)).expires_at is None


def test_what_is_over_is_asked_of_a_moment() -> None:
    lifetime = Lifetime(valid_from=DAY, valid_to=DAY + HOUR, expires_at=DAY + 2 * HOUR)

    assert [lifetime.is_over(DAY + n * HOUR) for n in (1, 2)] == [False, True]
