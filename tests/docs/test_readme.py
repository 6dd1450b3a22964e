"""What the README and the other pages show is true."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in ROOT.glob("**/*.md")
    if not path.relative_to(ROOT).parts[0].startswith((".venv", "examples"))
)
PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_readme_runs_and_says_something(number: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[number], encoding="utf-8")
    path = [str(ROOT), *(str(ROOT / house) for house in ("adapters", "feedback", "ops_logs"))]

    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=ROOT,
        env={"COMPOSABLE_MEMORY_STATE_DIR": str(tmp_path / "state"), "PYTHONPATH": ":".join(path)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert ".md" in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_inside_the_project_leads_somewhere(page: Path) -> None:
    broken = [
        target
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]

    assert broken == []


def test_the_readme_names_only_targets_that_the_makefile_has() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    shown = {
        words[1]
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("make ") and (words := shlex.split(line, comments=True))
    }

    assert shown
    assert shown <= targets
