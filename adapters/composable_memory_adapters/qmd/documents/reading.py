"""Reads the files that QMD indexes, and no others."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from composable_memory.errors import MemoryPathError
from composable_memory.paths import canonical_key
from composable_memory.types import MemoryFileSlice
from composable_memory_adapters.excerpts import excerpt
from composable_memory_adapters.qmd.documents.collections import resolve
from composable_memory_adapters.qmd.documents.files import read_text
from composable_memory_adapters.qmd.values import Collection

__all__ = ["read"]

MAX_FILE_BYTES = 64 * 1024 * 1024


async def read(
    rel_path: str,
    *,
    from_line: int | None = None,
    lines: int | None = None,
    collections: Sequence[Collection],
    workspace: Path,
) -> MemoryFileSlice:
    """Return a file by the name that results give it, or at least one line of it, from line 1 on if not told.

    A missing file has empty text.

    Raises:
        MemoryPathError: no collection covers the file, or it cannot be read; the message says why.
    """
    text = await asyncio.to_thread(_text_of, rel_path, collections, workspace)
    return MemoryFileSlice(text=excerpt(text, from_line, lines), path=canonical_key(rel_path))


def _text_of(rel_path: str, collections: Sequence[Collection], workspace: Path) -> str:
    file = resolve(rel_path, collections, workspace)
    try:
        return read_text(file, max_bytes=MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise MemoryPathError(rel_path, error.strerror or str(error)) from error
