"""The page on forgetting: its examples run, and the folders that it names are those that there are."""

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from composable_memory import open_memory
from composable_memory.cli import app

PAGE = (Path(__file__).parents[2] / "docs" / "forgetting.md").read_text(encoding="utf-8")
NOTE = """# Day

The ferry leaves at nine.

## Retain
- W @Peter: The spare key lies under the flowerpot, where the cat sleeps. ^m4k29x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with `notes` and `state`, in which the examples run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPOSABLE_MEMORY_STATE_DIR", str(tmp_path / "state"))
    note = tmp_path / "notes" / "memory" / "2026-05-03.md"
    note.parent.mkdir(parents=True)
    note.write_text(NOTE, encoding="utf-8")
    return tmp_path


def test_the_commands_do_what_the_page_says(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)[0]
    monkeypatch.chdir(folder / "notes")
    note = folder / "notes" / "memory" / "2026-05-03.md"
    for line, code in zip(shell.splitlines(), (1, 0, 0), strict=True):
        note.write_text(NOTE, encoding="utf-8")
        result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])

        assert result.exit_code == code, line
        assert ("flowerpot" in note.read_text()) == (code == 1)


def test_the_program_forgets(folder: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    exec(compile(code, "docs/forgetting.md", "exec"), {"__name__": "__main__"})

    assert "flowerpot" not in (folder / "notes" / "memory" / "2026-05-03.md").read_text()


def test_every_folder_of_the_state_is_named(folder: Path) -> None:
    async def use() -> None:
        async with open_memory("notes", "state", long_lived=False) as memory:
            await memory.sync()
            found = await memory.query("spare key")
            await memory.learning.judging.judge(found.trace_id, "1", relevance=1.0)
            await memory.forget(await memory.plan_forgetting("^m4k29x"))

    asyncio.run(use())

    for path in (folder / "state").iterdir():
        if path.is_dir():
            assert f"`{path.name}/" in PAGE, path.name
