"""What is sent by OpenTelemetry, as a collector on loopback receives it."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

SECRET = "quokkafern"
SETTINGS: dict[str, Any] = {"memory": {"embedding": {"provider": "none"}}}


class Collector(ThreadingHTTPServer):
    """Keeps what it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[tuple[str, bytes]] = []

    def spans(self) -> list[Any]:
        bodies = [body for path, body in self.received if path.endswith("traces")]
        of = [one for body in bodies for one in ExportTraceServiceRequest.FromString(body).resource_spans]
        return [span for one in of for scope in one.scope_spans for span in scope.spans]

    def metrics(self) -> dict[str, Any]:
        bodies = [body for path, body in self.received if path.endswith("metrics")]
        of = [one for body in bodies for one in ExportMetricsServiceRequest.FromString(body).resource_metrics]
        return {metric.name: metric for one in of for scope in one.scope_metrics for metric in scope.metrics}


class Handler(BaseHTTPRequestHandler):
    """Takes in what is posted."""

    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.received.append((self.path, body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "plans.md").write_text(f"The {SECRET} opens in May.\n", encoding="utf-8")
    return folder


async def test_spans_and_metrics_tell_of_a_question_and_none_of_its_words(
    notes: Path, state_dir: Path, collector: Collector
) -> None:
    settings = {"memory": {**SETTINGS["memory"], "ops_log": {"otel": True}}}
    async with open_memory(notes, state_dir, settings, long_lived=False) as memory:
        await memory.sync()
        response = await memory.query(f"when does the {SECRET} open?")

    spans = {span.name: span for span in collector.spans()}
    root = spans["retrieval"]
    assert root.trace_id.hex() == response.trace_id.replace("-", "")
    for child in ("retrieval builtin", "merge"):
        assert spans[child].trace_id == root.trace_id
        assert spans[child].parent_span_id == root.span_id
        assert root.start_time_unix_nano <= spans[child].start_time_unix_nano
        assert spans[child].end_time_unix_nano <= root.end_time_unix_nano
    assert spans["keyword"].parent_span_id == spans["retrieval builtin"].span_id
    assert spans["retrieval builtin"].start_time_unix_nano <= spans["keyword"].start_time_unix_nano
    told = {one.key: one.value for one in root.attributes}
    assert told["gen_ai.operation.name"].string_value == "retrieval"
    assert told["composable_memory.results"].int_value == len(response.results) == 1
    assert spans["sync builtin"].trace_id != root.trace_id
    metrics = collector.metrics()
    assert {"gen_ai.client.operation.duration", "composable_memory.query.results"} <= metrics.keys()
    (passages,) = metrics["composable_memory.index.passages"].sum.data_points
    assert passages.as_int == 1
    (files,) = metrics["composable_memory.index.files"].gauge.data_points
    assert files.as_int == 1
    sent = b"".join(body for _, body in collector.received)
    for private in (SECRET, "plans", str(notes)):
        assert private.encode() not in sent


async def test_nothing_is_sent_without_being_asked_for(
    notes: Path, state_dir: Path, collector: Collector
) -> None:
    async with open_memory(notes, state_dir, SETTINGS, long_lived=False) as memory:
        await memory.sync()
        await memory.query("when does it open?")

    assert collector.received == []


async def test_a_collector_that_is_away_costs_no_answer(
    notes: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    monkeypatch.setattr("composable_memory.state.telemetry.FLUSH_TIMEOUT_S", 0.05)
    settings = {"memory": {**SETTINGS["memory"], "ops_log": {"otel": True}}}
    async with open_memory(notes, state_dir, settings, long_lived=False) as memory:
        await memory.sync()
        response = await memory.query(f"when does the {SECRET} open?")

    assert len(response.results) == 1
    assert [one.code for one in response.degraded] == ["keyword-only"]
    for thread in threading.enumerate():
        if thread.name == "telemetry-end":
            await asyncio.to_thread(thread.join, 30)
            assert not thread.is_alive()
