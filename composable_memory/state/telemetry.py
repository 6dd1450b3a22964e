"""Sends log events as OpenTelemetry spans and metrics, if the settings ask for it.

Only numbers, kinds and names of backends leave the machine: no question, text, path or session. The
destination is set by the standard variables, such as `OTEL_EXPORTER_OTLP_ENDPOINT`. The trace id of a span is
the one in the log, without its hyphens.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

from composable_memory.errors import ConfigError
from composable_memory_ops_logs import OpsEvent, OpsLog
from composable_memory_ops_logs.events import BackendResult, QueryMerged, QueryStart
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.sync_events import SyncFileIndexed

try:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import RandomIdGenerator, Span, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Status, StatusCode, set_span_in_context
except ImportError as error:
    problem = "OpenTelemetry is not installed; run `pip install 'composable-memory[otel]'`"
    raise ConfigError("memory.ops_log.otel", problem) from error

NAME = "composable_memory"
OPERATION = {"gen_ai.operation.name": "retrieval", "gen_ai.provider.name": NAME}
"""As in the semantic conventions for generative AI."""
MOST_OPEN = 1_000
"""How many questions may be waiting for answers at once; a cancelled question never gets one."""
FLUSH_TIMEOUT_S = 2.0
"""How long closing a memory waits for what is still to be sent."""


@asynccontextmanager
async def send_telemetry(ops_log: OpsLog) -> AsyncIterator[None]:
    """Send spans and metrics of all events of a log until the block ends."""
    sender = await asyncio.to_thread(_Sender)
    unsubscribe = ops_log.subscribe(sender.hear)
    try:
        yield
    finally:
        unsubscribe()
        # In its own thread, since the library may keep trying to reach a server that is down.
        flushing = threading.Thread(target=sender.close, name="telemetry-end", daemon=True)
        flushing.start()
        await asyncio.to_thread(flushing.join, FLUSH_TIMEOUT_S)


class _Ids:
    """Gives a root span the trace id from the log."""

    def __init__(self) -> None:
        self.wanted = threading.local()
        self.generate_span_id = RandomIdGenerator().generate_span_id

    def generate_trace_id(self) -> int:
        return int(self.wanted.id)

    def is_trace_id_random(self) -> bool:
        return False


@dataclass(slots=True)
class _Question:
    span: Span
    began: datetime
    answered: datetime


class _Sender:
    """Turns events into spans and metrics, in whichever thread they are emitted."""

    def __init__(self) -> None:
        resource = Resource.create({"service.name": "composable-memory"})
        self._ids = _Ids()
        self._traces = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        self._metrics = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self._tracer, meter = self._traces.get_tracer(NAME), self._metrics.get_meter(NAME)
        self._asked = meter.create_histogram("gen_ai.client.operation.duration", "s")
        self._answered = meter.create_histogram(f"{NAME}.backend.duration", "s")
        self._found = meter.create_histogram(f"{NAME}.query.results", "{result}")
        self._degraded = meter.create_counter(f"{NAME}.query.degraded", "{query}")
        self._indexed = meter.create_counter(f"{NAME}.index.passages", "{passage}")
        self._files = meter.create_gauge(f"{NAME}.index.files", "{file}")
        self._open: OrderedDict[tuple[str, str], _Question] = OrderedDict()

    def close(self) -> None:
        """Send the rest. Blocks as long as the server lets it."""
        self._traces.shutdown()
        self._metrics.shutdown()

    def hear(self, event: OpsEvent) -> None:
        """Handle an event."""
        match event.detail:
            case QueryStart() as asked:
                span = self._start_span("retrieval", event, event.ts, OPERATION)
                self._open[event.trace_id, asked.query_id] = _Question(span, event.ts, event.ts)
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)[1].span.end()
            case BackendResult() as answer:
                question = self._open.get((event.trace_id, answer.query_id))
                if question is not None:
                    question.answered = event.ts
                self._answer(event, answer, question)
                told = {"backend": event.backend or "", "status": event.status}
                self._answered.record((event.duration_ms or 0.0) / 1000, told)
            case QueryMerged() as merged:
                self._end(event, merged)
            case SyncFileIndexed() as counted:
                self._files.set(counted.total, {"backend": event.backend or "", "source": counted.source})
            case _ if event.duration_ms is not None:
                name = event.action.removesuffix(".complete").removesuffix(".failed")
                span = self._start_span(f"{name} {event.backend or ''}".rstrip(), event, event.began, {})
                _finish(span, event)
                if written := getattr(event.detail, "chunks_written", 0):
                    self._indexed.add(written, {"backend": event.backend or ""})

    def _end(self, event: OpsEvent, merged: QueryMerged) -> None:
        question = self._open.pop((event.trace_id, merged.query_id), None)
        for one in merged.degraded:
            self._degraded.add(1, {"backend": one.backend})
        self._found.record(len(merged.final_results))
        self._asked.record((event.duration_ms or 0.0) / 1000, OPERATION)
        if question is not None:
            merging = self._start_span("merge", event, question.answered, {}, question.span)
            merging.end(_nanoseconds(event.ts))
            degraded = sorted({one.backend for one in merged.degraded})
            question.span.set_attribute(f"{NAME}.results", len(merged.final_results))
            question.span.set_attribute(f"{NAME}.degraded", degraded)
            _finish(question.span, event)

    def _answer(self, event: OpsEvent, answer: BackendResult, question: _Question | None) -> None:
        """Send the span of a backend, with those of its legs below it."""
        began = event.began
        span = self._start_span(
            f"retrieval {event.backend}", event, began, OPERATION, question and question.span
        )
        for leg, (start, took) in (answer.legs or {}).items():
            at = began + timedelta(milliseconds=start)
            below = self._tracer.start_span(
                leg, context=set_span_in_context(span), start_time=_nanoseconds(at)
            )
            below.end(_nanoseconds(at + timedelta(milliseconds=took)))
        _finish(span, event)

    def _start_span(
        self,
        name: str,
        event: OpsEvent,
        began: datetime,
        attributes: Mapping[str, str],
        parent: Span | None = None,
    ) -> Any:
        self._ids.wanted.id = _trace_id(event.trace_id)
        context = set_span_in_context(parent) if parent else {}
        told = {**attributes, **_figures(event)}
        return self._tracer.start_span(name, context=context, start_time=_nanoseconds(began), attributes=told)


def _finish(span: Any, event: OpsEvent) -> None:
    if event.status == "failure":
        kind = getattr(getattr(event.detail, "error", None), "type", "failure")
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR))
    span.end(_nanoseconds(event.ts))


def _figures(event: OpsEvent) -> dict[str, Any]:
    """Return the numbers in an event; its texts stay here."""
    detail: Any = event.detail
    told = {one.name: getattr(detail, one.name) for one in fields(detail)} if is_dataclass(detail) else {}
    figures = {f"{NAME}.{name}": one for name, one in told.items() if isinstance(one, bool | int | float)}
    return {**figures, f"{NAME}.backend": event.backend} if event.backend else figures


def _trace_id(text: str) -> int:
    """Return a trace id of 128 bits; hash a text that is not one."""
    bare = text.replace("-", "")
    try:
        known = int(bare, 16) if len(bare) == 32 else 0
    except ValueError:
        known = 0
    return known or int.from_bytes(blake2b(text.encode(errors="replace"), digest_size=16).digest())


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
