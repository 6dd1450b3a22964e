"""What a foreign memory repeats of a key that it was given leaves it nowhere."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.errors import BackendError
from composable_memory.interfaces import BackendServices
from composable_memory_adapters.external.http import spec as http
from composable_memory_adapters.external.mcp import spec as mcp

KEY = "zebra/horse battery77"
SERVER = Path(__file__).with_name("notes_server.py")


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_TEST", KEY)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, json.dumps({"error": f"bad key {KEY}"})),
        (400, f"bad key {KEY}"),
        (500, json.dumps({"error": f"bad header Bearer {KEY}"})),
        (200, f"<p>{'x' * 190}{KEY}</p>"),
    ],
)
async def test_no_error_of_a_service_has_the_key(services: BackendServices, status: int, body: str) -> None:
    with pytest.raises(BackendError) as caught:
        await ask_service(services, status, body)
    assert "zebra" not in f"{caught.value} {vars(caught.value)} {caught.value.__cause__}"
    assert "***" in str(caught.value)


async def test_no_error_of_a_service_shows_the_half_of_a_token(services: BackendServices) -> None:
    token = "ghp_" + "0a1B2c3D4e5F" * 3
    with pytest.raises(BackendError) as caught:
        await ask_service(services, 200, f"<p>{'x' * 180} {token}</p>")
    assert "0a1B" not in str(caught.value)


async def test_no_result_of_a_service_has_the_key(services: BackendServices) -> None:
    body = json.dumps([{"path": KEY, "title": KEY, "text": f"pump {KEY}"}])
    told = await ask_service(services, 200, body)
    assert "pump ***" in told
    assert "zebra" not in told


async def ask_service(services: BackendServices, status: int, body: str) -> str:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 {status} Told\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/search"
    headers = {"X-Auth": "Bearer KEY_OF_TEST"}
    settings = http.settings(url=url, method="GET", headers_env=headers)
    async with server, http.open(settings, replace(services, backend_id="away")) as memory:
        return str(await memory.search("pump"))


@pytest.mark.parametrize("fault", ["repeat-key", "die-with-key"])
async def test_no_error_of_a_server_has_the_key(services: BackendServices, fault: str) -> None:
    settings = mcp.settings(command=(sys.executable, str(SERVER), fault), env={"GIVEN": "KEY_OF_TEST"})
    async with mcp.open(settings, replace(services, backend_id="away")) as memory:
        with pytest.raises(BackendError) as caught:
            await memory.search("pump")
    assert "zebra" not in f"{caught.value} {vars(caught.value)} {caught.value.__cause__}"
    assert "***" in str(caught.value)


async def test_keys_are_those_of_the_environment_that_the_memory_is_opened_with(
    workspace: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KEY_OF_TEST")
    away = {"kind": "http", "url": "http://127.0.0.1:9/", "headers_env": {"X-Auth": "Bearer KEY_OF_TEST"}}
    config = {"embedding": {"provider": "none"}, "backends": {"away": away}}

    for environ, missing in (({"KEY_OF_TEST": KEY}, []), ({}, ["away"])):
        async with open_memory(workspace, state_dir, config, environ=environ, long_lived=False) as memory:
            assert [one.backend_id for one in memory.unavailable()] == missing
