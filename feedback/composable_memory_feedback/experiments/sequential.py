"""Tests which side of an experiment wins more often, with a promise that holds at every look (pure).

Among the queries that one side won, `b` wins each with an unknown chance. Where both are equally good it is
one half, and the wealth of a gambler who bets on the next winner at fair odds is a martingale: with a chance
of alpha at most does it ever reach 1/alpha (J. Ville, 1939). Ours bets by the mean of a Beta posterior; its
wealth is then the Beta mixture of likelihood ratios (H. Robbins, Annals of Mathematical Statistics 41, 1970).
The chances that such a gambler does not refute make the confidence sequence.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import lgamma, log, log1p

from composable_memory_feedback.experiments.values import Outcome, Side
from composable_memory_feedback.metrics import Interval

__all__ = ["PRIOR", "SequentialVerdict", "judge", "log_evidence", "win_rate"]

PRIOR = 3.0
"""Both parameters of the Beta prior; so it is quickest where the better side wins 60 to 90 %."""

BISECTIONS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialVerdict:
    """What the outcomes up to the decision tell; those after it are not counted.

    `e_value` is the evidence against "both win as often", 1 where there is none.
    """

    wins_a: int
    wins_b: int
    ties: int
    e_value: float
    win_rate: Interval
    decision: Side | None

    @property
    def queries(self) -> int:
        """Return how many outcomes were counted."""
        return self.wins_a + self.wins_b + self.ties


def judge(outcomes: Iterable[Outcome], alpha: float = 0.05) -> SequentialVerdict:
    """Return what outcomes tell, taken in their order, up to the first that decides at error rate `alpha`.

    Raises `ValueError` for an `alpha` that is not between 0 and 1.
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"an error rate is between 0 and 1, not {alpha}")
    wins: dict[Side | None, int] = {"a": 0, "b": 0, None: 0}
    wealth = 1.0
    for outcome in outcomes:
        winner = outcome.winner
        if winner is not None:
            wealth *= 2.0 * (wins[winner] + PRIOR) / (wins["a"] + wins["b"] + 2.0 * PRIOR)
        wins[winner] += 1
        if wealth * alpha >= 1.0:
            break
    return SequentialVerdict(
        wins_a=wins["a"],
        wins_b=wins["b"],
        ties=wins[None],
        e_value=wealth,
        win_rate=win_rate(wins["b"], wins["a"] + wins["b"], alpha=alpha),
        decision=_leader(wins["a"], wins["b"]) if wealth * alpha >= 1.0 else None,
    )


def log_evidence(wins: float, of: float) -> float:
    """Return the logarithm of the evidence against even chances, when `of` queries gave so many `wins`."""
    return _log_mixture(wins, of) + of * log(2.0)


def win_rate(wins: int, of: int, *, alpha: float = 0.05) -> Interval:
    """Return the share of wins with its confidence sequence, which holds for all `of` at once."""
    if of == 0:
        return Interval(mean=0.5, low=0.0, high=1.0)
    rate, bound = wins / of, _log_mixture(wins, of) + log(alpha)
    return Interval(
        mean=rate,
        low=_edge(wins, of, bound, outside=0.0, inside=rate),
        high=_edge(wins, of, bound, outside=1.0, inside=rate),
    )


def _leader(wins_a: int, wins_b: int) -> Side:
    return "b" if wins_b > wins_a else "a"


def _log_mixture(wins: float, of: float) -> float:
    """Return the logarithm of the likelihood, mixed over the prior."""
    return _log_beta(wins + PRIOR, of - wins + PRIOR) - _log_beta(PRIOR, PRIOR)


def _log_beta(one: float, other: float) -> float:
    return lgamma(one) + lgamma(other) - lgamma(one + other)


def _edge(wins: int, of: int, bound: float, *, outside: float, inside: float) -> float:
    """Return where the likelihood, falling from `inside` to `outside`, meets the bound; else `outside`."""
    if _log_likelihood(outside, wins, of) >= bound:
        return outside
    for _ in range(BISECTIONS):
        middle = (outside + inside) / 2.0
        if _log_likelihood(middle, wins, of) >= bound:
            inside = middle
        else:
            outside = middle
    return outside


def _log_likelihood(chance: float, wins: int, of: int) -> float:
    losses = of - wins
    if (wins and chance <= 0.0) or (losses and chance >= 1.0):
        return float("-inf")
    return (wins * log(chance) if wins else 0.0) + (losses * log1p(-chance) if losses else 0.0)
