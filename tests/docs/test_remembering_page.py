"""What the page on remembering shows runs, and its example is a line as it is written."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from composable_memory.retain.remember import MAX_CHARS
from composable_memory.retain.retained_lines import format_retained_line, read_retained_line, retained_lines
from tests.cli_process import run_cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "remembering.md").read_text(encoding="utf-8")


def test_what_the_page_shows_runs_and_is_in_the_note(tmp_path: Path) -> None:
    (commands,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    environ = {**os.environ, "COMPOSABLE_MEMORY_STATE_DIR": str(tmp_path / "state")}
    workspace = tmp_path / "notes"
    workspace.mkdir()

    printed = [
        run_cli(*shlex.split(one)[1:], folder=workspace, environ=environ).stdout
        for one in commands.splitlines()
    ]
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=workspace,
        env=environ,
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    printed.append(ran.stdout)

    (note,) = (workspace / "memory").iterdir()
    text = note.read_text(encoding="utf-8")
    assert [one.type for one in retained_lines(text)] == ["opinion", "world", "experience"]
    assert all(f"memory/{note.name}#L{line}" in printed[at] for line, at in ((2, 0), (3, 1), (4, 3)))
    assert "Prefers short replies in chat." in printed[2]


def test_the_example_is_a_line_as_it_is_written() -> None:
    shown = [row.strip() for row in re.findall(r"^    (- \w.*)$", PAGE, re.M)]

    assert shown
    for row in shown:
        line = read_retained_line(row)
        assert line is not None
        assert format_retained_line(line) == row
    assert f"{MAX_CHARS:,} characters" in PAGE
