"""The programs of docs/frameworks.md run and find what they ask for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.frameworks.scripted_model import ToolCall, scripted_model

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "frameworks.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


EXAMPLE = ROOT / "examples" / "agent.py"


def run(call: ToolCall, cwd: Path, *program: str) -> str:
    """Return what a program prints whose model makes one call."""
    with scripted_model(call) as model:
        known = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        known |= {"OPENAI_AGENTS_DISABLE_TRACING": "1", "COMPOSABLE_MEMORY_STATE_DIR": str(cwd / "state")}
        done = subprocess.run(
            [sys.executable, *program],
            cwd=cwd,
            env=os.environ | known,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_finds_what_it_asks_for(number: int, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    note = "# Ports\n\nThe dock controller listens on port 8443. #harbour\n"
    (tmp_path / "notes" / "MEMORY.md").write_text(note, encoding="utf-8")
    tool = "search_notes" if "search_notes" in PROGRAMS[number] else "memory_search"
    call = ToolCall(tool, {"query": "dock controller port"})

    assert "8443" in run(call, tmp_path, "-c", PROGRAMS[number])


def test_the_agent_of_the_example_answers_from_the_sample_notes(tmp_path: Path) -> None:
    call = ToolCall("memory_search", {"query": "dispatch queue Redis Streams"})

    assert "returns to Redis Streams" in run(call, tmp_path, str(EXAMPLE), "openai:gpt-5")
