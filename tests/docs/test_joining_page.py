"""The examples of the page on foreign memories: they are valid settings, and the program answers."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from composable_memory_adapters.external.presets import HTTP_PRESETS, MCP_PRESETS
from composable_memory_adapters.external.settings import HttpSettings, McpSettings

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
