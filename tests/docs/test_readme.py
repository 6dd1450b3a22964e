"""What the README and the other pages show is true."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli_process import run_cli

ROOT = Path(__file__).parents[2]
PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
BLOCKS = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
NOT_RUN = ("make", "pip", "npm", "cmem connect")
"""What installs, runs these very tests, or asks first."""
SHOWN = {
    "battery trolley kept": "lives under the stairs",
    "Redis Streams": "returns to Redis Streams",
    "cmem get": "The spare battery trolley lives under the stairs",
    "logs show": "query",
    "cmem recall Alice": "prefers short replies",
    "cmem reflect": "bank/",
    "cmem forget": "prefers short replies",
    "where did Alice work": "Acme",
    "graph timeline": "Beacon Labs",
    'search "spare battery trolley"': "under the stairs",
}
"""Which answer is to be seen below which command."""
REFUSED = re.compile("exits with 1")
"""What the page says of a command that does not do it yet."""
QMD = Path(sys.executable).parents[1] / "qmd" / "node_modules" / ".bin"
CODE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
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


@pytest.mark.timeout(320)  # some twenty commands, each a process of its own
def test_the_commands_of_the_readme_run_on_the_sample_notes_and_show_the_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other, as somebody would who copies them."""
    if not (find_spec("falkordb") and find_spec("graphiti_core")):
        pytest.skip("the extra graphiti is not installed")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("CI", "true")  # keeps QMD from its models
    monkeypatch.setenv("PATH", f"{QMD}{os.pathsep}{os.environ['PATH']}")
    lines = [line for block in BLOCKS for line in block.splitlines() if not line.startswith((*NOT_RUN, "#"))]
    for line in lines:
        words = shlex.split(line, comments=True)
        environ = dict(os.environ)
        while words and "=" in words[0]:
            name, value = words.pop(0).split("=")
            environ[name] = value
        match words:
            case ["cp", "-r", source, target, "&&", "cd", _]:
                monkeypatch.chdir(shutil.copytree(source, Path(target).expanduser()))
            case ["export", assignment]:
                monkeypatch.setenv(*assignment.split("="))
            case ["cmem", *args] if QMD.is_dir() or "=qmd" not in line:
                done = run_cli(*args, environ=environ)
                assert done.returncode == (1 if REFUSED.search(line) else 0), (line, done)
                for command, answer in SHOWN.items():
                    assert command not in line or answer in done.stdout, (line, done)
            case _:
                assert not words or "=qmd" in line, line
    assert [command for command in SHOWN if command not in "".join(BLOCKS)] == []


def test_every_link_inside_the_project_leads_somewhere() -> None:
    ours = [one for one in ROOT.iterdir() if not one.name.startswith((".venv", "examples"))]
    pages = sorted(
        [*ROOT.glob("*.md"), *(page for one in ours if one.is_dir() for page in one.rglob("*.md"))]
    )
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / target).exists()
    ]

    assert ROOT / "docs" / "index.md" in pages
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
