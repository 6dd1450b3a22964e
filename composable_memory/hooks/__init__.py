"""What happens in a session, as events, and their way into a memory."""

from composable_memory.hooks.event_json import parse_event
from composable_memory.hooks.recorder import Recorded, SessionRecorder, TakesContents
from composable_memory.hooks.session_events import (
    CompactionSummary,
    EventSource,
    EventType,
    MessageReceived,
    PipelineEventEnvelope,
    SessionPayload,
    SessionStart,
)

__all__ = [
    "CompactionSummary",
    "EventSource",
    "EventType",
    "MessageReceived",
    "PipelineEventEnvelope",
    "Recorded",
    "SessionPayload",
    "SessionRecorder",
    "SessionStart",
    "TakesContents",
    "parse_event",
]
