"""A file of int8 codes: written whole beside its place, moved there, mapped, and never changed.

The first page tells what is in it, with a checksum of itself and of the rest. A file that is torn, damaged or
of something else is as good as none: whoever finds one makes it anew.
"""

import glob
import json
import os
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from composable_memory_adapters.vectors.int8_codes import CodeMatrix, Codes, Scales
from composable_memory_adapters.vectors.resident import Ids
from composable_memory_ops_logs.quick_dataclass import dataclass

MAGIC = b"cmem vectors 1\n\0"
HEADER_BYTES = 4096
WORD = 8
NOTHING: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Whose codes a file holds, and up to which position of the log of their changes."""

    key: str
    position: int


class CodeFileWriter:
    """Writes codes, in ascending order of their ids, to a new file that only its owner can read.

    Every call may raise `OSError`; some of the file may then be there.
    """

    def __init__(self, path: Path, dims: int) -> None:
        self._dims = dims
        self._ids = [np.empty(0, np.int64)]
        self._scales = [np.empty(0, np.float32)]
        self._file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "r+b")
        self._file.write(bytes(HEADER_BYTES))

    def add(self, ids: Ids, scales: Scales, codes: CodeMatrix) -> None:
        """Append codes under ids above all before."""
        self._file.write(np.ascontiguousarray(codes).data)
        self._ids.append(ids)
        self._scales.append(scales)

    def finish(self, label: Label) -> Codes:
        """Complete the file; return the codes in it, mapped, when it is on the disk.

        They stay of use where another process removes the file.
        """
        file, ids = self._file, np.concatenate(self._ids)
        for part in (ids, np.concatenate(self._scales)):
            file.write(bytes(-file.tell() % WORD))
            file.write(part.data)
        file.write(bytes(-file.tell() % WORD))
        file.flush()
        rest = np.memmap(file, dtype=np.uint64, mode="r", offset=HEADER_BYTES) if len(ids) else NOTHING
        about: dict[str, str | int]
        about = {"key": label.key, "position": label.position, "count": len(ids), "dims": self._dims}
        file.seek(0)
        file.write(_header(about | {"sum": _sum_of(rest)}))
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        written = _read(file, label.key, self._dims)
        if written is None:
            raise OSError("what was written cannot be read")
        return written[0]

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def read(path: Path, key: str, dims: int) -> tuple[Codes, int] | None:
    """Map a file and return its codes and their position; None if it is not whole, or not of `key`."""
    try:
        with path.open("rb") as file:
            return _read(file, key, dims)
    except OSError:
        return None


def _read(file: BinaryIO, key: str, dims: int) -> tuple[Codes, int] | None:
    about = _about(file.read(HEADER_BYTES))
    if about is None or (about["key"], about["dims"]) != (key, dims):
        return None
    try:
        words = np.memmap(file, np.uint64, "r", HEADER_BYTES) if about["count"] else NOTHING
    except (OverflowError, ValueError):  # it is of a length that cannot be mapped
        return None
    count = int(about["count"])
    ids_at = _padded(count * dims)
    scales_at = ids_at + 8 * count
    if words.nbytes != _padded(scales_at + 4 * count) or _sum_of(words) != about["sum"]:
        return None
    data = words.view(np.uint8)
    codes = Codes(
        ids=data[ids_at:scales_at].view(np.int64),
        scales=data[scales_at : scales_at + 4 * count].view(np.float32),
        matrix=data[: count * dims].view(np.int8).reshape(count, dims),
    )
    return codes, int(about["position"])


def place_beside(index: Path) -> Path:
    """Return where the codes of an index are: beside the file itself where `index` is a link to it."""
    index = index.resolve()
    return index.with_name(f"{index.name}-vectors")


def remove(place: Path) -> None:
    """Remove a file, and what was left of others that were to take its place."""
    place.unlink(missing_ok=True)
    remove_unfinished(place)


def remove_unfinished(place: Path) -> None:
    """Remove what killed processes have left of files that were to be put there."""
    for left in place.parent.glob(f"{glob.escape(place.name)}.*"):
        left.unlink(missing_ok=True)


def _header(about: dict[str, str | int]) -> bytes:
    text = json.dumps(about).encode()
    return (MAGIC + zlib.crc32(text).to_bytes(4) + text).ljust(HEADER_BYTES, b"\0")


def _about(header: bytes) -> dict[str, str | int] | None:
    text = header[len(MAGIC) + 4 :].rstrip(b"\0")
    if header[: len(MAGIC) + 4] != MAGIC + zlib.crc32(text).to_bytes(4):
        return None
    about: dict[str, str | int] = json.loads(text)
    return about


def _sum_of(words: NDArray[np.uint64]) -> int:
    """Return a checksum at the speed of memory: pages never written, or a flipped bit, change it."""
    return int(np.add.reduce(words, dtype=np.uint64))


def _padded(length: int) -> int:
    return length + -length % WORD
