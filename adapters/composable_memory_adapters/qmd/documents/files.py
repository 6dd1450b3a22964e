"""Opens files that QMD indexes: regular ones, of bounded size, where they were found to be."""

import errno
import os
import stat
from pathlib import Path

__all__ = ["read_text"]

READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a pipe in the place of the file must not hold us
    | getattr(os, "O_BINARY", 0)
)


def read_text(file: Path, *, max_bytes: int) -> str:
    """Return the text of the regular file at the absolute real path `file`; looks at the disk.

    Bytes that are not UTF-8 are replaced, and a mark of byte order at the beginning is left out.

    Raises:
        FileNotFoundError: it is not there, or a folder on the way has become a link to elsewhere.
        OSError: it cannot be read, is no regular file, or is larger than `max_bytes`.
    """
    with open(file, "rb", opener=lambda path, _flags: os.open(path, READ_FLAGS)) as opened:
        found = os.fstat(opened.fileno())
        if _is_elsewhere(opened.fileno(), file):
            raise FileNotFoundError(errno.ENOENT, "a symbolic link leads elsewhere", str(file))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(file))
        data = b"" if found.st_size > max_bytes else opened.read(max_bytes + 1)
    if max(found.st_size, len(data)) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(file))
    return data.decode("utf-8-sig", "replace")


def _is_elsewhere(descriptor: int, file: Path) -> bool:
    """Say whether the file that was opened is another than the one at `file`; only Linux can tell."""
    # Paths are checked before they are opened, and a folder can become a link in between.
    try:
        opened = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return False
    return opened.removesuffix(" (deleted)") != str(file)
