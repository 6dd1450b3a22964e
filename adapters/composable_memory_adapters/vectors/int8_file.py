"""Vectors as int8 codes, and a file of codes: written whole to a temporary name, moved in place, never
changed.

A code is the vector divided by its own scale and rounded, so a product of codes is within a thousandth of the
cosine. Integer products are exact: simsimd, which takes half the time, and numpy give the same result. The
rounding error is stored as a second code, after all the others: with it a cosine is off by a few millionths,
rarely by ten. It is only read for the few vectors that may be among the nearest.

The first page describes the contents, with a checksum of itself and of the rest. A file that is torn, damaged
or belongs to something else is treated as missing, and recreated by whoever finds it.
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
"""How many steps of the second code make up one step of the first."""
BLOCK = 65_536
"""How many vectors to compare at once, so that their products stay in the processor's cache."""
TRIM = 4
"""Once this many times more candidates than wanted are found, only the best are kept."""

NUMPY_BLOCK = 1024
"""How many codes, converted to float32, fit into the processor's cache."""
EXACT_DIMS = 1024
"""Up to this many products of codes, float32 holds their sum exactly."""


def _simsimd() -> Callable[..., object] | None:
    """Return simsimd's function for products, faster than numpy; it has wheels for fewer systems."""
    try:
        import simsimd
    except ImportError:
        return None
    products: Callable[..., object] = simsimd.cdist
    return products


CDIST = _simsimd()


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """Codes by ascending id. The arrays may be memory-mapped; nobody modifies them."""

    ids: Ids
    scales: Scales
    matrix: CodeMatrix
    rests: CodeMatrix
    """The second codes: what rounding to `matrix` lost."""

    @classmethod
    def of(cls, ids: Sequence[int] | Ids, matrix: Matrix) -> "Codes":
        """Encode unit vectors; one that is not finite becomes the zero vector."""
        largest = np.abs(matrix).max(axis=1, initial=0.0)
        is_sound = np.isfinite(largest) & (largest > 0)
        scales = np.where(is_sound, largest / LARGEST, 0.0).astype(np.float32)
        factors = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
        sound = matrix if is_sound.all() else np.where(is_sound[:, None], matrix, 0.0)
        # In place from here on: allocating memory for each step would take three times as long.
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
        """Return the codes at some positions."""
        return Codes(
            ids=self.ids[places],
            scales=self.scales[places],
            matrix=self.matrix[places],
            rests=self.rests[places],
        )

    def and_others(self, others: "Codes") -> "Codes":
        """Return these and `others`, in order of id."""
        ids = np.concatenate([self.ids, others.ids])
        order = np.argsort(ids)
        return Codes(
            ids=ids[order],
            scales=np.concatenate([self.scales, others.scales])[order],
            matrix=np.concatenate([self.matrix, others.matrix])[order],
            rests=np.concatenate([self.rests, others.rests])[order],
        )

    def vectors(self) -> Matrix:
        """Decode the vectors; each number is off by at most a 500th of its scale."""
        vectors: Matrix = self.rests.astype(np.float32)
        vectors /= FINER
        vectors += self.matrix
        vectors *= self.scales[:, None]
        return vectors

    def nearest(self, direction: Matrix, count: int, gone: Places) -> Places:
        """Return the positions of the `count` nearest to a unit vector, ascending, except those `gone`."""
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
    """Return the positions of the `count` largest, ascending; of equals the first; never those of -inf."""
    floor = np.partition(scores, len(scores) - count)[len(scores) - count] if count < len(scores) else -np.inf
    above, equal = np.flatnonzero(scores > floor), np.flatnonzero(scores == floor)
    if floor == -np.inf:
        return above
    return np.sort(np.concatenate([above, equal[: count - len(above)]]))


def no_codes(dims: int) -> Codes:
    """Return an empty set of codes."""
    return Codes.of([], np.empty((0, dims), dtype=np.float32))


def products(codes: CodeMatrix, asked: Code) -> Products:
    """Return the product of each row with `asked`: exact up to `EXACT_DIMS`, else rounded. Needs a row."""
    if CDIST is None:
        return numpy_products(codes, asked)
    # Its argument `out` would save a copy, but each such call drops a reference to None, until Python 3.11,
    # where None is reference-counted like any other object, aborts.
    found: Products = np.asarray(CDIST(asked[None, :], codes, "dot", out_dtype="f32"))
    return found.reshape(-1)


def numpy_products(codes: CodeMatrix, asked: Code) -> Products:
    """Do the same as `products` with numpy alone."""
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
    """Whose codes a file holds, and their position in the log of changes."""

    key: str
    position: int


class CodeFileWriter:
    """Writes codes, in ascending order of id, to a new file that only its owner can read.

    Every call may raise `OSError`, leaving a partial file behind.
    """

    def __init__(self, path: Path, dims: int) -> None:
        self._dims = dims
        self._ids = [np.empty(0, np.int64)]
        self._scales = [np.empty(0, np.float32)]
        self._file = os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "r+b")
        self._file.write(bytes(HEADER_BYTES))
        self._rests = TemporaryFile(dir=path.parent)  # noqa: SIM115 - closed with the other one

    def add(self, codes: Codes) -> None:
        """Append codes whose ids are above all previous ones."""
        self._file.write(np.ascontiguousarray(codes.matrix).data)
        self._rests.write(np.ascontiguousarray(codes.rests).data)
        self._ids.append(codes.ids)
        self._scales.append(codes.scales)

    def finish(self, label: Label) -> Codes:
        """Complete the file and flush it to disk; return its codes, memory-mapped.

        They remain usable even if another process removes the file.
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
        """Close the file."""
        self._file.close()
        self._rests.close()


def read(path: Path, key: str, dims: int) -> tuple[Codes, int] | None:
    """Map a file and return its codes and their position; None if it is damaged or has another `key`."""
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
    except (OverflowError, ValueError):  # its length cannot be mapped
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
    """Return the path of an index's codes: beside the real file if `index` is a link."""
    index = index.resolve()
    return index.with_name(f"{index.name}-vectors")


def remove(place: Path) -> None:
    """Remove a file of codes, and any unfinished ones meant to replace it."""
    place.unlink(missing_ok=True)
    remove_unfinished(place)


def remove_unfinished(place: Path) -> None:
    """Remove files that killed processes had not finished."""
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
    """Return a checksum at memory speed; pages never written, or a flipped bit, change it."""
    return int(np.add.reduce(words, dtype=np.uint64))


def _padded(length: int) -> int:
    return length + -length % WORD
