"""The adapter of `adapters/README.md` passes its contract, run in a folder of its own as its author would."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSES = [str(ROOT), *(str(ROOT / name) for name in ("adapters", "feedback", "ops_logs"))]


def programs() -> list[str]:
    """Return the Python programs of the page: the adapter, and its test."""
    page = (ROOT / "adapters" / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    # A place of its own for temporary files: at its end pytest removes what earlier runs left in the shared
    # one, before it prints its summary. After a run of the whole suite that takes minutes on a slow disk.
    options = ["-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--basetemp", str(folder / "tmp")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *HOUSES])},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def write_author_folder(folder: Path, adapter: str, test: str) -> None:
    (folder / "lines.py").write_text(adapter, encoding="utf-8")
    (folder / "test_lines.py").write_text(test, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")


def test_the_adapter_of_the_page_passes_its_contract(tmp_path: Path) -> None:
    write_author_folder(tmp_path, *programs())

    run = run_pytest(tmp_path)

    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"\d\d passed", run.stdout)


@pytest.mark.thorough
def test_an_author_whose_adapter_breaks_a_promise_sees_what_was_expected(tmp_path: Path) -> None:
    adapter, test = programs()
    write_author_folder(tmp_path, adapter.replace("score=share", "score=share * 2"), test)

    run = run_pytest(tmp_path)

    assert run.returncode == 1
    assert "test_every_result_is_sound" in run.stdout
    assert "assert 2.0 <= 1.0" in run.stdout  # both sides of the comparison, not a bare AssertionError
