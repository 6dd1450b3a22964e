"""Vectors as int8 codes, and a file of them: written whole beside its place, moved there, and never changed.

A code is the vector divided by a scale of its own and rounded, so a product of codes is off by less than a
thousandth of a cosine. Products of integers are exact: simsimd, which takes a half of the time, and numpy
find the same. What was rounded off is kept as a code of its own behind all others: with it a cosine is off by
some millionths, seldom by ten, and only the few vectors that may be among the nearest are looked up in that.

The first page tells what is in it, with a checksum of itself and of the rest. A file that is torn, damaged or
of something else is as good as none: whoever finds one makes it anew.
"""

import glob
import json
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from composable_memory_adapters.vectors.in_memory import Ids, Matrix, at_least
from composable_memory_ops_logs.quick_dataclass import dataclass

CodeMatrix: TypeAlias = NDArray[np.int8]
Code: TypeAlias = NDArray[np.int8]
Products: TypeAlias = NDArray[np.float32]
Scales: TypeAlias = NDArray[np.float32]
Places: TypeAlias = NDArray[np.intp]

LARGEST = 127
FINER = 254
"""Into so many steps the codes of what was rounded off divide a step of the codes."""
BLOCK = 65_536
"""How many vectors are compared at once, so that their products stay in the cache of a processor."""
TRIM = 4
"""When so many times more than are wanted were found, the best of them are kept."""

NUMPY_BLOCK = 1024
"""As many codes fit into a processor's cache as float32."""
EXACT_DIMS = 1024
"""float32 holds the sum of so many products of codes exactly."""


def _simsimd() -> Callable[..., object] | None:
    """Return what computes products faster than numpy; it has wheels for fewer systems."""
    try:
        import simsimd
    except ImportError:
        return None
    products: Callable[..., object] = simsimd.cdist
    return products


