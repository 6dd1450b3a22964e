"""The example of the graph memory runs, and answers a question of a time with what held then."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("falkordb")

ROOT = Path(__file__).parents[2]
QUESTIONS = ("Where does Nadia work?", "Where did Nadia work as of February 2026?")


def test_the_example_of_the_graph_memory_runs(tmp_path: Path) -> None:
    houses = (ROOT, *(ROOT / house for house in ("adapters", "feedback", "ops_logs")))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "graph_memory.py")],  # graphiti-core does not bear -W error
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(map(str, houses)), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    now, then = (lines[lines.index(question) + 1] for question in QUESTIONS)
    assert "Tidegate Robotics. (since 2026-03-02)" in now
    assert "Lanternwheel. (2026-01-05 to 2026-03-02; no longer holds)" in then
    assert '  n0["Nadia Ferris"]' in lines
