"""Notes, and memories of them, for the frameworks; without a framework its tests are skipped."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from composable_memory import BlockingMemory, open_memory_sync
from tests.needs import REQUIRED
from tests.notes import write_notes

KEYWORDS = {"memory": {"embedding": {"provider": "none"}}}
PACKAGES = {
    "test_langchain.py": "langchain",
    "test_langgraph.py": "langgraph",
    "test_llama_index.py": "llama_index",
    "test_openai_agents.py": "agents",
    "test_pydantic_ai.py": "pydantic_ai",
    "test_page.py": "pydantic_ai",
}

if "frameworks" not in REQUIRED:
    collect_ignore = [file for file, package in PACKAGES.items() if find_spec(package) is None]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    notes = {
        "MEMORY.md": "# Ports\n\nThe dock controller listens on port 8443.\n",
        "memory/2026-05-04.md": "# Tuesday\n\nThe dock crane was repaired. #work\n",
        "memory/2026-05-05.md": "# Wednesday\n\nThe dock was closed because of wind.\n",
        "memory/2026-05-06.md": "# Thursday\n\nThe dock opened again at noon.\n",
    }
    return write_notes(tmp_path / "notes", notes)


@pytest.fixture
def memory(workspace: Path, state_dir: Path) -> Iterator[BlockingMemory]:
    with open_memory_sync(workspace, state_dir, KEYWORDS, long_lived=False) as opened:
        opened.sync()
        yield opened
