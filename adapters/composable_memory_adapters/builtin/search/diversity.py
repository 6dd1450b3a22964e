"""Puts results in an order in which they do not all say the same, nor all come from transcripts (pure).

Both functions return a new order of what they are given, best first, as places in it. They change no score.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from composable_memory_ops_logs.quick_dataclass import dataclass

WORTH_THE_PLACE = 0.5
"""The share of a transcript's score that a note needs to go before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """A result with its score and the words that it says it in."""

    score: float
    words: AbstractSet[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A result with its score and where it is from."""

    score: float
    is_session: bool


def diverse_order(results: Sequence[Saying], *, lambda_: float) -> list[int]:
    """Return the order of maximal marginal relevance.

    Each next one is that with the largest `lambda_` · relevance - (1 - `lambda_`) · likeness to the nearest
    of those before it; of equals the one with the higher score, then the earlier. Relevance is the score,
    stretched to [0, 1] over `results`. `lambda_` is in [0, 1]; at 1 scores alone decide. Carbonell and
    Goldstein, "The Use of MMR, Diversity-Based Reranking" (1998).
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
    """Return the share of all words that both have (Jaccard), 0 to 1; two without words are alike."""
    if not one and not other:
        return 1.0
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def balanced_order(results: Sequence[Place]) -> list[int]:
    """Return the order in which notes are not crowded out by transcripts.

    Of the first n at most half, rounded up, are from transcripts, as long as a note is left that is at least
    half as good as the transcript that would come next: a note that hardly fits is no reason to hold back an
    answer. Apart from that, and among their kind, results keep the order that they are given in.
    """
    notes = [at for at, result in enumerate(results) if not result.is_session]
    sessions = [at for at, result in enumerate(results) if result.is_session]
    order: list[int] = []
    taken = 0
    while taken < len(sessions):
        note, session = len(order) - taken, sessions[taken]
        if note < len(notes) and (
            notes[note] < session or (taken > note and _is_worth_it(results[notes[note]], results[session]))
        ):
            order.append(notes[note])
        else:
            order.append(session)
            taken += 1
    return [*order, *notes[len(order) - taken :]]


def _is_worth_it(note: Place, session: Place) -> bool:
    return note.score >= WORTH_THE_PLACE * session.score


def _stretched(scores: Sequence[float]) -> list[float]:
    lowest, highest = min(scores, default=0.0), max(scores, default=0.0)
    spread = highest - lowest
    return [(score - lowest) / spread if spread else 1.0 for score in scores]
