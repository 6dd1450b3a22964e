"""What the words, the rank and the day of a passage count in its score (pure).

QMD's own scores are not: fused searches are scored 1/rank, and its bm25 is 0 in small collections. So the
passages of the documents that it found are scored by their words (`text_scores`), as the builtin index does.
Of vector similarity, only QMD's rank is known.
"""

from collections.abc import Mapping
from datetime import datetime

from composable_memory.query.filters import day_in_path
from composable_memory.time.windows import MOST_DAYS, TIME_BONUS, DaySpan, window_of
from composable_memory.types import QueryIntent
from composable_memory_adapters.qmd.settings import SearchMode

KEYWORD_WEIGHT: Mapping[SearchMode, float] = {"search": 0.8, "vsearch": 0.7, "query": 0.7}
"""Weight of the words in a score.

Less than 1, so that a passage scores a little lower than in the builtin index, which also knows vector
similarity: if both are asked, the order of the better informed one is kept."""

VECTOR_WEIGHT: Mapping[SearchMode, float] = {"search": 0.0, "vsearch": 0.2, "query": 0.2}
"""Weight of the rank that QMD gave a document, added to the best passage in it.

In keyword search the rank says nothing that the words do not, and costs answers. More than 0.2 costs some of
what vectors add, measured with MiniLM."""

HALF_RANK = 10
"""The document at this rank, counted from 0, gets half of the rank score of the first."""

FOUND_SCORE = 0.05
"""Score of a document that QMD found for reasons that its words do not show."""


def days_asked(intent: QueryIntent | None, now: datetime) -> DaySpan | None:
    """Return the days of a question as whoever asks has read it; None if it asks for no time."""
    window = window_of(intent.time_hints, now) if intent and intent.time_hints else None
    if window is None or (window.end - window.start).days > MOST_DAYS:
        return None
    return DaySpan(
        first=window.start.astimezone(now.tzinfo).date(), last=window.end.astimezone(now.tzinfo).date()
    )


def time_bonus(asked: DaySpan, path: str) -> float:
    """Return what a note gains by the day in its path, or in that of its folder, as in the builtin index.

    Without it, that one's notes of the time would always go before QMD's.
    """
    day = day_in_path(path)
    return TIME_BONUS * asked.level(day) if day else 0.0


def rank_score(rank: int) -> float:
    """Return the score of the document that QMD put at `rank`, counted from 0; in (0, 1]."""
    return HALF_RANK / (HALF_RANK + rank)
