"""A file that another program saves at any moment: what it saves stays, whatever we do to the file then."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from composable_memory.connect.edits import Edit, write
from composable_memory.errors import ConfigError
from composable_memory.retain.note_file import NoteFile
from tests.rounds import rounds

BEFORE = "## Retain\n"
ROUNDS = rounds(250, explore=20_000)
EDITOR = """
import os, random, sys, time
draft = "{}~".format(sys.argv[1])
for line in sys.stdin:
    way, text = line.split(" ", 1)
    until = time.perf_counter() + random.random() * float(sys.argv[2])
    while time.perf_counter() < until:
        pass
    target = sys.argv[1] if way == "in-place" else draft
    with open(target, "w") as file:
        file.write(text)
    if way == "replaced":
        os.replace(draft, sys.argv[1])
    print("saved", flush=True)
"""
"""Saves a line in both ways in which editors do, some moments after it was told to."""

Race = Callable[[Callable[[], None], float], None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    return tmp_path / "memory" / "day.md"


@pytest.fixture
def race(file: Path) -> Race:
    """Do something with the file again and again, each time while an editor saves it."""

    def against(do: Callable[[], None], spread_s: float) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", EDITOR, str(file), str(spread_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        ) as editor:
            assert editor.stdin is not None
            assert editor.stdout is not None
            for number in range(ROUNDS):
                file.write_text(BEFORE)
                saved = f"- line {number} of the editor\n"
                editor.stdin.write(f"{'in-place' if number % 2 else 'replaced'} {saved}")
                do()
                assert editor.stdout.readline() == "saved\n"
                assert file.read_text() == saved
                assert [one.name for one in file.parent.iterdir()] == [file.name]
            editor.stdin.close()

    return against


def test_a_note_that_is_saved_while_it_is_removed_stays(file: Path, race: Race) -> None:
    async def remove() -> None:
        async with NoteFile(file.parent.parent, "memory/day.md") as note:
            await note.remove(BEFORE)

    with asyncio.Runner() as runner:
        race(lambda: runner.run(remove()), 0.0007)

    file.write_text(BEFORE)
    asyncio.run(remove())
    assert not file.exists()


@pytest.mark.parametrize("after", ["{}\n", None])
def test_settings_that_an_agent_saves_while_they_are_changed_stay(
    file: Path, tmp_path: Path, race: Race, after: str | None
) -> None:
    edit = Edit(path=file, before=BEFORE, after=after)

    def change() -> None:
        shutil.rmtree(tmp_path / "state", ignore_errors=True)
        try:
            write(edit, tmp_path / "state", is_private=True)
        except ConfigError:  # it gives up, and leaves no copy
            assert not [*(tmp_path / "state" / "connect").glob("*")]

    race(change, 0.002)

    file.write_text(BEFORE)
    change()
    assert (file.read_text() if file.exists() else None) == after


def test_a_link_that_takes_the_place_of_settings_stays(file: Path, tmp_path: Path) -> None:
    edit = Edit(path=file, before=BEFORE, after="{}\n")
    (tmp_path / "real").write_text(BEFORE)
    file.symlink_to(tmp_path / "real")

    with pytest.raises(ConfigError):
        write(edit, tmp_path / "state", is_private=True)

    assert file.is_symlink()
    assert (tmp_path / "real").read_text() == BEFORE
