"""Shipping the operations log: each line once, in order, over failures, none of another workspace."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.errors import BackendUnavailable
from composable_memory.state import log_shipping
from composable_memory.state.log_shipping import keep_shipping, ship
from composable_memory.state.workspaces import identify
from composable_memory.supervision.file_lock import file_lock
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_ops_logs import OpsLog, utc_now
from composable_memory_ops_logs.erasing import erase
from composable_memory_ops_logs.events import MemoryRead, QueryDelivered
from composable_memory_ops_logs.tracing import trace
from tests.postgres_server import PostgresServer


class Store:
    """Keeps lines by their ids, and refuses when it is away."""

    def __init__(self) -> None:
        self.name = "a store"
        self.lines: dict[str, Mapping[str, Any]] = {}
        self.calls = self.refusals = 0
        self.goes_away_after = 1_000

    @property
    def counts(self) -> list[int]:
        return [one["detail"]["resultCount"] for one in self.lines.values()]

    async def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if self.calls == self.goes_away_after:
            self.refusals += 1
            raise BackendUnavailable(self.name, "it is away", fix="start it", operation="ship")
        self.calls += 1
        for line in lines:
            self.lines.setdefault(line["id"], line)


async def log(state: Path, *counts: int, memory: str | None = None) -> None:
    """Write events, those of a memory into a trace that names it."""
    ops_log = OpsLog(state / "ops-logs", clock=utc_now, retention_days=30, max_bytes=10**9)
    with trace():
        if memory:
            ops_log.emit(MemoryRead(path="why.md", chars=4, memory=memory))
        for count in counts:
            ops_log.emit(QueryDelivered(result_count=count, paths=()))
    await ops_log.close()


async def test_lines_are_shipped_in_their_order_and_on_from_where_the_store_went_away(tmp_path: Path) -> None:
    store = Store()
    await log(tmp_path, *range(1_200))
    store.goes_away_after = 1
    with pytest.raises(BackendUnavailable, match="it is away"):
        await ship(tmp_path, "w", store)
    assert store.counts == [*range(500)]

    store.goes_away_after = 1_000
    assert await ship(tmp_path, "w", store) == 700
    await log(tmp_path, 1_200)
    assert await ship(tmp_path, "w", store) == 1
    assert await ship(tmp_path, "w", store) == 0
    assert store.counts == [*range(1_201)]
    assert await ship(tmp_path, "w", store, from_start=True) == 1_201
    assert store.counts == [*range(1_201)]


async def test_a_log_that_was_written_anew_is_shipped_on(tmp_path: Path) -> None:
    store = Store()
    await log(tmp_path, 1, memory="main-w")
    await ship(tmp_path, "w", store)
    # What is forgotten is masked in the file, whose lines have other lengths then.
    masked = await asyncio.to_thread(
        erase,
        tmp_path / "ops-logs",
        lambda text: text.replace("main-w", "a longer word"),
        words=["main-w"],
        is_of=lambda _memory: True,
    )
    await log(tmp_path, 2)
    await ship(tmp_path, "w", store)

    assert masked == 1
    assert [one["detail"].get("resultCount") for one in store.lines.values()] == [None, 1, 2]


def name_workspaces(tmp_path: Path) -> None:
    for name in ("ada", "bob"):
        (tmp_path / name).mkdir()
        identify(tmp_path, tmp_path / name, now=utc_now(), name=name)


async def test_lines_of_other_workspaces_stay(tmp_path: Path) -> None:
    await asyncio.to_thread(name_workspaces, tmp_path)
    store = Store()
    await log(tmp_path, 1, memory="main-w")
    await log(tmp_path, 2, memory="main-other")
    await log(tmp_path, 3)  # nobody's
    await ship(tmp_path, "w", store)

    assert [one["detail"].get("resultCount") for one in store.lines.values()] == [None, 1]


async def test_a_store_that_is_away_is_waited_for_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_shipping, "POLL_S", 0.0)
    store, problems = Store(), list[str]()
    store.goes_away_after = 0
    await log(tmp_path, 1)
    shipping = asyncio.create_task(keep_shipping(tmp_path, "w", store, on_problem=problems.append))
    async with asyncio.timeout(60):
        while store.refusals < 3:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        store.goes_away_after = 1_000
        await log(tmp_path, 2)
        while store.counts != [1, 2]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)

    assert len(problems) == 1
    assert "it is away" in problems[0]


async def test_one_process_ships_at_a_time(tmp_path: Path) -> None:
    await ship(tmp_path, "w", Store())
    (lock,) = (tmp_path / log_shipping.FOLDER).glob("*.lock")
    async with file_lock(lock, owner="test", patience_s=0):
        with pytest.raises(BackendUnavailable, match="another process"):
            await ship(tmp_path, "w", Store())


# --- targets ------------------------------------------------------------------------------------------------


class Cmem:
    """The command line on one workspace."""

    def __init__(self, workspace: Path, state: Path) -> None:
        self._place = ["-w", str(workspace), "--state-dir", str(state)]

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, *self._place])


async def test_a_server_has_each_line_once_and_only_its_workspace_sees_them(
    workspace: Path,
    tmp_path: Path,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema, state = team_settings.schema_, tmp_path / "state"
    team = {"kind": "postgres", "schema": schema, "workspace": "team"}
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"memory": {"backends": {"team": team}}}))
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))
    monkeypatch.setenv("DATABASE_URL", "postgresql://team@127.0.0.1:1/postgres")
    async with open_memory(workspace, state, {"memory": {"embedding": {"provider": "none"}}}) as memory:
        await memory.sync()
        answer = await memory.query("when does the ferry leave \0?")
    cmem = Cmem(workspace, state)
    away = await asyncio.to_thread(cmem, "logs", "ship")
    monkeypatch.setenv("DATABASE_URL", postgres_server.url("team"))
    sent = await asyncio.to_thread(cmem, "logs", "ship", "--json")
    again = await asyncio.to_thread(cmem, "logs", "ship", "--to", "team", "--json")
    await asyncio.to_thread(
        postgres_server.run,
        f"INSERT INTO {schema}.log_lines SELECT tenant, days, now() - days::interval, '', '', '{{}}'"
        f" FROM {schema}.workspaces, unnest('{{91 days,89 days}}'::text[]) AS days",
    )
    all_again = await asyncio.to_thread(cmem, "logs", "ship", "--from-start", "--json")

    assert away.exit_code != 0
    assert "127.0.0.1:1" in away.stderr
    count = json.loads(sent.stdout)["lines"]
    assert count > 2
    assert json.loads(again.stdout)["lines"] == 0
    assert json.loads(all_again.stdout)["lines"] == count
    as_team = f"BEGIN; SET LOCAL ROLE team; SET LOCAL search_path = {schema}, public"
    seen = "SELECT count(*), count(*) FILTER (WHERE trace_id = '{}') FROM log_lines"
    own = (
        f"SET LOCAL cmem.tenant = '{postgres_server.run(f'SELECT tenant FROM {schema}.workspaces').strip()}'"
    )
    of_query = seen.format(answer.trace_id)
    all_lines, of_trace = postgres_server.run(as_team, own, of_query).strip().split("|")
    assert int(all_lines) == count + 1  # the one of 91 days ago is gone, that of 89 is not
    assert int(of_trace) >= 2
    assert postgres_server.run(as_team, of_query).strip() == "0|0"
    assert postgres_server.run(as_team, "SET LOCAL cmem.tenant = '999'", of_query).strip() == "0|0"


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        server.requests.append((self.path, dict(self.headers), body))
        self.send_response(server.status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collector() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.requests, server.status = [], 503
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_a_collector_gets_lines_as_otlp_and_again_what_it_could_not_take(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
    state = tmp_path / "state"
    state.mkdir()
    known = await asyncio.to_thread(identify, state, workspace, now=utc_now())
    await log(state, 7, memory=f"main-{known.id}")
    cmem = Cmem(workspace, state)
    with collector() as server:
        url = f"http://127.0.0.1:{server.server_port}"
        refused = await asyncio.to_thread(cmem, "logs", "ship", "--to", url)
        server.status = 200
        taken = await asyncio.to_thread(cmem, "logs", "ship", "--to", url, "--json")

    assert refused.exit_code != 0
    assert "503" in refused.stderr
    assert json.loads(taken.stdout) == {"target": url, "lines": 2}
    path, headers, body = server.requests[-1]
    assert path == "/v1/logs"
    assert headers["authorization"] == "Bearer abc"
    records = json.loads(body)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert [one["eventName"] for one in records] == ["memory.read", "query.delivered"]
    assert json.loads(records[1]["body"]["stringValue"])["detail"]["resultCount"] == 7
    assert records[0]["traceId"] == records[1]["traceId"]
    assert len(records[0]["traceId"]) == 32
