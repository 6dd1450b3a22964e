"""The examples of the page on foreign memories: they are valid settings, and the program answers."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from composable_memory_adapters.external.presets import HTTP_PRESETS, MCP_PRESETS
from composable_memory_adapters.external.settings import HttpSettings, McpSettings
from tests.integration.external.real_servers import DATASETTE, need

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
            assert re.sub(r"\d+ ms", "ms", shown).split() == re.sub(r"\d+ ms", "ms", printed).split(), command
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
