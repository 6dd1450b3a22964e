"""The examples of the page on foreign memories: they are valid settings, and the program answers."""

import asyncio
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from composable_memory.cli import app
from composable_memory_adapters.external.presets import HTTP_PRESETS, MCP_PRESETS
from composable_memory_adapters.external.settings import HttpSettings, McpSettings
from tests.integration.external.real_servers import DATASETTE, need
from tests.integration.external.test_presets import SERVER, SERVICES

PAGE = (Path(__file__).parents[2] / "docs" / "joining.md").read_text(encoding="utf-8")
SETTINGS: dict[str, type[BaseModel]] = {"mcp": McpSettings, "http": HttpSettings}


def test_the_settings_on_the_page_are_settings() -> None:
    texts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    sections = [one for text in texts for one in yaml.safe_load(text)["memory"]["backends"].values() if one]
    checked = [SETTINGS[one.pop("kind")].model_validate(one) for one in sections]
    assert [type(one) for one in checked] == [McpSettings, HttpSettings]


def test_the_page_names_every_preset() -> None:
    assert {name for name in {*MCP_PRESETS, *HTTP_PRESETS} if name not in PAGE} == set()


def test_the_program_on_the_page_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPOSABLE_MEMORY_STATE_DIR", str(tmp_path / "state"))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/joining.md", "exec"), names)
    response = asyncio.run(names["ask"]())
    assert [(one.path, one.source_backend) for one in response.results] == [("wiki://pump.md", "wiki")]


@contextmanager
def answering(answer: object) -> Iterator[str]:
    """Yield the address of a service that gives one answer to whatever it is asked."""
    body = json.dumps(answer).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the interface's

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_sessions_with_services_go_as_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = session_of("zep", tmp_path, monkeypatch)
    presets = []
    for step in steps:
        command, _, printed = step.partition("\n")
        presets += re.findall(r"--preset (\S+)", command)
        (host,) = re.findall(r"https?://[^/]+", command)
        with answering(SERVICES[presets[-1]][2]) as url:
            done = CliRunner().invoke(app, shlex.split(command.replace(host, url))[1:])
        shown = done.output.replace(str(tmp_path), "~").replace(url, host)
        assert steady(shown) == steady(printed), command
    assert presets == ["mem0-server", "zep", "supermemory", "letta"]


def test_the_session_with_mem0_goes_as_it_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (step,) = session_of("mem0 ", tmp_path, monkeypatch)
    command, _, printed = step.partition("\n")
    server = tmp_path / "uvx"
    server.write_text(f"#!/bin/sh\nPYTHONPATH={SERVER.parents[3]} exec {sys.executable} {SERVER} mem0\n")
    server.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert steady(done.output.replace(str(tmp_path), "~")) == steady(printed)


def session_of(preset: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the steps of the session with a preset, with a home of its own and its variables set."""
    (folder / "notes").mkdir()
    monkeypatch.chdir(folder / "notes")
    for name, value in {"HOME": "", "XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".state"}.items():
        monkeypatch.setenv(name, str(folder / value))
    sessions = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    (session,) = (one for one in sessions if f"--preset {preset}" in one)
    first, *steps = str(session).replace("\\\n", "").removeprefix("$ ").split("\n$ ")
    for one in shlex.split(first)[1:]:
        monkeypatch.setenv(one.partition("=")[0], "a-key")
    return steps


def steady(printed: str) -> list[str]:
    """Return the words of what was printed, without times that change."""
    return re.sub(r"\d+ ms|as of \S+", "", printed).split()


def test_the_session_with_datasette_goes_as_it_is_printed(tmp_path: Path) -> None:
    programs = [Path(need(DATASETTE, "make datasette")).parent, Path(sys.executable).parent]
    environ = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "XDG_STATE_HOME": str(tmp_path / ".state"),
        "LANG": "C.UTF-8",
    }
    (tmp_path / "notes").mkdir()
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    section = PAGE.partition("### Datasette")[2].partition("## A retriever")[0]
    (session,) = re.findall(r"```console\n(.*?)```", section.replace("8001", str(port)), re.DOTALL)
    server: subprocess.Popen[bytes] | None = None
    try:
        for step in session.replace("\\\n", "").removeprefix("$ ").split("\n$ "):
            command, _, printed = step.partition("\n")
            where: Any = {"cwd": tmp_path / "notes", "env": environ}
            if command.startswith("pip install"):  # `make datasette`
                continue
            if command.endswith("&"):
                server = subprocess.Popen(
                    command.removesuffix("&").split(), **where, stderr=subprocess.DEVNULL
                )
                wait_for(port)
                continue
            done = subprocess.run(
                ["bash", "-c", command], **where, capture_output=True, text=True, timeout=300
            )
            assert done.returncode == 0, (command, done.stderr)
            shown = done.stdout.replace(str(tmp_path), "~")
            assert steady(shown) == steady(printed), command
    finally:
        if server:
            server.kill()
            server.wait()


def wait_for(port: int) -> None:
    """Wait until a server listens at a port, for two minutes at most."""
    for _ in range(600):
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10):
            return
        time.sleep(0.2)
    raise TimeoutError(port)
