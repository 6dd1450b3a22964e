"""Reads a settings file once: the text that is parsed is the one whose hash and owner are known."""

import os
import stat
from hashlib import sha256
from pathlib import Path

from composable_memory.errors import ConfigError
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_FILE_BYTES = 2**20
ROOT_USER = 0
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
"""How a file is opened: as it is on Windows too, and without waiting at a pipe that nobody writes to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """A settings file as it was read: its text, the SHA-256 of its bytes, and the id of its owner."""

    path: Path
    text: str
    digest: str
    owner: int

    @property
    def is_of_a_stranger(self) -> bool:
        """Return whether somebody else owns the file or its folder, and so could have put there anything."""
        owners = {self.owner, self.path.parent.stat().st_uid}
        return os.name == "posix" and not owners <= {os.geteuid(), ROOT_USER}


def read_settings_file(path: Path) -> SettingsFile | None:
    """Return a file of at most a mebibyte of text in UTF-8, or None if there is none.

    Raises:
        ConfigError: it is no such file, or cannot be read.
    """
    try:
        with os.fdopen(os.open(path, _READ), "rb") as stream:
            found = os.fstat(stream.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError("memory", "not a regular file", origin=str(path))
            data = stream.read(MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError("memory", f"cannot be read: {error.strerror}", origin=str(path)) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError("memory", f"larger than {MAX_FILE_BYTES} bytes", origin=str(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("memory", "not text in UTF-8", origin=f"{path}:{line}") from error
    return SettingsFile(path=path, text=text, digest=sha256(data).hexdigest(), owner=found.st_uid)
