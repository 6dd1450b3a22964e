"""The backends of a composite: how each one is set up, and what is known about it while it serves."""

from collections.abc import Callable

from composable_memory.errors import ConfigError
from composable_memory.interfaces import (
    CAPABILITY_PROTOCOLS,
    Capability,
    DeclaresCapabilities,
    MemorySearchManager,
    SupportsAnswer,
)
from composable_memory.query.calibration import Calibration
from composable_memory.supervision.breaker import Breaker
from composable_memory.types import QueryIntent
from composable_memory_feedback.weights import DEFAULT_WEIGHT, is_weight
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposableBackendEntry:
    """One backend of a composite.

    `weight` (0 or more) multiplies its calibrated scores. `condition` says for which queries it is asked; it
    needs an intent parser, without one the backend is not asked. `timeout_s` is its deadline. `capabilities`
    are what it declares; None means: those whose methods it has, and scores that are taken at their word.
    """

    id: str
    manager: MemorySearchManager
    weight: float = DEFAULT_WEIGHT
    condition: Callable[[QueryIntent], bool] | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    calibration: Calibration = Calibration.AUTO
    capabilities: frozenset[Capability] | None = None

    def __post_init__(self) -> None:
        if self.id.split() != [self.id]:
            raise ConfigError("backends", f"a backend needs an id without blanks, not {self.id!r}")
        if not is_weight(self.weight):
            raise ConfigError(f"backends.{self.id}.weight", f"{self.weight} is not a number of 0 or more")
        if not self.timeout_s > 0.0:
            raise ConfigError(f"backends.{self.id}.timeoutMs", "a deadline must be longer than 0")


@dataclass(frozen=True, slots=True)
class BackendHandle:
    """An entry at the table: with its breaker, and with what it can do looked up once."""

    entry: ComposableBackendEntry
    breaker: Breaker
    capabilities: frozenset[Capability]
    answerer: SupportsAnswer | None

    @classmethod
    def take(cls, entry: ComposableBackendEntry, breaker: Breaker) -> "BackendHandle":
        """Wrap `entry` with the capabilities that it, its manager, or else its methods show."""
        manager = entry.manager
        if entry.capabilities is not None:
            able = entry.capabilities
        elif isinstance(manager, DeclaresCapabilities):
            able = manager.capabilities
        else:
            shown = {one for one, promise in CAPABILITY_PROTOCOLS.items() if isinstance(manager, promise)}
            able = frozenset({*shown, Capability.CALIBRATED})
        return cls(entry, breaker, able, manager if isinstance(manager, SupportsAnswer) else None)
