"""What agents call at the turning points of a session, and what happens in one, as events, into a memory."""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy_names import lazy_names

if TYPE_CHECKING:
    from composable_memory.hooks.agent_json import HookCall, answer, read_call
    from composable_memory.hooks.capture import Candidate, capture_turn, worth_remembering
    from composable_memory.hooks.fencing import fence, own_words
    from composable_memory.hooks.flush import flush_prompt, plan_flush
    from composable_memory.hooks.prompt_context import recall_for_prompt, session_recap
    from composable_memory.hooks.recorder import Recorded, SessionRecorder, TakesContents
    from composable_memory.hooks.session_events import (
        CompactionSummary,
        EventSource,
        EventType,
        MessageReceived,
        PipelineEventEnvelope,
        SessionPayload,
        SessionStart,
        event_of,
        parse_event,
    )
    from composable_memory.hooks.session_memory import SavedSession, save_session
    from composable_memory.hooks.session_state import SessionState, SessionStates

__all__ = [
    "Candidate",
    "CompactionSummary",
    "EventSource",
    "EventType",
    "HookCall",
    "MessageReceived",
    "PipelineEventEnvelope",
    "Recorded",
    "SavedSession",
    "SessionPayload",
    "SessionRecorder",
    "SessionStart",
    "SessionState",
    "SessionStates",
    "TakesContents",
    "answer",
    "capture_turn",
    "event_of",
    "fence",
    "flush_prompt",
    "own_words",
    "parse_event",
    "plan_flush",
    "read_call",
    "recall_for_prompt",
    "save_session",
    "session_recap",
    "worth_remembering",
]

_MODULES = {
    "agent_json": "HookCall answer read_call",
    "capture": "Candidate capture_turn worth_remembering",
    "prompt_context": "recall_for_prompt session_recap",
    "fencing": "fence own_words",
    "flush": "flush_prompt plan_flush",
    "recorder": "Recorded SessionRecorder TakesContents",
    "session_events": (
        "CompactionSummary EventSource EventType MessageReceived PipelineEventEnvelope SessionPayload"
        " SessionStart event_of parse_event"
    ),
    "session_memory": "SavedSession save_session",
    "session_state": "SessionState SessionStates",
}

if not TYPE_CHECKING:
    # A hook that only asks is not to wait for what records.
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
