"""Merges the lists of several backends into one ranking (pure).

Candidates that say the same form a group: the same path and lines always; in `Dedup.OVERLAP` also a range of
which at least half lies in a better one of the same file; in `Dedup.NEAR` also texts that share nearly all
their words. A group is represented by its member with the highest weighted score and is scored by the fusion.
Everything that was found and is not returned is listed with the reason.

A fact that was taken from lines of a file takes no second place beside the passage that these lines stand in:
it supports the passage, which says more, and never the other way round. In `Fusion.WEIGHTED` a passage gains
a tenth of the best fact of another backend that supports it, and a fact counts half whose lines another
backend must have searched and did not bring up ("What the graph adds" in docs/retrieval-measurements.md).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from composable_memory.query.near_duplicates import NearTexts, TextComparison, are_apart, overlap, same_lines
from composable_memory.types import Attribution, DroppedCandidate, DropReason, MemorySearchResult, Origin

__all__ = ["DEFAULT_RRF_K", "BackendList", "Dedup", "Fusion", "Merged", "merge"]

SUPPORT_SHARE = 0.1
"""So much of the score of the best fact that supports a passage is added to the passage's."""
CLEAR_LEAD = 0.3
"""A fact of another backend that is farther ahead of the passage it is from stays a result of its own."""
UNCONFIRMED_FACTOR = 0.5
"""What the score of a fact is multiplied by whose lines were searched and not brought up."""
DEFAULT_RRF_K = 60


class Fusion(StrEnum):
    """How the scores of a group become one."""

    WEIGHTED = "weighted"
    """The highest calibrated score times weight, over the highest weight; then what facts support."""
    RRF = "rrf"
    """Reciprocal rank fusion: the sum of weight / (k + rank), over its largest value (Cormack 2009)."""
    CONVEX = "convex"
    """The sum of weight times calibrated score, over the sum of weights; a missing backend counts 0."""


class Dedup(StrEnum):
    """What counts as the same; each includes the ones before."""

    EXACT = "exact"
    OVERLAP = "overlap"
    NEAR = "near"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendList:
    """What one backend found, best first, with `calibrated` scores running parallel to `results`."""

    backend_id: str
    weight: float
    results: Sequence[MemorySearchResult]
    calibrated: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """One ranking; `attributions` runs parallel to `results`.

    `dropped` was ruled out, with the reason; `overflow` came after the last result, as pairs of backend id
    and result, in order.
    """

    results: tuple[MemorySearchResult, ...]
    attributions: tuple[Attribution, ...]
    dropped: tuple[DroppedCandidate, ...]
    overflow: tuple[tuple[str, MemorySearchResult], ...]
    total_before_dedup: int
    total_after_dedup: int


class _Candidate(NamedTuple):
    """What one backend found. Sorted as a tuple, the highest weighted score comes first."""

    minus_weighted: float
    place: int
    rank: int
    backend_id: str
    weight: float
    calibrated: float
    weighted: float
    result: MemorySearchResult

    @property
    def label(self) -> str:
        return f"{self.backend_id} {self.result.key}"


@dataclass(slots=True)
class _Group:
    """Candidates that say the same: the one that stands for them, and the others."""

    best: _Candidate
    score: float = 0.0
    others: tuple[_Candidate, ...] = ()
    support: float = 0.0
    is_unconfirmed: bool = False

    @property
    def members(self) -> tuple[_Candidate, ...]:
        return (self.best, *self.others)

    @property
    def calibrated(self) -> float:
        return max(member.calibrated for member in self.members) if self.others else self.best.calibrated

    @property
    def exact(self) -> bool:
        return self.best.result.exact or any(other.result.exact for other in self.others)


def merge(
    lists: Sequence[BackendList],
    *,
    fusion: Fusion = Fusion.WEIGHTED,
    dedup: Dedup = Dedup.NEAR,
    max_results: int | None = None,
    min_score: float = 0.0,
    rrf_k: int = DEFAULT_RRF_K,
    is_near: TextComparison | None = None,
) -> Merged:
    """Return the ranking of all candidates.

    Equal scores keep the order of `lists`, then of the backend. `min_score` acts on the calibrated score,
    before weights, and never cuts a group with an exact hit. Scores of the results are in [0, 1]. `is_near`
    compares texts; by default their snippets are.
    """
    is_near = is_near or NearTexts()
    dropped: list[DroppedCandidate] = []
    groups = _group(_candidates(lists, dropped), dedup, dropped, is_near)
    _score(groups, [entry for entry in lists if entry.weight > 0.0], fusion, rrf_k)
    groups.sort(key=lambda group: (-group.score, group.best.place, group.best.rank))
    kept, rest = _keep(
        groups, max_results, min_score, dropped, is_near if dedup is Dedup.NEAR else _never_near
    )
    return Merged(
        results=tuple(_result(group) for group in kept),
        attributions=tuple(_attribution(group) for group in kept),
        dropped=tuple(dropped),
        overflow=tuple((group.best.backend_id, group.best.result) for group in rest),
        total_before_dedup=sum(len(entry.results) for entry in lists),
        total_after_dedup=len(groups),
    )


