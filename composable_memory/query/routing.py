"""Decides which backends a query is put to (pure but for the breakers it asks)."""

from collections.abc import Callable, Collection, Mapping

from composable_memory.query.backend_handle import BackendHandle, ComposableBackendEntry
from composable_memory.types import Degradation, QueryIntent, SkipReason
from composable_memory_ops_logs.quick_dataclass import dataclass

IntentParser = Callable[[str], QueryIntent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Who is asked, who is not and why, and what went wrong in deciding."""

    asked: tuple[BackendHandle, ...]
    skipped: Mapping[str, SkipReason]
    troubles: tuple[Degradation, ...]


def read_intent(
    parser: IntentParser | None, query: str, *, manager_id: str
) -> tuple[QueryIntent | None, tuple[Degradation, ...]]:
    """Return what the query is about; a parser that raises costs the intent, not the answer."""
    if parser is None:
        return None, ()
    try:
        return parser(query), ()
    except Exception as error:  # noqa: BLE001 - a foreign parser must not take the answer down
        return None, (_trouble(manager_id, "the intent parser", error),)


def route(
    handles: Mapping[str, BackendHandle], *, wanted: Collection[str] | None, intent: QueryIntent | None
) -> Route:
    """Skip backends that were not asked for, whose condition is not met, or whose breaker is open.

    A condition needs an intent; without one it is not met. A backend whose breaker is due for a trial is
    asked, so the outcome of asking it must be recorded.
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
    except Exception as error:  # noqa: BLE001 - a foreign condition must not take the answer down
        troubles.append(_trouble(entry.id, "its condition", error))
        return False


def _trouble(owner: str, what: str, error: Exception) -> Degradation:
    return Degradation(
        backend_id=owner, code="failed", reason=f"{what} raised {type(error).__name__}: {error}"
    )
