"""Vectors as int8 codes, and finding those most like a query by the products of their codes.

A code is the vector divided by a scale of its own and rounded, so a product of codes is off by less than a
thousandth of a cosine. Products of integers are exact: simsimd, which takes a half of the time, and numpy
find the same.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from composable_memory_adapters.vectors.resident import Ids, Matrix
from composable_memory_ops_logs.quick_dataclass import dataclass

CodeMatrix: TypeAlias = NDArray[np.int8]
Code: TypeAlias = NDArray[np.int8]
Products: TypeAlias = NDArray[np.float64]
Scales: TypeAlias = NDArray[np.float32]
Places: TypeAlias = NDArray[np.intp]

LARGEST = 127
BLOCK = 16_384
"""How many vectors are compared at once, so that their products stay in the cache of a processor."""

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

    def nearest(self, direction: Matrix, count: int, gone: Places) -> Places:
        """Return the places of the `count` nearest to a unit vector, ascending, without those `gone`."""
        (asked,), _ = encode(direction[None, :])
        places, best = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.float64)
        floor = -np.inf
        for start in range(0, len(self.ids), BLOCK):
            codes = self.matrix[start : start + BLOCK]
            scores = products(codes, asked) * self.scales[start : start + BLOCK]
            first, last = np.searchsorted(gone, (start, start + BLOCK))
            scores[gone[first:last] - start] = -np.inf
            # A later vector does not replace one that is as near.
            better = np.flatnonzero(scores > floor)
            if not len(better):
                continue
            places, best = np.concatenate([places, better + start]), np.concatenate([best, scores[better]])
            if len(best) >= count:
                floor = np.partition(best, len(best) - count)[len(best) - count]
                above, equal = np.flatnonzero(best > floor), np.flatnonzero(best == floor)
                kept = np.sort(np.concatenate([above, equal[: count - len(above)]]))
                places, best = places[kept], best[kept]
        return places


def no_codes(dims: int) -> Codes:
    """Return the codes of no vectors."""
    matrix = np.empty((0, dims), dtype=np.int8)
    return Codes(ids=np.empty(0, np.int64), scales=np.empty(0, np.float32), matrix=matrix)


def encode(matrix: Matrix) -> tuple[CodeMatrix, Scales]:
    """Return the codes of unit vectors and their scales; what is not finite becomes the zero vector."""
    largest = np.abs(matrix).max(axis=1, initial=0.0)
    is_sound = np.isfinite(largest) & (largest > 0)
    scales = np.where(is_sound, largest / LARGEST, 0.0).astype(np.float32)
    factors = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
    scaled = np.where(is_sound[:, None], matrix, 0.0) * factors[:, None]
    return np.rint(scaled).clip(-LARGEST, LARGEST).astype(np.int8), scales


def products(codes: CodeMatrix, asked: Code) -> Products:
    """Return the exact product of each row, of at least one, with `asked`."""
    if CDIST is None:
        return numpy_products(codes, asked)
    # Its argument `out` would save a copy, but then each call takes a reference from None, until Python 3.11,
    # where None is counted like any other object, aborts.
    found: Products = np.asarray(CDIST(asked[None, :], codes, "dot"), dtype=np.float64)
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
    return found
