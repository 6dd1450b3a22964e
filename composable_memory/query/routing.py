"""The backends of a composite, and the routing of a query to some of them (pure except for the breakers)."""

from collections.abc import Callable, Collection, Mapping

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
from composable_memory.types import Degradation, QueryIntent, SkipReason
from composable_memory_feedback.weights import DEFAULT_WEIGHT, is_weight
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComposableBackendEntry:
    """One backend of a composite.

    `weight` (0 or more) multiplies its calibrated scores. `condition` decides from a query's intent whether
    to ask it, and is never met without an intent parser. `timeout_s` is its deadline. `capabilities` are what
    it declares; None derives them from its methods, and takes its scores at their word.
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
            raise ConfigError("backends", f"a backend needs an id without spaces, not {self.id!r}")
        if not is_weight(self.weight):
            raise ConfigError(f"backends.{self.id}.weight", f"{self.weight} is not a number of 0 or more")
        if not self.timeout_s > 0.0:
            raise ConfigError(f"backends.{self.id}.timeoutMs", "a deadline must be longer than 0")


@dataclass(frozen=True, slots=True)
class BackendHandle:
    """A backend entry with its breaker and its capabilities, which are looked up once."""

    entry: ComposableBackendEntry
    breaker: Breaker
    capabilities: frozenset[Capability]
    answerer: SupportsAnswer | None

    @classmethod
    def take(cls, entry: ComposableBackendEntry, breaker: Breaker) -> "BackendHandle":
        """Wrap `entry` with the capabilities that it declares, or its manager, or else its methods show."""
        manager = entry.manager
        if entry.capabilities is not None:
            able = entry.capabilities
        elif isinstance(manager, DeclaresCapabilities):
            able = manager.capabilities
        else:
            shown = {one for one, promise in CAPABILITY_PROTOCOLS.items() if isinstance(manager, promise)}
            able = frozenset({*shown, Capability.CALIBRATED})
        return cls(entry, breaker, able, manager if isinstance(manager, SupportsAnswer) else None)


IntentParser = Callable[[str], QueryIntent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Which backends to ask, which to skip and why, and what went wrong while deciding."""

    asked: tuple[BackendHandle, ...]
    skipped: Mapping[str, SkipReason]
    troubles: tuple[Degradation, ...]


def read_intent(
    parser: IntentParser | None, query: str, *, manager_id: str
) -> tuple[QueryIntent | None, tuple[Degradation, ...]]:
    """Return the intent of the query; a parser that raises costs the intent, not the answer."""
    if parser is None:
        return None, ()
    try:
        return parser(query), ()
    except Exception as error:  # noqa: BLE001 - a third-party parser must not break the answer
        return None, (_trouble(manager_id, "the intent parser", error),)


def route(
    handles: Mapping[str, BackendHandle], *, wanted: Collection[str] | None, intent: QueryIntent | None
) -> Route:
    """Skip backends that are not wanted, whose condition is not met, or whose breaker is open.

    A condition is not met without an intent. A backend whose breaker is due for a trial is asked, so the
    outcome must be recorded.
    """
    asked: list[BackendHandle] = []
    skipped: dict[str, SkipReason] = {}
    troubles: list[Degradation] = []
    for backend_id, handle in handles.items():
        if wanted is not None and backend_id not in wanted:
            skipped[backend_id] = "not-asked"
        elif not _meets_condition(handle.entry, intent, troubles):
            skipped[backend_id] = "condition"
        elif not handle.breaker.admits():
            skipped[backend_id] = "breaker-open"
        else:
            asked.append(handle)
    return Route(asked=tuple(asked), skipped=skipped, troubles=tuple(troubles))


def _meets_condition(
    entry: ComposableBackendEntry, intent: QueryIntent | None, troubles: list[Degradation]
) -> bool:
    if entry.condition is None:
        return True
    if intent is None:
        return False
    try:
        return bool(entry.condition(intent))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - third-party code must not break the answer
        troubles.append(_trouble(entry.id, "its condition", error))
        return False


def _trouble(owner: str, what: str, error: Exception | SystemExit) -> Degradation:
    return Degradation(
        backend_id=owner, code="failed", reason=f"{what} raised {type(error).__name__}: {error}"
    )
