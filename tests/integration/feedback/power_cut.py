"""Keeps beside each file that SQLite writes what of it was synced: what a power cut would leave.

Run as a program of its own: `python -m tests.integration.feedback.power_cut STORE DISK STATEMENTS`. It puts
a layer over SQLite's access to files, by SQLite's own interface for that, which copies
a file to DISK whenever it is synced, and runs STATEMENTS with `store` open and a second reader beside it.
What was written and not synced is not on DISK.
"""

import ctypes
import os
import sys
from contextlib import closing
from pathlib import Path
from shutil import copyfile

_INT, _POINTER, _TEXT = ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p
_OPEN = ctypes.CFUNCTYPE(_INT, _POINTER, _POINTER, _POINTER, _INT, _POINTER)
_SYNC = ctypes.CFUNCTYPE(_INT, _POINTER, _INT)


class Vfs(ctypes.Structure):
    """The beginning of `sqlite3_vfs`; the rest is copied as it is."""

    _fields_ = (
        ("version", _INT),
        ("file_bytes", _INT),
        ("path_chars", _INT),
        ("next", _POINTER),
        ("name", _TEXT),
        ("data", _POINTER),
        ("open", _POINTER),
        ("rest", _POINTER * 15),
    )


class Methods(ctypes.Structure):
    """The beginning of `sqlite3_io_methods`: close, read, write, truncate, sync, and the rest."""

    _fields_ = (("version", _INT), ("first", _POINTER * 4), ("sync", _POINTER), ("rest", _POINTER * 13))


class File(ctypes.Structure):
    """The beginning of `sqlite3_file`."""

    _fields_ = (("methods", ctypes.POINTER(Methods)),)


class SyncedCopies:
    """The layer, for as long as the process lives: SQLite keeps pointers into it."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self.syncs = 0
        self._names: dict[int, str] = {}
        self._kept: list[object] = []
        self._library = ctypes.CDLL(_library_in_use())
        self._library.sqlite3_vfs_find.restype = ctypes.POINTER(Vfs)
        plain = self._library.sqlite3_vfs_find(None).contents
        self._layer = Vfs.from_buffer_copy(plain)
        self._plain_open = _OPEN(plain.open)
        own_open = _OPEN(self._open)
        self._kept += [own_open, plain]
        self._layer.name = b"synced-copies"
        self._layer.open = ctypes.cast(own_open, _POINTER)
        self._library.sqlite3_vfs_register(ctypes.byref(self._layer), 1)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        # The name goes on as a pointer: SQLite keeps it, and a text made by Python would not live as long.
        code: int = self._plain_open(vfs, name, file, flags, out)
        opened = ctypes.cast(file, ctypes.POINTER(File)).contents
        if code == 0 and name and opened.methods:
            methods = Methods.from_buffer_copy(opened.methods.contents)
            plain_sync = _SYNC(methods.sync)

            def sync(at: int, how: int) -> int:
                done: int = plain_sync(at, how)
                path = Path(os.fsdecode(self._names[at]))
                copyfile(path, self._disk / path.name)
                self.syncs += 1
                return done

            own_sync = _SYNC(sync)
            methods.sync = ctypes.cast(own_sync, _POINTER)
            self._names[file] = os.fsdecode(ctypes.string_at(name))
            self._kept += [own_sync, methods]
            opened.methods = ctypes.pointer(methods)
        return code


def _library_in_use() -> str:
    """Return the library that Python's module uses."""
    import _sqlite3  # noqa: F401 - it has to be loaded, to be found

    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return next(line.split()[-1] for line in lines if "libsqlite3" in line)


def main() -> None:
    """Run the statements, then end as a power cut does: nothing is closed."""
    path, disk, statements = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    from composable_memory_feedback.store.store import FeedbackStore

    layer = SyncedCopies(disk)
    with closing(FeedbackStore.open(path)) as reader:
        reader.mark("a")
        store = FeedbackStore.open(path)
        exec(statements, {"store": store})
        for one in disk.iterdir():  # SQLite syncs the folder of a file that it deletes
            if not (path.parent / one.name).exists():
                one.unlink()
        os._exit(0 if layer.syncs else 1)


if __name__ == "__main__":
    main()
