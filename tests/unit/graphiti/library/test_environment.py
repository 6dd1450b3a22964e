"""graphiti-core is imported without its telemetry, and leaves the environment as it found it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from composable_memory_adapters.graphiti.library import undisturbed
from tests.architecture.sources import HOUSES
from tests.variants import variants

pytest.importorskip("graphiti_core")

PROGRAM = """
import asyncio, json, os
before = dict(os.environ)
from composable_memory_adapters.graphiti.library import load
asyncio.run(load())
from graphiti_core.embedder.client import EMBEDDING_DIM
print(json.dumps([before == dict(os.environ), EMBEDDING_DIM, "PLANTED" in os.environ]))
"""


def run_python(program: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(house.parent) for house in HOUSES.values())
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={"PYTHONPATH": paths, "HOME": str(folder), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def test_a_dotenv_of_the_workspace_does_not_get_into_the_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(
        "PLANTED=1\nOPENAI_API_KEY=sk-planted\nEMBEDDING_DIM=7\n", encoding="utf-8"
    )

    run = run_python(PROGRAM, tmp_path, EMBEDDING_DIM="not a number", SEMAPHORE_LIMIT="many")

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [True, 1024, False]


def test_what_the_block_changes_is_changed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING_DIM", "384")
    monkeypatch.setenv("GRAPHITI_TELEMETRY_ENABLED", "true")
    before = dict(os.environ)

    with undisturbed():
        inside = dict(os.environ)
        os.environ["PLANTED"] = "1"

    assert "EMBEDDING_DIM" not in inside
    assert inside["GRAPHITI_TELEMETRY_ENABLED"] == "false"
    assert dict(os.environ) == before


@pytest.mark.parametrize("package", variants(["graphiti_core", "httpx", "openai"], "graphiti_core"))
def test_a_missing_package_is_told_with_what_to_install(package: str, tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
sys.modules[{package!r}] = None
from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.graphiti.library import load
try:
    asyncio.run(load())
except BackendUnavailable as error:
    print(error)
"""
    run = run_python(program, tmp_path)

    assert package in run.stdout, run.stderr
    assert "composable-memory[graphiti]" in run.stdout