def _candidates(lists: Sequence[BackendList], dropped: list[DroppedCandidate]) -> list[_Candidate]:
    """Return all candidates that count, the highest weighted score first."""
    candidates: list[_Candidate] = []
    for place, entry in enumerate(lists):
        backend_id, weight = entry.backend_id, entry.weight
        if weight <= 0.0:
            reason = "its backend has weight 0"
            dropped.extend(_drop(backend_id, result, "weight-zero", reason) for result in entry.results)
            continue
        candidates += [
            _Candidate(-weighted, place, rank, backend_id, weight, calibrated, weighted, result)
            for rank, (result, calibrated) in enumerate(zip(entry.results, entry.calibrated, strict=True), 1)
            for weighted in (calibrated * weight,)
        ]
    candidates.sort()
    return candidates


def _group(
    candidates: Sequence[_Candidate],
    dedup: Dedup,
    dropped: list[DroppedCandidate],
    is_near: TextComparison,
) -> list[_Group]:
    """Gather what stands at the same place around its best, and facts around the passages they are from."""
    groups: list[_Group] = []
    by_path: dict[str, list[_Group]] = {}
    by_origin: dict[str, list[_Group]] = {}
    taken = [one for one in candidates if one.result.origin is not None]
    passages_first = [*(one for one in candidates if one.result.origin is None), *taken]
    is_searched = _Searched.of(candidates if taken else ())
    for one in passages_first:
        near_by = by_path.get(one.result.path)
        origin = one.result.origin if dedup is not Dedup.EXACT else None
        if near_by is None and origin is None:
            groups.append(group := _Group(one))
            by_path[one.result.path] = [group]
            continue
        home, reason = _home(one.result, near_by, dedup) if near_by else (None, None)
        passages = _passages_of(origin, by_path) if origin is not None else []
        if origin is not None and home is None:
            home, reason = _home_of_taken(one, passages, by_origin.get(origin.path, ()), is_near)
        if home is not None and reason is not None:
            home.others += (one,)
            dropped.append(_drop(one.backend_id, one.result, reason, f"merged into {home.best.label}"))
            continue
        group = _Group(one)
        groups.append(group)
        by_path.setdefault(one.result.path, []).append(group)
        if origin is not None:
            group.is_unconfirmed = not passages and is_searched.without(one.place, origin)
            by_origin.setdefault(origin.path, []).append(group)
    return groups


def _home(
    result: MemorySearchResult, groups: Sequence[_Group], dedup: Dedup
) -> tuple[_Group, DropReason] | tuple[None, None]:
    """Return the group of the same file that `result` belongs to: by its very lines before by overlap."""
    for group in groups:
        if any(same_lines(result, member.result) for member in group.members):
            return group, "duplicate"
    if dedup is not Dedup.EXACT and result.start_line > 0:
        for group in groups:
            if overlap(result, group.best.result) and not are_apart(result, group.best.result):
                return group, "overlap"
    return None, None


def _passages_of(origin: Origin, by_path: dict[str, list[_Group]]) -> list[_Group]:
    """Return the groups of the passages that most of the lines of an origin stand in, the best first."""
    if origin.start_line < 1:
        return []
    return [group for group in by_path.get(origin.path, ()) if overlap(origin, group.best.result)]


def _home_of_taken(
    fact: _Candidate, passages: Sequence[_Group], siblings: Sequence[_Group], is_near: TextComparison
) -> tuple[_Group, DropReason] | tuple[None, None]:
    """Return the group of the passage that a fact is from, or of a fact from there that says the same."""
    for group in passages:
        # What a backend puts before a passage of its own, it means so.
        lead = CLEAR_LEAD * fact.weight if group.best.place != fact.place else 0.0
        if fact.weighted - group.best.weighted <= lead:
            return group, "overlap"
    for group in siblings:
        same_source = _from_same_lines(fact.result, group.best.result)
        if same_source and is_near(fact.result, group.best.result):
            return group, "overlap"
    return None, None


