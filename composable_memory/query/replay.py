"""Ranks logged queries again with the code that ranks live ones: the same candidates, any policy (pure).

Under the logged policy, the ranking equals the logged one byte for byte; `is_reproduced` checks that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Dedup, Fusion, Group, Loser, Merged
from composable_memory.query.interleaving import interleave
from composable_memory.query.ranking import CalibrationRule, MergePolicy, Ranking, depth_for, rank
from composable_memory.types import SearchOptions
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit, RankingPolicy
from composable_memory_feedback.weights import DEFAULT_WEIGHT
from composable_memory_ops_logs import Candidate
from composable_memory_ops_logs.line_format import to_line
from composable_memory_ops_logs.short_form import ShortRanking, final_row


class Replayer:
    """Ranks logged queries under any policy; implements `Ranker`.

    It caches what it computes from the candidates of a query, since many policies are tried on each; with
    `keeps`, for at most that many queries.
    """

    def __init__(self, *, keeps: int | None = None) -> None:
        self._keeps = keeps
        self._prepared: dict[tuple[str, str], _Prepared] = {}

    def __call__(self, query: LoggedQuery, policy: RankingPolicy) -> Sequence[RankedHit]:
        """Return the ranking, best first."""
        prepared = self._prepared_of(query)
        merged = prepared.as_logged if policy is query.policy else prepared.ranked(policy).merged
        return [_hit(group) for group in merged.kept]

    def reproduces(self, query: LoggedQuery) -> bool:
        """Return whether ranking again under the logged policy gives the lines of the log byte for byte.

        Of an interleaved list, each result must also be credited to the same team.
        """
        merged, teams = _rank_as_logged(query, self._prepared_of(query))
        if query.experiment is not None and teams != query.experiment.teams:
            return False
        return _matches_log(merged, query.written)

    def _prepared_of(self, query: LoggedQuery) -> "_Prepared":
        key = (query.trace_id, query.query_id)
        found = self._prepared.get(key)
        if found is None:
            if self._keeps is not None and len(self._prepared) >= self._keeps:
                del self._prepared[next(iter(self._prepared))]
            found = self._prepared[key] = _Prepared(query)
        return found


def can_be_ranked(query: LoggedQuery) -> bool:
    """Return whether this version supports the methods by which a query was ranked."""
    return (
        query.policy.fusion in _FUSIONS
        and query.policy.dedup in _DEDUPS
        and all(one.calibration in _CALIBRATIONS for one in query.lists)
    )


_FUSIONS, _DEDUPS, _CALIBRATIONS = frozenset(Fusion), frozenset(Dedup), frozenset(Calibration)


def is_reproduced(query: LoggedQuery) -> bool:
    """Return whether ranking again under the logged policy gives the lines of the log byte for byte."""
    return Replayer().reproduces(query)


def _matches_log(merged: Merged[Candidate], written: ShortRanking | None) -> bool:
    """Compare with the rows of the log, which refer to candidates by number, without expanding them."""
    if written is None:
        return False
    first: dict[str, int] = {}  # among candidates with the same label, a row may name any
    named = [first.setdefault(f"{backend} {one.key}", at) for at, (backend, one) in enumerate(written.found)]
    numbers = {id(one): at for at, (_, one) in enumerate(written.found)}
    labels = {one: named[at] for one, at in numbers.items()}
    try:
        results = [
            [
                numbers[id(group.best.result)], group.score, group.best.calibrated,
                [labels[id(other.result)] for other in group.others], group.support, group.best.weight,
            ]
            for group in merged.kept
        ]  # fmt: skip
        shown = [final_row(row) for row in written.shown]
        for row in shown:
            row[3] = [named[other] if isinstance(other, int) else other for other in row[3]]
            if row[-1] is None:
                row[-1] = written.weights[written.found[row[0]][0]]
        losers = [_loser_row(one, labels) for one in merged.losers]
        ruled_out = [_ruled_out(row, named, written.reasons) for row in written.ruled_out]
    except (LookupError, TypeError, ValueError):  # an invalid row
        return False
    return to_line({"shown": results, "ruledOut": losers}) == to_line({"shown": shown, "ruledOut": ruled_out})


def _ruled_out(row: Sequence[Any], named: Sequence[int], reasons: Sequence[Any]) -> list[object]:
    number, kind, *what = row
    reason, before, after = reasons[kind]
    if what and isinstance(what[0], str):
        return [named[number], reason, f"{before}{what[0]}{after}", ""]
    return [named[number], reason, before, after, *map(named.__getitem__, what)]


def _loser_row(one: Loser[Candidate], labels: Mapping[int, int]) -> list[object]:
    if isinstance(one.against, str):
        return [labels[id(one.result)], one.reason, one.against, ""]
    return [labels[id(one.result)], one.reason, f"{one.lost} ", "", labels[id(one.against.result)]]


def _rank_as_logged(query: LoggedQuery, prepared: "_Prepared") -> tuple[Merged[Candidate], tuple[str, ...]]:
    experiment = query.experiment
    if experiment is None:
        return prepared.as_logged, ()
    a, b = (
        prepared.ranked(query.policy, weights).merged
        for weights in (experiment.weights_a, experiment.weights_b)
    )
    merged, drawn = interleave(a, b, experiment, max_results=query.policy.max_results)
    return merged, drawn.teams


class _Prepared:
    """What is the same for every ranking of a query's candidates."""

    def __init__(self, query: LoggedQuery) -> None:
        self._found = {one.backend: one.candidates for one in query.lists}
        self._rules = {
            one.backend: CalibrationRule(method=Calibration(one.calibration), is_absolute=one.is_absolute)
            for one in query.lists
        }
        self._is_near = _LoggedNearness(query)
        self._policy = query.policy

    @cached_property
    def as_logged(self) -> Merged[Candidate]:
        """The ranking under the logged policy."""
        return self.ranked(self._policy).merged

    def ranked(self, policy: RankingPolicy, weights: Mapping[str, float] | None = None) -> Ranking[Candidate]:
        given = policy.weights if weights is None else weights
        rules = self._rules
        if policy.calibration is not None:
            method = Calibration(policy.calibration)
            rules = {one: replace(rule, method=method) for one, rule in rules.items()}
        return rank(
            {one: found for one, found in self._found.items() if one not in policy.dropped},
            rules,
            weights={one: given.get(one, DEFAULT_WEIGHT) for one in self._found},
            policy=MergePolicy(
                fusion=Fusion(policy.fusion),
                dedup=Dedup(policy.dedup),
                depth=policy.depth,
                rrf_k=policy.rrf_k,
            ),
            options=SearchOptions(max_results=policy.max_results, min_score=policy.min_score),
            min_depth=depth_for(policy.max_results, policy.depth),
            is_near=self._is_near,
        )


class _LoggedNearness:
    """Knows from the log which texts are nearly equal, except for those with the same lines."""

    def __init__(self, query: LoggedQuery) -> None:
        found = [id(one) for each in query.lists for one in each.candidates] if query.near else []
        pairs = [(found[one], found[other]) for one, other in query.near if 0 <= one < other]
        self._pairs = {*pairs, *((other, one) for one, other in pairs)}

    def __call__(self, one: Candidate, other: Candidate) -> bool:
        return bool(self._pairs) and (id(one), id(other)) in self._pairs


def _hit(group: Group[Candidate]) -> RankedHit:
    best, others = group.best, tuple(other.key for other in group.others)
    return RankedHit.of(
        best.result, best.backend_id, score=group.score, calibrated=best.calibrated, others=others
    )
