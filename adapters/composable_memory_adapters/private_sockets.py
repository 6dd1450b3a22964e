"""Where a server of ours listens: a Unix socket in a folder that nobody else of the machine can enter."""

import os
import tempfile
from pathlib import Path

__all__ = ["new_socket"]

LONGEST_SOCKET = 103  # bytes; macOS takes no more, Linux four
SOCKET = "s"


def new_socket() -> Path:
    """Return a path for a socket, short enough for one, in a new folder that only we can enter.

    Raises:
        OSError: there is no place for one.
    """
    for base in (None, "/tmp"):  # noqa: S108 - mkdtemp makes it safe, and some places for such things are too long
        socket = Path(tempfile.mkdtemp(prefix="cmem-", dir=base)) / SOCKET
        if len(os.fsencode(socket)) <= LONGEST_SOCKET:
            return socket
        socket.parent.rmdir()
    raise OSError(f"the path of a temporary folder is too long for a socket: {tempfile.gettempdir()}")
