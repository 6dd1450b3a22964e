"""The state of updates and embeddings, its file, and when the next update or embedding is due."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime, timedelta
from functools import partial

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from composable_memory.supervision.backoff import backoff_s
from composable_memory_adapters.qmd.maintenance.index_commands import EmbedOutcome, UpdateOutcome
from composable_memory_adapters.qmd.settings import UpdateSettings
from composable_memory_adapters.qmd.types import Home
from composable_memory_ops_logs.private_files import replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

_backoff_s = partial(backoff_s, first_s=60.0, cap_s=3600.0)
NUDGE_PAUSE_S = 2.0
"""Minimum time between two updates requested by searches that find changed files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceState:
    """What the processes of one memory have done for its index; they share it in a file.

    `last_update` is when the last successful update began: earlier changes are in the index. `last_attempt`
    is when the last one ended, successful or not, and `counts` are the documents of each collection then.
    After `failures` in a row, `problem` is the last one. The same applies to embeddings, with the model in
    the settings; `pending` documents are new or changed since the last successful one.
    """

    last_update: AwareDatetime | None = None
    last_attempt: AwareDatetime | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0
    failures: int = 0
    problem: str | None = None
    last_embed: AwareDatetime | None = None
    embed_model: str | None = None
    embed_failures: int = 0
    embed_attempt: AwareDatetime | None = None
    embed_problem: str | None = None

    @classmethod
    def from_json(cls, text: str | bytes) -> "MaintenanceState":
        """Parse a state; return a new one if that fails."""
        try:
            return _ADAPTER.validate_json(text)
        except ValidationError:
            return cls()

    def to_json(self) -> str:
        """Return the state as JSON."""
        return _ADAPTER.dump_json(self, indent=2).decode()

    def newer_of(self, other: "MaintenanceState") -> "MaintenanceState":
        """Return the state with the later attempt."""
        return max(self, other, key=_latest)

    def without_index(self) -> "MaintenanceState":
        """Return the state for a QMD database that does not exist, or no longer exists."""
        return replace(self, last_update=None, counts={}, pending=0, last_embed=None)

    def updated(self, outcome: UpdateOutcome, *, began: datetime, now: datetime) -> "MaintenanceState":
        """Return the state after a successful update."""
        return replace(
            self,
            last_update=began,
            last_attempt=now,
            counts={name: counts.files for name, counts in outcome.counts.items()},
            pending=self.pending + sum(one.new + one.updated for one in outcome.counts.values()),
            failures=0,
            problem=None,
            # A new index has no vectors yet.
            last_embed=None if outcome.set_aside else self.last_embed,
        )

    def failed(self, problem: str, *, now: datetime) -> "MaintenanceState":
        """Return the state after a failed update."""
        return replace(self, last_attempt=now, failures=self.failures + 1, problem=problem)

    def embedded(self, outcome: EmbedOutcome, *, model: str | None, now: datetime) -> "MaintenanceState":
        """Return the state after a successful embedding, of which some chunks may have failed."""
        return replace(
            self,
            pending=0,
            last_embed=now,
            embed_model=model,
            embed_attempt=now,
            embed_failures=0,
            embed_problem=outcome.problem,
        )

    def embedding_blocked(self, problem: str) -> "MaintenanceState":
        """Return the state after an embedding that could not even start."""
        return replace(self, embed_problem=problem)

    def embedding_failed(self, problem: str, *, now: datetime) -> "MaintenanceState":
        """Return the state after a failed embedding."""
        return replace(self, embed_attempt=now, embed_failures=self.embed_failures + 1, embed_problem=problem)


_ADAPTER = TypeAdapter(MaintenanceState)

StateChange = Callable[[MaintenanceState], MaintenanceState]
"""Returns the state after something has happened."""


class MaintenanceStateFile:
    """The state of one home; `state` is what was last read."""

    def __init__(self, home: Home) -> None:
        self._file = home.root / "upkeep.json"
        self._index_file = home.index_file
        self._lock = asyncio.Lock()
        self.state = MaintenanceState()

    async def refresh(self) -> None:
        """Read what other processes have written."""
        async with self._lock:
            self.state = await asyncio.to_thread(self._read)

    async def apply(self, change: StateChange) -> None:
        """Record an event; if the file cannot be written, only this process knows."""
        async with self._lock:
            self.state = await asyncio.to_thread(self._apply, change)

    def _read(self) -> MaintenanceState:
        state = self.state
        with suppress(OSError):
            state = MaintenanceState.from_json(self._file.read_bytes()).newer_of(state)
        return state if self._index_file.exists() else state.without_index()

    def _apply(self, change: StateChange) -> MaintenanceState:
        state = change(self._read())
        with suppress(OSError):
            replace_file(self._file, state.to_json().encode(), survives="kill")
        return state


def pause_s(settings: UpdateSettings) -> float:
    """Return the minimum time between scheduled updates; 0 if there are none."""
    return max(settings.interval, settings.debounce_ms / 1000) if settings.interval > 0 else 0.0


def wait_s(state: MaintenanceState, settings: UpdateSettings, *, now: datetime) -> float:
    """Return the time until the next scheduled update: at most the pause, even if the clock was set."""
    pause = pause_s(settings)
    age_s = 0.0 if state.last_attempt is None else _age_s(state.last_attempt, now)
    return min(pause, max(0.0, pause - age_s))


def may_nudge(state: MaintenanceState, *, now: datetime) -> bool:
    """Return whether a search may request an update: not right after one, with back-off after failures."""
    least = max(NUDGE_PAUSE_S, _backoff_s(state.failures))
    return state.last_attempt is None or not 0.0 <= _age_s(state.last_attempt, now) < least


def is_embedding_due(
    state: MaintenanceState,
    settings: UpdateSettings,
    *,
    model: str | None,
    now: datetime,
    force: bool = False,
) -> bool:
    """Return whether to embed after an update: if forced, the first time with a model, or after the interval.

    After failures, only `force` shortens the back-off.
    """
    if force:
        return True
    if state.embed_failures and state.embed_attempt is not None:
        return not 0.0 <= _age_s(state.embed_attempt, now) < _backoff_s(state.embed_failures)
    if state.last_embed is None or state.embed_model != model:
        return True
    return not 0.0 <= _age_s(state.last_embed, now) < settings.embed_interval


def _age_s(moment: datetime, now: datetime) -> float:
    return (now - moment) / timedelta(seconds=1)


def _latest(state: MaintenanceState) -> float:
    moments = (state.last_attempt, state.embed_attempt)
    return max((moment.timestamp() for moment in moments if moment is not None), default=0.0)
