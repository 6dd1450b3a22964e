"""What reorders results: near-duplicates, their sources, and their age (pure).

The functions return an order as positions in their input, which is sorted best first. Nothing here reads the
disk or a clock: names and times of files come from the index, and today is an argument. Ages are whole days,
so the same query has the same answer all day.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import date
from math import exp, isfinite, log

from composable_memory.paths import MAIN_FILES, MEMORY_FOLDERS
from composable_memory.query.filters import day_in_path
from composable_memory.types import MemorySource
from composable_memory_ops_logs.quick_dataclass import dataclass

WORTH_THE_PLACE = 0.5
"""A note precedes a transcript if it scores at least this share of the transcript's score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """A result's score, and the set of its words."""

    score: float
    words: AbstractSet[str]


def diverse_order(results: Sequence[Saying], *, lambda_: float) -> list[int]:
    """Return the order by maximal marginal relevance (MMR).

    The next result is the one with the highest `lambda_` · relevance - (1 - `lambda_`) · similarity to the
    most similar result before it; ties go to the higher score, then to the earlier one. Relevance is the
    score rescaled to [0, 1] over `results`. `lambda_` is in [0, 1]; at 1 only scores count. From Carbonell
    and Goldstein, "The Use of MMR, Diversity-Based Reranking" (1998).
    """
    relevance = _stretched([result.score for result in results])
    nearest = [0.0] * len(results)
    left = list(range(len(results)))
    order: list[int] = []
    while left:
        chosen = max(
            left,
            key=lambda at: (
                lambda_ * relevance[at] - (1 - lambda_) * nearest[at],
                results[at].score,
                -at,
            ),
        )
        left.remove(chosen)
        order.append(chosen)
        for at in left:
            nearest[at] = max(nearest[at], likeness(results[at].words, results[chosen].words))
    return order


def likeness(one: AbstractSet[str], other: AbstractSet[str]) -> float:
    """Return the Jaccard similarity of two sets of words, 0 to 1; two empty sets are equal."""
    if not one and not other:
        return 1.0
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def balanced_order(scores: Sequence[float], is_session: Sequence[bool]) -> list[int]:
    """Return an order in which transcripts do not crowd out notes.

    At most half of the first n, rounded up, are from transcripts, as long as there is a note left that scores
    at least half as much as the next transcript: a note that hardly fits is no reason to hold back an answer.
    Otherwise, and within each source, results keep the given order.
    """
    notes = [at for at, session in enumerate(is_session) if not session]
    sessions = [at for at, session in enumerate(is_session) if session]
    order: list[int] = []
    taken = 0
    while taken < len(sessions):
        note, session = len(order) - taken, sessions[taken]
        if note < len(notes) and (
            notes[note] < session
            or (taken > note and scores[notes[note]] >= WORTH_THE_PLACE * scores[session])
        ):
            order.append(notes[note])
        else:
            order.append(session)
            taken += 1
    return [*order, *notes[len(order) - taken :]]


def _stretched(scores: Sequence[float]) -> list[float]:
    lowest, highest = min(scores, default=0.0), max(scores, default=0.0)
    spread = highest - lowest
    return [(score - lowest) / spread if spread else 1.0 for score in scores]


_EPOCH = date(1970, 1, 1).toordinal()
_NS_A_DAY = 86_400 * 10**9


def decay_factor(age_days: float, half_life_days: float) -> float:
    """Return the factor for a score: 1 at age 0, 1/2 after each half-life, never more than 1.

    It is exp(-ln 2 / half-life * age). A date in the future counts as today. If the half-life is not a
    positive finite number, nothing ages.
    """
    if not (isfinite(half_life_days) and half_life_days > 0):
        return 1.0
    return exp(-log(2) / half_life_days * max(0.0, age_days))


def age_in_days(day: date | None, today: date) -> int:
    """Return the whole days from `day` to `today`, negative for the future; 0 if there is no date."""
    return (today - day).days if day else 0


def written_on(path: str, *, source: MemorySource, mtime_ns: int | None) -> date | None:
    """Return the day in UTC that an indexed text dates from; None if it does not age.

    A note has the date that its name begins with, or else the name of its nearest dated folder:
    `memory/2026-01-16.md`, `memory/2026-01-16-topic.md`, `memory/work/2026-01-16/plan.md`. `MEMORY.md` and
    other undated notes under `memory/` and `bank/` do not age. Transcripts, and undated notes elsewhere, are
    as old as their last change, `mtime_ns` nanoseconds after 1970; None means unknown.
    """
    if source == "memory":
        day = day_in_path(path)
        if day or path in MAIN_FILES or path.partition("/")[0] in MEMORY_FOLDERS:
            return day
    return None if mtime_ns is None else date.fromordinal(_EPOCH + mtime_ns // _NS_A_DAY)
