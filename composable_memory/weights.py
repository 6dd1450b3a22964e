"""The weights of the backends: a versioned table, so that every logged ranking names its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from math import isfinite

__all__ = ["DEFAULT_WEIGHT", "WeightTable", "is_weight"]

DEFAULT_WEIGHT = 1.0


def is_weight(value: float) -> bool:
    """Say whether a number can be a weight: finite, and 0 or more."""
    return isfinite(value) and value >= 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTable:
    """One weight per backend, at least 0; a backend that is not listed has `DEFAULT_WEIGHT`.

    A backend of weight 0 is asked and logged, and none of its results is returned.
    """

    weights: Mapping[str, float]
    version: str
    made_at: datetime
    reason: str

    def __post_init__(self) -> None:
        for backend_id, weight in self.weights.items():
            if not is_weight(weight):
                raise ValueError(f"the weight of {backend_id!r} is {weight}; give a number of 0 or more")

    def __getitem__(self, backend_id: str) -> float:
        return self.weights.get(backend_id, DEFAULT_WEIGHT)

    @classmethod
    def fixed(
        cls, weights: Mapping[str, float], *, reason: str = "settings", made_at: datetime | None = None
    ) -> "WeightTable":
        """Return a table for weights that were set by hand; equal weights have equal versions."""
        text = ",".join(f"{backend_id}={weights[backend_id]!r}" for backend_id in sorted(weights))
        return cls(
            weights=dict(weights),
            version=f"fixed-{sha256(text.encode()).hexdigest()[:8]}",
            made_at=made_at or datetime.now(UTC),
            reason=reason,
        )