def _from_same_lines(one: MemorySearchResult, other: MemorySearchResult) -> bool:
    if one.origin is None or other.origin is None or one.origin.start_line < 1:
        return False
    return overlap(one.origin, other.origin)


@dataclass(frozen=True, slots=True)
class _Searched:
    """The folders that each backend brought passages from; it has searched all that is in them."""

    folders: frozenset[tuple[int, str]]

    @classmethod
    def of(cls, candidates: Iterable[_Candidate]) -> "_Searched":
        return cls(
            frozenset(
                (one.place, _folder(one.result.path)) for one in candidates if one.result.start_line > 0
            )
        )

    def without(self, place: int, origin: Origin) -> bool:
        """Return whether another backend than that at `place` has searched the lines of an origin."""
        if origin.start_line < 1:
            return False
        folder = _folder(origin.path)
        return any(there == folder and searcher != place for searcher, there in self.folders)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _score(groups: list[_Group], lists: Sequence[BackendList], fusion: Fusion, rrf_k: int) -> None:
    if not lists:
        return
    if fusion is Fusion.WEIGHTED:
        heaviest = max(entry.weight for entry in lists)
        for group in groups:
            if group.others or group.is_unconfirmed:
                group.support = _support(group) / heaviest
            score = group.best.weighted / heaviest + group.support
            group.score = score if 0.0 <= score <= 1.0 else min(1.0, max(0.0, score))
        return
    total = sum(entry.weight for entry in lists)
    for group in groups:
        best = _best_of_each_backend(group)
        if fusion is Fusion.CONVEX:
            group.score = sum(one.calibrated * one.weight for one in best) / total
        else:
            group.score = sum(one.weight / (rrf_k + one.rank) for one in best) * (rrf_k + 1) / total


def _support(group: _Group) -> float:
    """Return what facts add to the weighted score of their passage, or what a fact without one loses."""
    if group.is_unconfirmed:
        return (UNCONFIRMED_FACTOR - 1.0) * group.best.weighted
    supporting = (one for one in group.others if one.result.origin and one.place != group.best.place)
    if group.best.result.origin is not None or not group.others:
        return 0.0
    return SUPPORT_SHARE * max((one.weighted for one in supporting), default=0.0)


def _best_of_each_backend(group: _Group) -> list[_Candidate]:
    """Return one member a backend: the first, for they joined best first."""
    best: dict[int, _Candidate] = {}
    for member in group.members:
        best.setdefault(member.place, member)
    return list(best.values())


def _keep(
    groups: Sequence[_Group],
    max_results: int | None,
    min_score: float,
    dropped: list[DroppedCandidate],
    is_near: TextComparison,
) -> tuple[list[_Group], Sequence[_Group]]:
    """Return the groups that are returned, and those that came after the last of them."""
    kept: list[_Group] = []
    for position, group in enumerate(groups):
        if len(kept) == max_results:
            return kept, groups[position:]
        if group.calibrated < min_score and not group.exact:
            detail = f"calibrated score {group.calibrated:.3f} is below {min_score:g}"
            dropped.append(_drop(group.best.backend_id, group.best.result, "min-score", detail))
            continue
        twin = next((other for other in kept if is_near(group.best.result, other.best.result)), None)
        if twin is not None:
            twin.others += group.members
            detail = f"nearly the same text as {twin.best.label}"
            dropped.append(_drop(group.best.backend_id, group.best.result, "near-duplicate", detail))
            continue
        kept.append(group)
    return kept, ()


def _never_near(one: MemorySearchResult, other: MemorySearchResult) -> bool:  # noqa: ARG001 - a comparison
    return False


def _result(group: _Group) -> MemorySearchResult:
    found = group.best.result  # `replace` takes several times as long, and this is on the way of every query
    return MemorySearchResult(
        path=found.path,
        start_line=found.start_line,
        end_line=found.end_line,
        score=group.score,
        snippet=found.snippet,
        source=found.source,
        citation=found.citation,
        source_backend=group.best.backend_id,
        exact=group.exact,
        origin=found.origin,
        start_char=found.start_char,
        metadata=found.metadata,
        highlights=found.highlights,
        text=found.text,
    )


def _attribution(group: _Group) -> Attribution:
    best = group.best
    return Attribution(
        backend_id=best.backend_id,
        raw_score=best.result.score,
        calibrated_score=best.calibrated,
        weight=best.weight,
        backend_rank=best.rank,
        merged_with=tuple(member.label for member in group.others),
        support=group.support,
    )


def _drop(backend_id: str, result: MemorySearchResult, reason: DropReason, detail: str) -> DroppedCandidate:
    return DroppedCandidate(backend_id=backend_id, result=result, reason=reason, detail=detail)
