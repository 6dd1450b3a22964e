"""The watch over the event loop sees what it is there for: otherwise every test would pass it by."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from blockbuster import BlockingError

from composable_memory.config.layers import load_settings
from composable_memory.paths import resolve_memory_file
from composable_memory_adapters.vectors.sqlite_vec import load


def read_settings(folder: Path) -> None:
    load_settings(folder, environ={})


def look_at_the_disk(folder: Path) -> None:
    resolve_memory_file("MEMORY.md", workspace=folder)


def ask_the_database(folder: Path) -> None:
    load(apsw.Connection(str(folder / "index.sqlite")))


BLOCKING = [read_settings, look_at_the_disk, ask_the_database]


@pytest.mark.parametrize("call", BLOCKING)
async def test_a_blocking_call_of_ours_on_the_loop_is_an_error(
    call: Callable[[Path], None], tmp_path: Path
) -> None:
    with pytest.raises(BlockingError):
        call(tmp_path)


@pytest.mark.parametrize("call", BLOCKING)
async def test_the_same_call_in_a_thread_is_fine(call: Callable[[Path], None], tmp_path: Path) -> None:
    await asyncio.to_thread(call, tmp_path)


async def test_a_test_itself_may_write_a_file(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("a note", encoding="utf-8")

    assert (tmp_path / "note.md").read_text(encoding="utf-8") == "a note"
