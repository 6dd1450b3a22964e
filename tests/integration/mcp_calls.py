"""What the tests of the MCP server share: its settings, and how its answers are read."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.types import CallToolResult, TextContent

WORDS_ONLY = "memory: {embedding: {provider: none}, query: {timeout_ms: 60000}}"
"""Settings without an embedding provider, which takes a second to load, and with time for a busy machine."""


def words_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let memories search by `WORDS_ONLY`."""
    config = folder / "config.yaml"
    config.write_text(WORDS_ONLY, encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))


def document(result: CallToolResult) -> dict[str, Any]:
    """Return the one document of an answer: it is in the text, and not a second time elsewhere."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert result.structured_content is None
    found: dict[str, Any] = json.loads(block.text)
    return found
