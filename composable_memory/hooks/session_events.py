"""The events of a session: its beginning, a message, a summary in the place of older messages."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Literal, TypeAlias

from composable_memory.content import MemoryTemporalMetadata
from composable_memory_ops_logs.quick_dataclass import dataclass

EventType = Literal["session.start", "message.received", "compaction.summary"]
EventSource = Literal["hook", "tool", "system", "scheduler", "manual"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart:
    """A session begins."""

    session_key: str
    started_at: datetime
    session_id: str | None = None
    agent_id: str | None = None
    channel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """Somebody said something; `temporal` says more of its time than when it was received."""

    session_key: str
    body: str
    received_at: datetime
    session_id: str | None = None
    message_id: str | None = None
    channel: str | None = None
    sender_id: str | None = None
    temporal: MemoryTemporalMetadata | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSummary:
    """A summary took the place of older messages in the context of a model; sizes in tokens."""

    session_key: str
    summary: str
    compacted_at: datetime
    session_id: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


SessionPayload: TypeAlias = SessionStart | MessageReceived | CompactionSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEventEnvelope:
    """One event with who sent it and when; what kind it is, its payload tells.

    Raises:
        ValueError: a time has no zone, or it names no session.
    """

    id: str
    ts: datetime
    payload: SessionPayload
    source: EventSource = "hook"
    session_key: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    stage: str | None = None

    def __post_init__(self) -> None:
        if not self.payload.session_key:
            raise ValueError(f"event {self.id!r}: it names no session")
        parts = (self, self.payload, getattr(self.payload, "temporal", None))
        for name, moment in (
            (one.name, getattr(part, one.name)) for part in parts if part for one in fields(part)
        ):
            if isinstance(moment, datetime) and moment.utcoffset() is None:
                raise ValueError(f"event {self.id!r}: {name} has no time zone: {moment.isoformat()}")

    @property
    def type(self) -> EventType:
        """Return the kind of event, as JSON names it."""
        return next(kind for kind, payload in PAYLOADS.items() if isinstance(self.payload, payload))


PAYLOADS: Mapping[EventType, type[SessionPayload]] = {
    "session.start": SessionStart,
    "message.received": MessageReceived,
    "compaction.summary": CompactionSummary,
}
"""The payload of each kind of event."""
