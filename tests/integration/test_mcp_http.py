"""The MCP server over HTTP: who may come in, what it withstands, and that nothing of a client stays."""

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.cli_process import run_cli
from tests.integration.mcp_calls import document, words_only
from tests.integration.mcp_server_process import JSON, MCP, Running, running, running_for_many
from tests.variants import variants

pytestmark = pytest.mark.security


@pytest.fixture(autouse=True)
def _words_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words_only(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for all tests that neither end it nor write."""
    with running_for_many(tmp_path_factory.mktemp("served"), MCP) as found:
        yield found


@pytest.fixture
def own_server(workspace: Path, state_dir: Path) -> Iterator[Running]:
    with running(workspace, state_dir) as found:
        yield found


async def test_only_who_knows_the_token_is_let_in(server: Running) -> None:
    token = server.token.read_text(encoding="ascii")

    assert stat.S_IMODE(server.token.stat().st_mode) == 0o600
    for wrong in (
        "",
        f"Bearer {token}x",
        f"Bearer {token[:-1]}",
        token,
        f"Basic {token}",
    ):
        answer = server.post(authorization=wrong)
        assert answer.status_code == 401, wrong
        assert token not in answer.text
    async with server.client() as client:
        assert (await client.list_tools()).tools


def test_a_page_of_another_site_cannot_ask(server: Running) -> None:
    port = httpx.URL(server.url).port

    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1:1"):
        assert server.post(host=host).status_code == 421, host
    for origin in ("http://evil.example", "null", "https://127.0.0.1", f"http://evil.example:{port}"):
        assert server.post(origin=origin).status_code == 403, origin
    assert server.post(origin=f"http://127.0.0.1:{port}").status_code == 400  # it goes on to look at the body


def test_the_server_listens_on_this_machine_alone(server: Running) -> None:
    port = httpx.URL(server.url).port
    assert port is not None
    listening = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    rows = [line.split() for line in listening]
    own = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f"{port:04X}")]

    assert own == [f"0100007F:{port:04X}"]


def test_what_is_no_request_is_refused_and_the_server_goes_on(server: Running) -> None:
    deep = b"[" * 100_000
    for body in (b"", b"{", b"null", b"[]", deep, b"\xff\xfe", b'{"jsonrpc": "2.0", "method": "x"}' * 2):
        assert 400 <= server.post(body).status_code < 500, body[:20]
    assert server.post(b'"' + b"x" * 2_000_000 + b'"').status_code == 413
    assert httpx.get(server.url, headers=server.auth).status_code == 405
    assert httpx.delete(server.url, headers=server.auth).status_code == 405
    assert server.post().status_code == 400
    assert server.process.poll() is None


@pytest.mark.parametrize(("content", "mode"), variants([("x" * 43, 0o644), ("", 0o600)], ("x" * 43, 0o644)))
def test_a_token_that_others_can_read_or_that_is_empty_is_not_used(
    workspace: Path, state_dir: Path, content: str, mode: int
) -> None:
    token = state_dir / "mcp-token"
    token.write_text(content, encoding="ascii")
    token.chmod(mode)

    done = run_cli(*MCP, "-w", str(workspace), "--state-dir", str(state_dir))

    assert done.returncode == 1
    assert "mcp-token" in done.stderr
    assert done.stderr.startswith("Error: ")


@pytest.mark.thorough
def test_a_taken_port_is_told_in_one_line(server: Running, workspace: Path, state_dir: Path) -> None:
    port = str(httpx.URL(server.url).port)

    done = run_cli(*MCP[:-1], port, "-w", str(workspace), "--state-dir", str(state_dir))

    assert done.returncode == 1
    assert port in done.stderr
    assert "--port" in done.stderr


@pytest.mark.thorough
async def test_two_hundred_questions_at_once_are_all_answered(server: Running) -> None:
    async with server.client() as client:
        answers = await asyncio.gather(
            *(client.call_tool("memory_search", {"query": f"tomatoes shade cloth {n}"}) for n in range(200))
        )

    assert {document(one)["results"][0]["path"] for one in answers} == {"memory/projects/greenhouse.md"}


async def test_clients_that_go_leave_nothing_behind(server: Running) -> None:
    async with server.client() as client:
        await client.call_tool("memory_search", {"query": "tomatoes"})
    url = httpx.URL(server.url)
    before = server.sockets()
    arguments = {"name": "memory_search", "arguments": {"query": "boat"}}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}).encode()
    headers = {"host": f"{url.host}:{url.port}", **server.auth, **JSON}
    head = "".join(
        [f"POST {url.path} HTTP/1.1\r\n", *(f"{name}: {one}\r\n" for name, one in headers.items())]
    )
    whole = f"{head}Content-Length: {len(call)}\r\n\r\n".encode() + call
    for part in (
        b"",
        whole[:40],
        whole[:-20],
        whole,
        f"{head}Transfer-Encoding: chunked\r\n\r\nff\r\n".encode(),
    ):
        for _ in range(10):
            with socket.create_connection((url.host, url.port or 0)) as gone:
                gone.sendall(part)

    async with asyncio.timeout(30), server.client() as client:
        while server.sockets() > before + 1:
            await client.list_tools()
    assert server.children() == ""
    assert server.threads() < 40
    async with server.client() as client:
        assert document(await client.call_tool("memory_search", {"query": "boat"}))["results"]


@pytest.mark.parametrize("end", variants([signal.SIGTERM, signal.SIGINT], signal.SIGTERM))
def test_a_signal_ends_the_server_with_all_it_has_open(own_server: Running, end: signal.Signals) -> None:
    with socket.create_connection((httpx.URL(own_server.url).host, httpx.URL(own_server.url).port or 0)):
        own_server.process.send_signal(end)

        assert own_server.process.wait(timeout=60) == 0
    assert own_server.process.stderr.read() == ""


@pytest.mark.thorough
def test_the_token_stays_over_a_restart(own_server: Running, workspace: Path, state_dir: Path) -> None:
    before = own_server.auth
    own_server.process.send_signal(signal.SIGTERM)
    own_server.process.wait(timeout=60)

    with running(workspace, state_dir) as again:
        assert again.auth == before


async def test_a_caller_names_the_trace(server: Running) -> None:
    in_header, in_meta = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
    async with server.client(traceparent=f"00-{in_header}-b7ad6b7169203331-01") as client:
        by_header = await client.call_tool("memory_search", {"query": "boat"})
        meta: Any = {"traceparent": f"00-{in_meta}-00f067aa0ba902b7-01"}
        by_meta = await client.call_tool("memory_search", {"query": "boat"}, meta=meta)
    async with server.client(traceparent=f"00-{'0' * 32}-b7ad6b7169203331-01") as client:
        by_none = await client.call_tool("memory_search", {"query": "boat"})

    assert document(by_header)["traceId"] == in_header
    assert document(by_meta)["traceId"] == in_meta
    assert len(document(by_none)["traceId"]) == 36


async def every_tool(client: Client) -> dict[str, list[str]]:
    """Call each tool once, as an agent goes from one to the next; return what came of it by name."""
    calls: dict[str, dict[str, object]] = {
        "memory_remember": {"text": "Sails on Sundays.", "entities": ["Ellen"]},
        "memory_search": {"query": "tomatoes shade cloth"},
        "memory_context": {"query": "tomatoes", "maxTokens": 60},
        "memory_get": {"path": "MEMORY.md#L3"},
        "memory_recall": {"entity": "Ellen"},
        "memory_recent": {"days": 2},
        "memory_facts": {"entity": "Ellen"},
        "memory_status": {},
    }
    told = {name: document(await client.call_tool(name, given)) for name, given in calls.items()}
    trace = told["memory_search"]["traceId"]
    later: dict[str, dict[str, object]] = {
        "memory_explain": {"traceId": trace},
        "memory_feedback": {"traceId": trace, "result": 1},
        "memory_forget": {"target": told["memory_remember"]["citation"]},
    }
    told |= {name: document(await client.call_tool(name, given)) for name, given in later.items()}
    assert [*sorted(told)] == sorted(one.name for one in (await client.list_tools()).tools)
    return {name: sorted(one) for name, one in told.items()}


async def test_every_tool_answers_alike_over_both_transports(
    own_server: Running, workspace: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    local = StdioServerParameters(
        command=sys.executable,
        args=["-m", "composable_memory.cli", "mcp", "-w", str(copy), "--state-dir", str(tmp_path / "other")],
        env=dict(os.environ),
    )

    async with own_server.client() as client:
        over_http = await every_tool(client)
    async with Client(stdio_client(local)) as client:
        over_stdio = await every_tool(client)

    assert over_http == over_stdio
    assert {name for name, keys in over_http.items() if "error" in keys} == {
        "memory_facts"
    }  # there is no graph
