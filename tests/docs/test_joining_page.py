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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from composable_memory.cli import app
from composable_memory_adapters.external.settings import HTTP_PRESETS, MCP_PRESETS, HttpSettings, McpSettings
from tests.integration.external.preset_server import TOOLS
from tests.integration.external.real_servers import DATASETTE, basic_memory, qmd, reference_server
from tests.integration.external.test_presets import REAL, SERVER, SERVICES
from tests.integration.external.test_real_servers import PUMP
from tests.integration.external.tool_server import answer_to
from tests.variants import variants

PAGE = (Path(__file__).parents[2] / "docs" / "joining.md").read_text(encoding="utf-8")
SETTINGS: dict[str, type[BaseModel]] = {"mcp": McpSettings, "http": HttpSettings}


def test_the_settings_on_the_page_are_settings() -> None:
    texts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    sections = [one for text in texts for one in yaml.safe_load(text)["memory"]["backends"].values() if one]
    checked = [SETTINGS[one.pop("kind")].model_validate(one) for one in sections]
    assert [type(one) for one in checked] == [McpSettings, HttpSettings]


def test_the_program_on_the_page_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPOSABLE_MEMORY_STATE_DIR", str(tmp_path / "state"))
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/joining.md", "exec"), names)
    response = asyncio.run(names["ask"]())
    assert [(one.path, one.source_backend) for one in response.results] == [("wiki://pump.md", "wiki")]


Answers = Callable[[Any], object]
"""What a service answers to what it is sent; None to a notification."""


@contextmanager
def answering(answers: Answers) -> Iterator[str]:
    """Yield the address of a service."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            answer = answers(json.loads(sent or b"null"))
            body = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(200 if body else 202)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the interface's

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def answers_of(kind: str, preset: str) -> Answers:
    """Return what the service of a preset answers."""
    if kind == "http":
        return lambda _: SERVICES[preset][2]
    tool = TOOLS[preset]
    return lambda sent: answer_to(sent, {tool.__name__: tool}) if "id" in sent else None


def program(folder: Path, name: str, *words: object, **environ: str) -> None:
    """Have a program of the page start something else, with these variables, whatever it is given."""
    (folder / "bin").mkdir(exist_ok=True)
    file = folder / "bin" / name
    given = [f"export {one}={shlex.quote(value)}\n" for one, value in environ.items()]
    file.write_text(f"#!/bin/sh\n{''.join(given)}exec {shlex.join(map(str, words))}\n", encoding="utf-8")
    file.chmod(0o700)


SESSIONS = {
    (*re.findall(r"kind: (\w+)", one)[:1], *re.findall(r"preset: ([\w-]+)", one)[:1]): one
    for one in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
}


def test_each_preset_has_a_session_on_the_page() -> None:
    presets = [("mcp", one) for one in MCP_PRESETS] + [("http", one) for one in HTTP_PRESETS]
    assert sorted(SESSIONS) == sorted(presets)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with a folder of no notes, where we are, and with programs of its own."""
    (tmp_path / "notes").mkdir()
    monkeypatch.chdir(tmp_path / "notes")
    for name, value in {"HOME": "", "XDG_CONFIG_HOME": ".config", "XDG_STATE_HOME": ".state"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def replay(session: str, home: Path, monkeypatch: pytest.MonkeyPatch, hosted: str = "") -> None:
    """Do what a session does, with a file that it shows; its service is at `hosted`."""
    for step in session.replace("\\\n", "").removeprefix("$ ").split("\n$ "):
        command, _, printed = step.partition("\n")
        match shlex.split(command):
            case ["cat", file]:
                shown = yaml.safe_load(printed)
                for section in shown["memory"]["backends"].values():
                    if hosted:
                        url = section.get("url") or HTTP_PRESETS[section["preset"]]["url"]
                        section["url"] = hosted + urlsplit(str(url)).path
                path = home / file.removeprefix("~/")
                path.parent.mkdir(parents=True)
                path.write_text(yaml.safe_dump(shown), encoding="utf-8")
            case ["export", *variables]:
                for one in variables:
                    name, _, value = one.partition("=")
                    monkeypatch.setenv(name, value.replace("~", str(home)).replace("…", "a-key"))
            case ["cmem", *words]:
                done = CliRunner().invoke(app, words)
                assert steady(done.stdout.replace(str(home), "~")) == steady(printed), done.stderr
            case _:
                raise AssertionError(command)


HOSTED = [one for one, text in sorted(SESSIONS.items()) if one[1] not in REAL and "command:" not in text]


@pytest.mark.parametrize(("kind", "preset"), variants(HOSTED, ("http", "zep-v3"), ("mcp", "hindsight")))
def test_a_session_with_a_service_goes_as_it_is_printed(
    kind: str, preset: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(answers_of(kind, preset)) as url:
        replay(SESSIONS[kind, preset], home, monkeypatch, url)


@pytest.mark.parametrize(
    ("preset", "command"),
    [("mem0", "uvx"), pytest.param("memsearch", "python", marks=pytest.mark.thorough)],
)
def test_a_session_with_a_server_that_is_started_goes_as_it_is_printed(
    preset: str, command: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(home, command, sys.executable, SERVER, preset, PYTHONPATH=str(SERVER.parents[3]))
    replay(SESSIONS["mcp", preset], home, monkeypatch)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("preset", "command", "place"),
    [
        pytest.param("basic-memory", "uvx", "pump.md", marks=pytest.mark.needs("basic-memory")),
        pytest.param("qmd", "qmd", "pump.md", marks=pytest.mark.needs("qmd")),
        pytest.param("server-memory", "npx", "Harbour", marks=pytest.mark.needs("mcp-servers")),
    ],
)
def test_a_session_with_a_real_server_goes_as_it_is_printed(
    preset: str, command: str, place: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = {"basic-memory": basic_memory, "qmd": qmd, "server-memory": reference_server}[preset]
    (home / "server").mkdir()
    section, environ = prepared(home / "server", {place: PUMP})
    program(home, command, *section["command"], **environ)
    replay(SESSIONS["mcp", preset], home, monkeypatch)


def steady(printed: str) -> list[str]:
    """Return the words of what was printed, without times that change; a file of the vault is of today."""
    return re.sub(r"\d+ ms|as of \S+|(?<=\[vault\] )\S+", "", printed).split()


@pytest.mark.needs("datasette")
def test_the_session_with_datasette_goes_as_it_is_printed(tmp_path: Path) -> None:
    programs = [DATASETTE.parent, Path(sys.executable).parent]
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
