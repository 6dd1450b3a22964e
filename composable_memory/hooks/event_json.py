"""Events of a session from JSON: our own, with keys in camelCase and times with their zone, or an agent's."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated
from uuid import uuid4

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic.alias_generators import to_camel

from composable_memory.content import MemoryTemporalMetadata
from composable_memory.hooks.agent_json import HookCall
from composable_memory.hooks.fencing import own_words
from composable_memory.hooks.session_events import (
    CompactionSummary,
    EventSource,
    EventType,
    MessageReceived,
    PipelineEventEnvelope,
    SessionPayload,
    SessionStart,
)
from composable_memory_ops_logs.redaction.redactor import redact

_Name = Annotated[str, StringConstraints(min_length=1)]


def parse_event(document: str | bytes | Mapping[str, object]) -> PipelineEventEnvelope:
    """Return the event that a JSON document tells of; keys that are not known are passed over.

    Raises:
        ValueError: it is no JSON, no event of a session, or lacks something; which, the message says.
    """
    try:
        if isinstance(document, str | bytes):
            wire = _Envelope.model_validate_json(document)
        else:
            wire = _Envelope.model_validate(document)
        return wire.event()
    except ValidationError as error:
        raise ValueError(f"not an event of a session: {_told(error)}") from None


def event_of(call: HookCall, hook: str, *, now: datetime) -> PipelineEventEnvelope:
    """Return what an agent's hook `message` or `summary` tells, without secrets and what the agent inserted.

    Raises:
        ValueError: the agent names no session.
    """
    key = call.session_key or call.session_id
    if key is None:
        raise ValueError("name the session, as `session` or `sessionId`: what is said belongs to one")
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


def _told(error: ValidationError) -> str:
    problems = [
        f"{'.'.join(map(str, one['loc'])) or 'the document'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(problems)


class _Wire(BaseModel):
    """A part of an event as JSON has it; others may add keys of their own."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


class _Temporal(_Wire):
    created_at: AwareDatetime | None = None
    updated_at: AwareDatetime | None = None
    observed_at: AwareDatetime | None = None
    valid_from: AwareDatetime | None = None
    valid_to: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None
    timezone: str | None = None


class _Start(_Wire):
    session_key: _Name
    session_id: str | None = None
    agent_id: str | None = None
    channel: str | None = None
    started_at: AwareDatetime


class _Message(_Wire):
    session_key: _Name
    session_id: str | None = None
    message_id: str | None = None
    body: str
    channel: str | None = None
    sender_id: str | None = None
    received_at: AwareDatetime
    temporal: _Temporal | None = None


class _Compaction(_Wire):
    session_key: _Name
    session_id: str | None = None
    summary: str
    tokens_before: int | None = None
    tokens_after: int | None = None
    compacted_at: AwareDatetime


class _Envelope(_Wire):
    id: _Name
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
        return PipelineEventEnvelope(
            payload=_payload(self.type, {**known, **self.payload}),
            id=self.id,
            ts=self.ts,
            source=self.source,
            session_key=self.session_key,
            run_id=self.run_id,
            trace_id=self.trace_id,
            stage=self.stage,
        )


def _payload(kind: EventType, said: Mapping[str, object]) -> SessionPayload:
    match kind:
        case "session.start":
            return SessionStart(**dict(_Start.model_validate(said)))
        case "compaction.summary":
            return CompactionSummary(**dict(_Compaction.model_validate(said)))
        case "message.received":
            fields = dict(_Message.model_validate(said))
            if (temporal := fields.pop("temporal")) is not None:
                fields["temporal"] = MemoryTemporalMetadata(**dict(temporal))
            return MessageReceived(**fields)
