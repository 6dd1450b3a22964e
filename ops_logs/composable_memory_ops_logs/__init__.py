"""The structured ops log: what happened, under which trace id, as one JSON object per line.

Write with `OpsLog`, correlate with `trace`, read with `OpsLogReader`. The events are listed in `events`.
"""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy import lazy_names

if TYPE_CHECKING:
    from composable_memory_ops_logs.errors import OpsLogError
    from composable_memory_ops_logs.events import (
        QUERY_PREVIEW_CHARS,
        SCHEMA_VERSION,
        SNIPPET_PREVIEW_CHARS,
        AnswerGiven,
        BackendDegraded,
        BackendOpened,
        BackendRecovered,
        BackendResult,
        Candidate,
        ContextPackBuild,
        DedupStats,
        Degradation,
        Dropped,
        ErrorInfo,
        EventDetail,
        FinalResult,
        Intent,
        Interleaved,
        MemoryForgotten,
        MemoryRead,
        MemoryRemembered,
        NearPair,
        OpsEvent,
        QueryDelivered,
        QueryMerged,
        QueryStart,
        Status,
        TakenFrom,
        place_key,
    )
    from composable_memory_ops_logs.file_sink import MemorySink
    from composable_memory_ops_logs.ingest_events import (
        GraphitiHealth,
        GraphitiIngest,
        GraphitiQuery,
        IngestComplete,
        IngestStageComplete,
        IngestStart,
        StageOutcome,
    )
    from composable_memory_ops_logs.learning_events import (
        ExperimentChanged,
        FeedbackEvaluated,
        LearningFailed,
        WeightsAdvised,
        WeightsChanged,
    )
    from composable_memory_ops_logs.log import OpsLog, OpsLogStats, utc_now
    from composable_memory_ops_logs.reader import EventFilter, EventPage, OpsLogReader
    from composable_memory_ops_logs.redaction.redactor import redact, redact_value
    from composable_memory_ops_logs.sync_events import (
        SyncComplete,
        SyncFailed,
        SyncFileIndexed,
        SyncFileSkipped,
        SyncStart,
    )
    from composable_memory_ops_logs.tracing import (
        current_run_id,
        current_session_key,
        current_trace_id,
        trace,
    )

__all__ = [
    "QUERY_PREVIEW_CHARS",
    "SCHEMA_VERSION",
    "SNIPPET_PREVIEW_CHARS",
    "AnswerGiven",
    "BackendDegraded",
    "BackendOpened",
    "BackendRecovered",
    "BackendResult",
    "Candidate",
    "ContextPackBuild",
    "DedupStats",
    "Degradation",
    "Dropped",
    "ErrorInfo",
    "EventDetail",
    "EventFilter",
    "EventPage",
    "ExperimentChanged",
    "FeedbackEvaluated",
    "FinalResult",
    "GraphitiHealth",
    "GraphitiIngest",
    "GraphitiQuery",
    "IngestComplete",
    "IngestStageComplete",
    "IngestStart",
    "Intent",
    "Interleaved",
    "LearningFailed",
    "MemoryForgotten",
    "MemoryRead",
    "MemoryRemembered",
    "MemorySink",
    "NearPair",
    "OpsEvent",
    "OpsLog",
    "OpsLogError",
    "OpsLogReader",
    "OpsLogStats",
    "QueryDelivered",
    "QueryMerged",
    "QueryStart",
    "StageOutcome",
    "Status",
    "SyncComplete",
    "SyncFailed",
    "SyncFileIndexed",
    "SyncFileSkipped",
    "SyncStart",
    "TakenFrom",
    "WeightsAdvised",
    "WeightsChanged",
    "current_run_id",
    "current_session_key",
    "current_trace_id",
    "place_key",
    "redact",
    "redact_value",
    "trace",
    "utc_now",
]

_MODULES = {
    "errors": "OpsLogError",
    "events": (
        "QUERY_PREVIEW_CHARS SCHEMA_VERSION SNIPPET_PREVIEW_CHARS AnswerGiven BackendDegraded "
        "BackendOpened BackendRecovered BackendResult Candidate ContextPackBuild DedupStats "
        "Degradation Dropped ErrorInfo EventDetail FinalResult Intent Interleaved MemoryForgotten MemoryRead "
        "MemoryRemembered NearPair OpsEvent QueryDelivered QueryMerged QueryStart Status TakenFrom place_key"
    ),
    "ingest_events": (
        "GraphitiHealth GraphitiIngest GraphitiQuery "
        "IngestComplete IngestStageComplete IngestStart StageOutcome"
    ),
    "learning_events": "ExperimentChanged FeedbackEvaluated LearningFailed WeightsAdvised WeightsChanged",
    "log": "OpsLog OpsLogStats utc_now",
    "reader": "EventFilter EventPage OpsLogReader",
    "redaction.redactor": "redact redact_value",
    "file_sink": "MemorySink",
    "sync_events": "SyncComplete SyncFailed SyncFileIndexed SyncFileSkipped SyncStart",
    "tracing": "current_run_id current_session_key current_trace_id trace",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
