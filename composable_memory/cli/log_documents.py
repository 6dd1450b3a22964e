"""The JSON documents of the commands that read the operations log."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from composable_memory.query.waterfall import Step, waterfall
from composable_memory.tools import Document
from composable_memory_ops_logs import OpsEvent
from composable_memory_ops_logs.wire import event_to_wire

__all__ = ["EventsDocument", "TraceDocument"]


class EventsDocument(Document):
    """`cmem logs tail` and `cmem logs query`: events as they stand in the log."""

    events: Sequence[Mapping[str, object]]
    has_more: bool | None = None

    @classmethod
    def of(cls, events: Sequence[OpsEvent], *, has_more: bool | None = None) -> "EventsDocument":
        """Return the document of some events."""
        return cls(events=[event_to_wire(event) for event in events], has_more=has_more)


class TraceDocument(Document):
    """`cmem logs show`: one trace, as a time line and as events."""

    trace_id: str
    started_at: datetime
    total_ms: float
    query: str | None = None
    steps: tuple[Step, ...]
    events: Sequence[Mapping[str, object]]

    @classmethod
    def of(cls, events: Sequence[OpsEvent]) -> "TraceDocument":
        """Return the document of the events of one trace."""
        drawn = waterfall(events)
        return cls(
            trace_id=drawn.trace_id,
            started_at=drawn.started_at,
            total_ms=drawn.total_ms,
            query=drawn.query,
            steps=drawn.steps,
            events=[event_to_wire(event) for event in events],
        )