CDIST = _simsimd()


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Codes under ascending ids. The arrays may be mapped from a file; nobody changes them."""

    ids: Ids
    scales: Scales
    matrix: CodeMatrix
    rests: CodeMatrix
    """What was rounded off."""

    @classmethod
    def of(cls, ids: Sequence[int] | Ids, matrix: Matrix) -> "Codes":
        """Return the codes of unit vectors; what is not finite becomes the zero vector."""
        largest = np.abs(matrix).max(axis=1, initial=0.0)
        is_sound = np.isfinite(largest) & (largest > 0)
        scales = np.where(is_sound, largest / LARGEST, 0.0).astype(np.float32)
        factors = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
        sound = matrix if is_sound.all() else np.where(is_sound[:, None], matrix, 0.0)
        # In place from here on: new memory for each step would take three times as long.
        rests = sound * factors[:, None]
        rounded = np.rint(rests)
        rounded.clip(-LARGEST, LARGEST, out=rounded)
        rests -= rounded
        rests *= FINER
        np.rint(rests, out=rests).clip(-LARGEST, LARGEST, out=rests)
        return cls(
            ids=np.asarray(ids, dtype=np.int64),
            scales=scales,
            matrix=rounded.astype(np.int8),
            rests=rests.astype(np.int8),
        )

    def taken(self, places: Places) -> "Codes":
        """Return those at some places."""
        return Codes(
            ids=self.ids[places],
            scales=self.scales[places],
            matrix=self.matrix[places],
            rests=self.rests[places],
        )

    def and_others(self, others: "Codes") -> "Codes":
        """Return these and others, in the order of their ids."""
        ids = np.concatenate([self.ids, others.ids])
        order = np.argsort(ids)
        return Codes(
            ids=ids[order],
            scales=np.concatenate([self.scales, others.scales])[order],
            matrix=np.concatenate([self.matrix, others.matrix])[order],
            rests=np.concatenate([self.rests, others.rests])[order],
        )

    def vectors(self) -> Matrix:
        """Return the vectors, each number of which is off by a 500th of its scale at most."""
        vectors: Matrix = self.rests.astype(np.float32)
        vectors /= FINER
        vectors += self.matrix
        vectors *= self.scales[:, None]
        return vectors

    def nearest(self, direction: Matrix, count: int, gone: Places) -> Places:
        """Return the places of the `count` nearest to a unit vector, ascending, without those `gone`."""
        largest = np.abs(direction).max(initial=0.0)
        if not 0.0 < largest < np.inf:
            return np.empty(0, dtype=np.intp)
        asked = np.rint(direction * (LARGEST / largest)).astype(np.int8)
        places, best = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.float32)
        floor = -np.inf
        for start in range(0, len(self.ids), BLOCK):
            scores = products(self.matrix[start : start + BLOCK], asked)
            scores *= self.scales[start : start + BLOCK]
            if len(gone):
                first, last = np.searchsorted(gone, (start, start + BLOCK))
                scores[gone[first:last] - start] = -np.inf
            if not start:
                floor = at_least(scores, count)
            better = np.flatnonzero(scores >= floor)
            places, best = np.concatenate([places, better + start]), np.concatenate([best, scores[better]])
            if len(best) > TRIM * count:
                kept = _largest(best, count)
                places, best = places[kept], best[kept]
                if len(best) == count:
                    floor = float(best.min())
        return places[_largest(best, count)]


def _largest(scores: Products, count: int) -> Places:
    """Return the places of the `count` largest, ascending, the first ones of equals; never those of -inf."""
    floor = np.partition(scores, len(scores) - count)[len(scores) - count] if count < len(scores) else -np.inf
    above, equal = np.flatnonzero(scores > floor), np.flatnonzero(scores == floor)
    if floor == -np.inf:
        return above
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


def no_codes(dims: int) -> Codes:
    """Return the codes of no vectors."""
    return Codes.of([], np.empty((0, dims), dtype=np.float32))


def products(codes: CodeMatrix, asked: Code) -> Products:
    """Return the product of each row, of at least one, with `asked`: exact in `EXACT_DIMS`, else rounded."""
    if CDIST is None:
        return numpy_products(codes, asked)
    # Its argument `out` would save a copy, but then each call takes a reference from None, until Python 3.11,
    # where None is counted like any other object, aborts.
    found: Products = np.asarray(CDIST(asked[None, :], codes, "dot", out_dtype="f32"))
    return found.reshape(-1)


def numpy_products(codes: CodeMatrix, asked: Code) -> Products:
    """Do what `products` does, by numpy alone."""
    found = np.zeros(len(codes), dtype=np.float64)
    wanted = asked.astype(np.float32)
    for left in range(0, codes.shape[1], EXACT_DIMS):
        columns = slice(left, left + EXACT_DIMS)
        for start in range(0, len(codes), NUMPY_BLOCK):
            rows = slice(start, start + NUMPY_BLOCK)
            found[rows] += codes[rows, columns].astype(np.float32) @ wanted[columns]
    return found.astype(np.float32)


MAGIC = b"cmem vectors 2\n\0"
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
        self._rests = TemporaryFile(dir=path.parent)  # noqa: SIM115 - closed with the other

    def add(self, codes: Codes) -> None:
        """Append codes under ids above all before."""
        self._file.write(np.ascontiguousarray(codes.matrix).data)
        self._rests.write(np.ascontiguousarray(codes.rests).data)
        self._ids.append(codes.ids)
        self._scales.append(codes.scales)

    def finish(self, label: Label) -> Codes:
        """Complete the file; return the codes in it, mapped, when it is on the disk.

        They stay of use where another process removes the file.
        """
        file, ids = self._file, np.concatenate(self._ids)
        self._rests.seek(0)
        shutil.copyfileobj(self._rests, file)
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
        self._rests.close()


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
    ids_at = _padded(2 * count * dims)
    scales_at = ids_at + 8 * count
    if words.nbytes != _padded(scales_at + 4 * count) or _sum_of(words) != about["sum"]:
        return None
    data = words.view(np.uint8)
    codes = Codes(
        ids=data[ids_at:scales_at].view(np.int64),
        scales=data[scales_at : scales_at + 4 * count].view(np.float32),
        matrix=data[: count * dims].view(np.int8).reshape(count, dims),
        rests=data[count * dims : 2 * count * dims].view(np.int8).reshape(count, dims),
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
