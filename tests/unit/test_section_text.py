"""A backend is entered in a settings file without a change to anything else, or not at all."""

from pathlib import Path

import pytest
import yaml

from composable_memory.config.section_text import UnsafeEdit, with_section
from composable_memory.errors import ConfigError
from composable_memory.types import JsonValue

SECTION: dict[str, JsonValue] = {
    "kind": "mcp",
    "command": ["npx", "-y", "@scope/it"],
    "arguments": {"maxResults": "{limit}", "on": "no"},
    "env": {"MY_KEY": "OUR_KEY"},
}
YAML = Path("config.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# mine\n",
        "# mine\nmemory:\n  # these\n  citations: 'on'   # always\n",
        "memory:\n    backends:\n        # 1\n        builtin: {}\n\n        wiki: {kind: http}\n    id: a\n",
        "memory:\r\n  backends:\r\n    builtin: {}\r\n",
        "memory:\n  backends:\n    builtin: {}",
    ],
)
def test_all_that_was_there_stays_as_it_was(text: str) -> None:
    after = with_section(text, YAML, "away", SECTION)
    lines = after.splitlines(keepends=True)
    assert [line for line in text.splitlines(keepends=True) if line not in lines] == []
    there = yaml.safe_load(after)["memory"]["backends"]
    assert there["away"] == SECTION
    assert {name: value for name, value in there.items() if name != "away"} == (
        ((yaml.safe_load(text) or {}).get("memory") or {}).get("backends") or {}
    )


def test_a_file_in_json_keeps_its_comments() -> None:
    text = '{\n  // mine\n  "memory": {"citations": "on"},\n}\n'
    after = with_section(text, Path("config.json"), "away", SECTION)
    assert "// mine" in after
    assert '"maxResults": "{limit}"' in after


@pytest.mark.parametrize(
    "text", ["memory: {citations: on}\n", "memory:\n", "memory:\n  backends: {builtin: {}}\n"]
)
def test_what_cannot_be_changed_safely_is_not_changed(text: str) -> None:
    with pytest.raises(UnsafeEdit):
        with_section(text, YAML, "away", SECTION)


def test_a_backend_that_is_there_is_not_replaced() -> None:
    for text in (
        "memory:\n  backends:\n    away: {kind: mcp}\n",
        "memory:\n  backends: [1]\n",
        "memory: ]\n",
    ):
        with pytest.raises(ConfigError):
            with_section(text, YAML, "away", SECTION)
