"""Reads files that QMD indexes: regular ones, of bounded size, where they were found to be."""

import os
from pathlib import Path

from composable_memory.paths import opened_file

__all__ = ["read_text"]


def read_text(file: Path, *, max_bytes: int) -> str:
    """Return the text of the regular file at the absolute real path `file`; looks at the disk.

    Bytes that are not UTF-8 are replaced, and a mark of byte order at the beginning is left out.

    Raises:
        FileNotFoundError: it is not there, or a folder on the way has become a link to elsewhere.
        OSError: it cannot be read, is no regular file, or is larger than `max_bytes`.
    """
    with (
        opened_file(file, max_bytes=max_bytes) as (descriptor, _),
        os.fdopen(descriptor, "rb", closefd=False) as opened,
    ):
        # It may grow while it is read.
        return opened.read(max_bytes).decode("utf-8-sig", "replace")
