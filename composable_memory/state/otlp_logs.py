"""An OpenTelemetry collector as a store for log lines: OTLP over HTTP, in JSON."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import httpx

from composable_memory.errors import BackendError, BackendUnavailable

LIMIT_S = 30.0
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""The standard variable: `key=value` pairs, separated by commas, URL-encoded."""
SEVERITIES = {"success": 9, "partial": 13, "failure": 17}  # INFO, WARN, ERROR
NO_PROXY = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}


@asynccontextmanager
async def open_collector(url: str, environ: Mapping[str, str]) -> AsyncIterator["Collector"]:
    """Yield a collector at a URL such as `http://127.0.0.1:4318`."""
    pairs = (one.split("=", 1) for one in environ.get(HEADERS, "").split(",") if "=" in one)
    headers = {key.strip(): unquote(value.strip()) for key, value in pairs}
    headers["content-type"] = "application/json"
    async with httpx.AsyncClient(headers=headers, timeout=LIMIT_S, mounts=NO_PROXY) as client:
        yield Collector(url.rstrip("/"), client)


class Collector:
    """Receives log lines; after a lost reply it may get one twice, with the same `log.record.uid`."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.name = url
        self._client = client

    async def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Send lines.

        Raises:
            BackendUnavailable: the collector does not answer, or asks us to wait.
            BackendError: the lines are refused.
        """
        scope = {"scope": {"name": "composable_memory.ops_log"}, "logRecords": [*map(_record, lines)]}
        service = {"attributes": [_attribute("service.name", "composable-memory")]}
        body = json.dumps({"resourceLogs": [{"resource": service, "scopeLogs": [scope]}]})
        try:
            answer = await self._client.post(f"{self.name}/v1/logs", content=body)
        except httpx.HTTPError as error:
            told = str(error) or type(error).__name__
            raise _away(f"{self.name} does not answer ({told})") from error
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error:
            raise _away(f"{self.name} cannot take lines now (HTTP {answer.status_code})")
        if not answer.is_success:
            raise BackendError(
                "otlp",
                "ship",
                f"{self.name} refuses log lines: HTTP {answer.status_code} {answer.text[:200]}",
            )


def _away(problem: str) -> BackendUnavailable:
    return BackendUnavailable("otlp", problem, fix="start it, or check the URL", operation="ship")


def _record(wire: Mapping[str, Any]) -> dict[str, object]:
    at = datetime.fromisoformat(wire["ts"])
    record: dict[str, object] = {
        "timeUnixNano": str(int(at.timestamp() * 1000) * 1_000_000),
        "severityNumber": SEVERITIES.get(wire.get("status", ""), 9),
        "eventName": wire["action"],
        "body": {"stringValue": json.dumps(wire, ensure_ascii=False)},
        "attributes": [_attribute("log.record.uid", wire["id"])],
    }
    trace = wire["traceId"].replace("-", "").lower()
    if len(trace) == 32 and all(char in "0123456789abcdef" for char in trace):
        record["traceId"] = trace
    return record


def _attribute(key: str, value: str) -> dict[str, object]:
    return {"key": key, "value": {"stringValue": value}}
