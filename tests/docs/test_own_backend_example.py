"""The example of a memory made of parts runs, and finds what it was told."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_of_an_own_backend_runs(tmp_path: Path) -> None:
    houses = (ROOT, *(ROOT / house for house in ("adapters", "feedback", "ops_logs")))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "own_backend.py")],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(map(str, houses))},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "charging racks" in done.stdout
    assert "Nadia: I moved from Millrace" in done.stdout
