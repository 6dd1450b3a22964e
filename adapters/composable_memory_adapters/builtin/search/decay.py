"""How old a note is, and what of its score is left at that age (pure).

Nothing here looks at the disk or at a clock: the name and the time of a file come from the index, and today
is handed in. Ages are whole days, so the same question has the same answer all day.
"""

from datetime import date
from math import exp, isfinite, log

from composable_memory.paths import MAIN_FILES, MEMORY_FOLDERS
from composable_memory.query.filters import day_in_path
from composable_memory.types import MemorySource

_EPOCH = date(1970, 1, 1).toordinal()
_NS_A_DAY = 86_400 * 10**9


def decay_factor(age_days: float, half_life_days: float) -> float:
    """Return what to multiply a score with: 1 at age 0, 1/2 after each half-life, never more than 1.

    It is exp(-ln 2 / half-life * age). A date in the future counts as today; a half-life that is not a
    positive finite number means that nothing ages.
    """
    if not (isfinite(half_life_days) and half_life_days > 0):
        return 1.0
    return exp(-log(2) / half_life_days * max(0.0, age_days))


def age_in_days(day: date | None, today: date) -> int:
    """Return the whole days from `day` to `today`, less than 0 for the future; 0 for what has no date."""
    return (today - day).days if day else 0


def written_on(path: str, *, source: MemorySource, mtime_ns: int | None) -> date | None:
    """Return the day in UTC that a text of the index is from; None for what does not age.

    A note is from the day that its name begins with, or the name of the nearest folder that does:
    `memory/2026-01-16.md`, `memory/2026-01-16-topic.md`, `memory/work/2026-01-16/plan.md`. `MEMORY.md` and
    other notes under `memory/` and `bank/` do not age. Transcripts, and notes elsewhere that bear no date,
    are as old as their last change, `mtime_ns` nanoseconds after 1970; None means that it is not known.
    """
    if source == "memory":
        day = day_in_path(path)
        if day or path in MAIN_FILES or path.partition("/")[0] in MEMORY_FOLDERS:
            return day
    return None if mtime_ns is None else date.fromordinal(_EPOCH + mtime_ns // _NS_A_DAY)
