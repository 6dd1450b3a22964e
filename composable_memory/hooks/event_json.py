"""Events of a session from JSON: our own, with keys in camelCase and times with their zone, or an agent's."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Annotated
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

from composable_memory.hooks.agent_json import HookCall
from composable_memory.hooks.fencing import own_words
from composable_memory.hooks.session_events import (
    PAYLOADS,
    CompactionSummary,
    EventSource,
    EventType,
    MessageReceived,
    PipelineEventEnvelope,
    SessionPayload,
)
from composable_memory_ops_logs.redaction.redactor import redact


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
    except ValueError as error:
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


def _told(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    problems = [
        f"{'.'.join(map(str, one['loc'])) or 'the document'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(problems)


_WIRE = ConfigDict(extra="ignore", alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)
"""Keys in camelCase; others may add keys of their own."""


@cache
def _payload(kind: EventType) -> TypeAdapter[SessionPayload | None]:
    # The configuration counts for a union alone: a dataclass by itself would have to carry it.
    return TypeAdapter(PAYLOADS[kind] | None, config=_WIRE)  # type: ignore[arg-type]  # known when it runs


class _Envelope(BaseModel):
    """An event as JSON has it, around the payload of its type."""

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
