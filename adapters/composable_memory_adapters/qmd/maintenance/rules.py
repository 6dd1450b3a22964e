"""What is known of updates and embeddings, and when the next one is due (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from composable_memory.supervision.backoff import backoff_s
from composable_memory_adapters.qmd.maintenance.maintenance import EmbedOutcome, UpdateOutcome
from composable_memory_adapters.qmd.settings import UpdateSettings

__all__ = ["UpkeepState", "is_embedding_due", "may_nudge", "pause_s", "wait_s"]

_backoff_s = partial(backoff_s, first_s=60.0, cap_s=3600.0)
"""Seconds to leave alone what failed so often in a row."""
NUDGE_PAUSE_S = 2.0
"""A search that finds changed files asks for an update at most so often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepState:
    """What the processes of one memory have done for its index; kept in a file between them.

    `last_update` is when the last update that went well began: what changed before that is in the index.
    `last_attempt` is when the last one ended, whichever way, `counts` the documents of each collection then.
    After failures in a row there is a `problem`. The same for embeddings, with the model's name in the
    settings; `pending` documents are new or other than they were since the last one that went well.
    """

    last_update: AwareDatetime | None = None
    last_attempt: AwareDatetime | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    pending: int = 0
    failures: int = 0
    problem: str | None = None
    export_problems: tuple[str, ...] = ()
    last_embed: AwareDatetime | None = None
    embed_model: str | None = None
    embed_failures: int = 0
    embed_attempt: AwareDatetime | None = None
    embed_problem: str | None = None

    @classmethod
    def of(cls, written: str | bytes) -> "UpkeepState":
        """Return the state that was written; a new one where it cannot be read."""
        try:
            return _STATES.validate_json(written)
        except ValidationError:
            return cls()

    def written(self) -> str:
        """Return the state as JSON."""
        return _STATES.dump_json(self, indent=2).decode()

    def newer_of(self, other: "UpkeepState") -> "UpkeepState":
        """Return the one that knows of the later attempt."""
        return max(self, other, key=_latest)

    def without_index(self) -> "UpkeepState":
        """Return the state where QMD's database is not there, or no longer."""
        return replace(self, last_update=None, counts={}, pending=0, last_embed=None)

    def updated(self, outcome: UpdateOutcome, *, began: datetime, now: datetime) -> "UpkeepState":
        """Return the state after an update that went well."""
        return replace(
            self,
            last_update=began,
            last_attempt=now,
            counts={name: counts.files for name, counts in outcome.counts.items()},
            pending=self.pending + sum(one.new + one.updated for one in outcome.counts.values()),
            failures=0,
            problem=None,
            # Of a new index all vectors have to be made again.
            last_embed=None if outcome.set_aside else self.last_embed,
        )

    def failed(self, problem: str, *, now: datetime) -> "UpkeepState":
        """Return the state after an update that failed."""
        return replace(self, last_attempt=now, failures=self.failures + 1, problem=problem)

    def embedded(self, outcome: EmbedOutcome, *, model: str | None, now: datetime) -> "UpkeepState":
        """Return the state after an embedding that went well, perhaps but for some chunks."""
        return replace(
            self,
            pending=0,
            last_embed=now,
            embed_model=model,
            embed_attempt=now,
            embed_failures=0,
            embed_problem=outcome.problem,
        )

    def embedding_waits(self, problem: str) -> "UpkeepState":
        """Return the state where an embedding could not even begin."""
        return replace(self, embed_problem=problem)

    def embedding_failed(self, problem: str, *, now: datetime) -> "UpkeepState":
        """Return the state after an embedding that failed."""
        return replace(self, embed_attempt=now, embed_failures=self.embed_failures + 1, embed_problem=problem)


_STATES = TypeAdapter(UpkeepState)


def pause_s(settings: UpdateSettings) -> float:
    """Return the least time between updates by the clock; 0 if there are none."""
    return max(settings.interval, settings.debounce_ms / 1000) if settings.interval > 0 else 0.0


def wait_s(state: UpkeepState, settings: UpdateSettings, *, now: datetime) -> float:
    """Return the time until the clock's next update, from 0 to the whole pause, wherever the clock is set."""
    pause = pause_s(settings)
    age_s = 0.0 if state.last_attempt is None else _age_s(state.last_attempt, now)
    return min(pause, max(0.0, pause - age_s))


def may_nudge(state: UpkeepState, *, now: datetime) -> bool:
    """Say whether a search may ask for an update: not just after one, and later after failures."""
    least = max(NUDGE_PAUSE_S, _backoff_s(state.failures))
    return state.last_attempt is None or not 0.0 <= _age_s(state.last_attempt, now) < least


def is_embedding_due(
    state: UpkeepState, settings: UpdateSettings, *, model: str | None, now: datetime, force: bool = False
) -> bool:
    """Say whether to embed after an update: by force, for the first time with a model, or after the pause.

    After failures only by force until the back-off has passed.
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


def _latest(state: UpkeepState) -> float:
    moments = (state.last_attempt, state.embed_attempt)
    return max((moment.timestamp() for moment in moments if moment is not None), default=0.0)
