"""Merges the lists of several backends into one ranking (pure).

Candidates that say the same form a group: the same path and lines always; in `Dedup.OVERLAP` also a range of
which at least half lies in a better one of the same file; in `Dedup.NEAR` also texts that share nearly all
their words. A group is represented by its member with the highest weighted score and is scored by the
fusion. Everything that was found and is not returned is listed with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from composable_memory.types import Attribution, DroppedCandidate, DropReason, MemorySearchResult

__all__ = ["DEFAULT_RRF_K", "BackendList", "Dedup", "Fusion", "Merged", "merge"]

OVERLAP_SHARE = 0.5
NEAR_SHARE = 0.85
DEFAULT_RRF_K = 60


class Fusion(StrEnum):
    """How the scores of a group become one."""

    WEIGHTED = "weighted"
    """The highest calibrated score times weight, over the highest weight."""
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


@dataclass(slots=True)
class _Candidate:
    place: int
    backend_id: str
    weight: float
    rank: int
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

    @property
    def members(self) -> tuple[_Candidate, ...]:
        return (self.best, *self.others)

    @property
    def calibrated(self) -> float:
        return max(member.calibrated for member in self.members)

    @property
    def exact(self) -> bool:
        return any(member.result.exact for member in self.members)


def merge(
    lists: Sequence[BackendList],
    *,
    fusion: Fusion = Fusion.WEIGHTED,
    dedup: Dedup = Dedup.NEAR,
    max_results: int | None = None,
    min_score: float = 0.0,
    rrf_k: int = DEFAULT_RRF_K,
) -> Merged:
    """Return the ranking of all candidates.

    Equal scores keep the order of `lists`, then of the backend. `min_score` acts on the calibrated score,
    before weights, and never cuts a group with an exact hit. Scores of the results are in [0, 1].
    """
    dropped: list[DroppedCandidate] = []
    groups = _group(_candidates(lists, dropped), dedup, dropped)
    _score(groups, [entry for entry in lists if entry.weight > 0.0], fusion, rrf_k)
    if fusion is not Fusion.WEIGHTED:  # whose order the groups were made in
        groups.sort(key=lambda group: (-group.score, group.best.place, group.best.rank))
    kept, rest = _keep(groups, dedup, max_results, min_score, dropped)
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
            _Candidate(place, backend_id, weight, rank, calibrated, calibrated * weight, result)
            for rank, (result, calibrated) in enumerate(zip(entry.results, entry.calibrated, strict=True), 1)
        ]
    candidates.sort(key=lambda one: (-one.weighted, one.place, one.rank))
    return candidates


def _group(candidates: Sequence[_Candidate], dedup: Dedup, dropped: list[DroppedCandidate]) -> list[_Group]:
    """Gather what stands at the same place around its best."""
    groups: list[_Group] = []
    by_path: dict[str, list[_Group]] = {}
    for one in candidates:
        neighbours = by_path.get(one.result.path)
        home, reason = _home(one.result, neighbours, dedup) if neighbours else (None, None)
        if home is not None and reason is not None:
            home.others += (one,)
            dropped.append(_drop(one.backend_id, one.result, reason, f"merged into {home.best.label}"))
            continue
        groups.append(_Group(one))
        if neighbours is None:
            by_path[one.result.path] = [groups[-1]]
        else:
            neighbours.append(groups[-1])
    return groups


def _home(
    result: MemorySearchResult, groups: Sequence[_Group], dedup: Dedup
) -> tuple[_Group, DropReason] | tuple[None, None]:
    """Return the group of the same file that `result` belongs to: by its very lines before by overlap."""
    for group in groups:
        if any(_same_lines(result, member.result) for member in group.members):
            return group, "duplicate"
    if dedup is not Dedup.EXACT and result.start_line > 0:
        for group in groups:
            if _overlaps(result, group.best.result):
                return group, "overlap"
    return None, None


def _same_lines(one: MemorySearchResult, other: MemorySearchResult) -> bool:
    return one.start_line == other.start_line and one.end_line == other.end_line


def _overlaps(result: MemorySearchResult, better: MemorySearchResult) -> bool:
    """Say whether most of `result` stands in `better`; what it adds beyond is then not worth a place."""
    shared = min(result.end_line, better.end_line) - max(result.start_line, better.start_line) + 1
    return shared >= (result.end_line - result.start_line + 1) * OVERLAP_SHARE


def _score(groups: list[_Group], lists: Sequence[BackendList], fusion: Fusion, rrf_k: int) -> None:
    if not lists:
        return
    if fusion is Fusion.WEIGHTED:
        heaviest = max(entry.weight for entry in lists)
        for group in groups:
            group.score = group.best.weighted / heaviest
        return
    total = sum(entry.weight for entry in lists)
    for group in groups:
        best = _best_of_each_backend(group)
        if fusion is Fusion.CONVEX:
            group.score = sum(one.calibrated * one.weight for one in best) / total
        else:
            group.score = sum(one.weight / (rrf_k + one.rank) for one in best) * (rrf_k + 1) / total


def _best_of_each_backend(group: _Group) -> list[_Candidate]:
    """Return one member a backend: the first, for they joined best first."""
    best: dict[int, _Candidate] = {}
    for member in group.members:
        best.setdefault(member.place, member)
    return list(best.values())


def _keep(
    groups: Sequence[_Group],
    dedup: Dedup,
    max_results: int | None,
    min_score: float,
    dropped: list[DroppedCandidate],
) -> tuple[list[_Group], Sequence[_Group]]:
    """Return the groups that are returned, and those that came after the last of them."""
    kept: list[_Group] = []
    words: list[frozenset[str]] = []
    for position, group in enumerate(groups):
        if len(kept) == max_results:
            return kept, groups[position:]
        if group.calibrated < min_score and not group.exact:
            detail = f"calibrated score {group.calibrated:.3f} is below {min_score:g}"
            dropped.append(_drop(group.best.backend_id, group.best.result, "min-score", detail))
            continue
        own = _words(group.best.result.snippet) if dedup is Dedup.NEAR else frozenset()
        twin = next((at for at, other in enumerate(words) if _nearly_equal(own, other)), None)
        if twin is not None:
            kept[twin].others += group.members
            detail = f"nearly the same text as {kept[twin].best.label}"
            dropped.append(_drop(group.best.backend_id, group.best.result, "near-duplicate", detail))
            continue
        words.append(own)
        kept.append(group)
    return kept, ()


def _words(text: str) -> frozenset[str]:
    """Return the words of a text, or its character pairs where the script writes no spaces."""
    folded = text.casefold()
    words = frozenset(folded.split())
    if len(folded) <= 16 * len(words):
        return words
    return frozenset(one + other for one, other in pairwise(folded))


def _nearly_equal(one: frozenset[str], other: frozenset[str]) -> bool:
    """Compare by Jaccard similarity; two texts without words are not evidence of anything."""
    smaller, larger = sorted((len(one), len(other)))
    if not smaller or smaller < larger * NEAR_SHARE:
        return False
    shared = len(one & other)
    return shared >= NEAR_SHARE * (smaller + larger - shared)


def _result(group: _Group) -> MemorySearchResult:
    return replace(
        group.best.result, score=group.score, source_backend=group.best.backend_id, exact=group.exact
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
    )


def _drop(backend_id: str, result: MemorySearchResult, reason: DropReason, detail: str) -> DroppedCandidate:
    return DroppedCandidate(backend_id=backend_id, result=result, reason=reason, detail=detail)
