"""A backend is entered in a settings file without a change to anything else, or not at all."""

import re
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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# mine\nmemory:\n  # these\n  citations: 'on'",
        "memory:\r\n  backends:\r\n    builtin: {}\r\nworkspaces:\r\n  /other: {}\r\n",
        "  workspaces:\n    # this one\n    '/srv/a: b/no.te s.env':\n      id: a\n",
        '{\n  // mine\n  "memory": {"citations": "on"},\n}\n',
    ],
)
def test_it_can_be_entered_for_one_workspace(text: str) -> None:
    folder = Path("/srv/a: b/no.te s.env")
    file = Path("config.json") if text.startswith("{") else YAML
    after = with_section(text, file, "away", SECTION, folder)
    lines = after.splitlines()
    assert [line for line in text.splitlines() if line not in lines and '"memory"' not in line] == []
    there = yaml.safe_load(re.sub("//.*", "", after) if text.startswith("{") else after)
    assert there["workspaces"][str(folder)]["backends"]["away"] == SECTION
    for workspace in (folder, None):
        with pytest.raises(ConfigError):
            with_section(with_section(text, file, "away", SECTION), file, "away", SECTION, workspace)


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
