"""The events of a session: its start, a message, a summary that replaces older messages; and their JSON.

The JSON is our own, with keys in camelCase and times with time zones, or that of an agent's hook.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import Annotated, Literal, TypeAlias
from uuid import uuid4

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)
from pydantic.alias_generators import to_camel

from composable_memory.content import MemoryTemporalMetadata
from composable_memory.hooks.agent_json import HookCall
from composable_memory.json_documents import problems_in
from composable_memory.memory_fence import own_words
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.redaction.redactor import redact

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
    """Somebody said something; `temporal` has more about its time than when it was received."""

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
    """A summary replaced older messages in the context of a model; sizes are in tokens."""

    session_key: str
    summary: str
    compacted_at: datetime
    session_id: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None


SessionPayload: TypeAlias = SessionStart | MessageReceived | CompactionSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEventEnvelope:
    """One event, with its sender and time; the payload determines its type.

    Raises:
        ValueError: a time has no time zone, or there is no session.
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
        """Return the type of the event, as in JSON."""
        return next(kind for kind, payload in PAYLOADS.items() if isinstance(self.payload, payload))


PAYLOADS: Mapping[EventType, type[SessionPayload]] = {
    "session.start": SessionStart,
    "message.received": MessageReceived,
    "compaction.summary": CompactionSummary,
}
"""The payload of each type of event."""


# --- JSON ---------------------------------------------------------------------------------------------------


def parse_event(document: str | bytes | Mapping[str, object]) -> PipelineEventEnvelope:
    """Parse an event from JSON; unknown keys are ignored.

    Raises:
        ValueError: it is not JSON, not an event of a session, or incomplete; the message says which.
    """
    try:
        if isinstance(document, str | bytes):
            wire = _Envelope.model_validate_json(document)
        else:
            wire = _Envelope.model_validate(document)
        return wire.event()
    except ValueError as error:
        raise ValueError(f"not an event of a session: {_told(error)}") from None


def event_of(call: HookCall, hook: str, *, now: datetime) -> PipelineEventEnvelope:
    """Return the event of an agent's hook `message` or `summary`, without secrets and inserted text.

    Raises:
        ValueError: the agent names no session.
    """
    key = call.session_key or call.session_id
    if key is None:
        raise ValueError("give the session, as `session` or `sessionId`")
    payload: SessionPayload
    if hook == "summary":
        payload = CompactionSummary(
            session_key=key,
            session_id=call.session_id,
            summary=redact(own_words(call.summary or call.prompt)),
            tokens_before=call.tokens,
            tokens_after=call.tokens_after,
            compacted_at=now,
        )
    else:
        payload = MessageReceived(
            session_key=key,
            session_id=call.session_id,
            body=redact(own_words(call.prompt)),
            message_id=call.message_id,
            channel=call.source,
            sender_id=call.sender_id,
            received_at=now,
        )
    return PipelineEventEnvelope(id=uuid4().hex, ts=now, session_key=key, payload=payload)


def _told(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(problems_in(error, "the document"))
    return str(error)


_WIRE = ConfigDict(extra="ignore", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)
"""Keys are in camelCase; others may add keys of their own."""


@cache
def _payload(kind: EventType) -> TypeAdapter[SessionPayload | None]:
    # The configuration only applies to a union: a dataclass alone would have to have its own.
    return TypeAdapter(PAYLOADS[kind] | None, config=_WIRE)  # type: ignore[arg-type]  # known when it runs


class _Envelope(BaseModel):
    """An event in JSON, around the payload of its type."""

    model_config = _WIRE

    id: Annotated[str, StringConstraints(min_length=1)]
    type: EventType
    ts: AwareDatetime
    source: EventSource = "hook"
    session_key: str | None = None
    run_id: str | None = None
    trace_id: str | None = None
    stage: str | None = None
    payload: dict[str, object] = Field(default_factory=dict)

    def event(self) -> PipelineEventEnvelope:
        known = {"sessionKey": self.session_key} if self.session_key else {}
        payload = _payload(self.type).validate_python({**known, **self.payload})
        assert payload is not None
        rest = self.model_dump(exclude={"type", "payload"})
        return PipelineEventEnvelope(payload=payload, **rest)
