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


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_finds_what_it_asks_for(number: int, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    note = "# Ports\n\nThe dock controller listens on port 8443. #harbour\n"
    (tmp_path / "notes" / "MEMORY.md").write_text(note, encoding="utf-8")
    tool = "search_notes" if "search_notes" in PROGRAMS[number] else "memory_search"
    with scripted_model(ToolCall(tool, {"query": "dock controller port"})) as model:
        known = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        known |= {
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "COMPOSABLE_MEMORY_STATE_DIR": str(tmp_path / "state"),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAMS[number]],
            cwd=tmp_path,
            env=os.environ | known,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert "8443" in done.stdout
