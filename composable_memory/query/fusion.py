"""Merges the lists of several backends into one ranking (pure).

Candidates that say the same form a group: those with the same path and lines always; in `Dedup.OVERLAP` also
those of which at least half lies in a better one of the same file; in `Dedup.NEAR` also texts that share
nearly all their words. The member with the highest weighted score represents the group, and fusion scores it.
Every candidate that is not returned is listed with the reason.

A fact taken from lines of a file does not take a second place beside the passage with those lines: it
supports the passage, which says more, and never the other way round. In `Fusion.WEIGHTED` a passage gains a
tenth of the best fact of another backend that supports it, and a fact counts half if another backend must
have searched its lines and did not return them ("What the graph adds" in docs/retrieval-measurements.md).

A passage that says what does not hold at the time asked about is ranked below what does: a fact that answers
the question, or its passage, takes the score of the best passage that it outdates.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import partial
from itertools import count, repeat
from operator import neg
from typing import Any, Generic, NamedTuple, TypeVar

from composable_memory.citations import citation_of
from composable_memory.paths import FOREIGN
from composable_memory.query.near_duplicates import are_apart, are_near, overlap, same_lines
from composable_memory.types import (
    Attribution,
    DroppedCandidate,
    DropReason,
    MemorySearchResult,
    Origin,
    SupportingFact,
)
from composable_memory_ops_logs import Candidate, TakenFrom
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T", bound=MemorySearchResult | Candidate)
"""What is merged: results as the backends returned them, or candidates as the log recorded them."""

SUPPORT_SHARE = 0.1
"""Share of the score of the best supporting fact that is added to the passage's score."""
CLEAR_LEAD = 0.3
"""A fact of another backend whose score exceeds its passage's by more than this stays a result of its own."""
ANSWERING = 0.5
"""A fact with at least this calibrated score answers the question itself, not just something near it."""
UNCONFIRMED_FACTOR = 0.5
"""Penalty for a fact whose source lines another backend searched without returning them."""
DEFAULT_RRF_K = 60


class Fusion(StrEnum):
    """How the scores of a group are combined into one."""

    WEIGHTED = "weighted"
    """The highest calibrated score times weight, over the highest weight; plus the support of facts."""
    RRF = "rrf"
    """Reciprocal rank fusion: the sum of weight / (k + rank), over its largest value (Cormack 2009)."""
    CONVEX = "convex"
    """The sum of weight times calibrated score, over the sum of weights; a missing backend counts as 0."""


class Dedup(StrEnum):
    """What counts as a duplicate; each value includes the ones before."""

    EXACT = "exact"
    OVERLAP = "overlap"
    NEAR = "near"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendList(Generic[T]):
    """What one backend found, best first, with the `calibrated` scores parallel to `results`."""

    backend_id: str
    weight: float
    results: Sequence[T]
    calibrated: Sequence[float]


class _Found(NamedTuple, Generic[T]):
    """One candidate of a backend. The fields sort as a tuple, the highest weighted score first."""

    minus_weighted: float
    place: int
    rank: int
    backend_id: str
    weight: float
    calibrated: float
    weighted: float
    result: T

    @property
    def key(self) -> str:
        return self.result.key

    @property
    def label(self) -> str:
        return f"{self.backend_id} {self.result.key}"


_make_found: Callable[[Iterable[object]], _Found[Any]] = partial(tuple.__new__, _Found)
"""Makes a `_Found` of its fields in half the time that calling the class takes."""


@dataclass(slots=True)
class Group(Generic[T]):
    """Candidates that say the same: the best one, which represents them, and the others.

    `apart` are facts about it in other groups: taken from it, or saying that it `is_outdated`.
    """

    best: _Found[T]
    score: float = 0.0
    others: tuple[_Found[T], ...] = ()
    apart: tuple[_Found[T], ...] = ()
    support: float = 0.0
    is_unconfirmed: bool = False
    is_outdated: bool = False

    @property
    def members(self) -> tuple[_Found[T], ...]:
        """Return all members, the best first."""
        return (self.best, *self.others)

    @property
    def key(self) -> str:
        """Return the key of the best member."""
        return self.best.result.key

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of all members, the best first."""
        return tuple(member.result.key for member in self.members)

    @property
    def calibrated(self) -> float:
        """Return the calibrated score of the best member."""
        return max(member.calibrated for member in self.members) if self.others else self.best.calibrated

    @property
    def exact(self) -> bool:
        """Return whether a member contains every word of the query."""
        return self.best.result.exact or any(other.result.exact for other in self.others)


class Loser(NamedTuple, Generic[T]):
    """A candidate that was dropped: the reason, and what it lost against, or an explanation."""

    found: _Found[T]
    reason: DropReason
    against: _Found[T] | str

    @property
    def result(self) -> T:
        """Return the candidate that was dropped."""
        return self.found.result

    @property
    def detail(self) -> str:
        """What it lost against, or the explanation."""
        return self.against if isinstance(self.against, str) else f"{self.lost} {self.against.label}"

    @property
    def lost(self) -> str:
        """How it lost, before the name of what it lost against."""
        return "nearly the same text as" if self.reason == "near-duplicate" else "merged into"


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged(Generic[T]):
    """One ranking. `beyond` came after the last of `kept`; those that represent a group have its fused score.

    The results themselves are built lazily: a replay seldom needs them.
    """

    kept: tuple[Group[T], ...]
    losers: tuple[Loser[T], ...]
    beyond: tuple[Group[T] | _Found[T], ...]
    total_before_dedup: int
    total_after_dedup: int

    @property
    def results(self: "Merged[MemorySearchResult]") -> tuple[MemorySearchResult, ...]:
        """Return the results with their fused scores."""
        return tuple(map(_result, self.kept))

    @property
    def attributions(self) -> tuple[Attribution, ...]:
        """Return how each result got its place."""
        return tuple(map(_attribution, self.kept))

    @property
    def dropped(self: "Merged[MemorySearchResult]") -> tuple[DroppedCandidate, ...]:
        """Return the dropped candidates, with the reasons."""
        return tuple(
            DroppedCandidate(
                backend_id=one.found.backend_id, result=one.result, reason=one.reason, detail=one.detail
            )
            for one in self.losers
        )

    @property
    def overflow(self: "Merged[MemorySearchResult]") -> tuple[tuple[str, MemorySearchResult], ...]:
        """Return the candidates after the last result, as pairs of backend id and result, in order."""
        return tuple(
            (one.best.backend_id, _result(one)) if isinstance(one, Group) else (one.backend_id, one.result)
            for one in self.beyond
        )


def merge(
    lists: Sequence[BackendList[T]],
    *,
    fusion: Fusion = Fusion.WEIGHTED,
    dedup: Dedup = Dedup.NEAR,
    max_results: int | None = None,
    min_score: float = 0.0,
    rrf_k: int = DEFAULT_RRF_K,
    is_near: Callable[[T, T], bool] = are_near,
) -> Merged[T]:
    """Return the ranking of all candidates.

    Equal scores keep the order of `lists`, then of the backend. `min_score` acts on the calibrated score,
    before weights, and never cuts a group with an exact hit. Scores of the results are in [0, 1]. `is_near`
    compares texts; by default it compares snippets.
    """
    losers: list[Loser[T]] = []
    candidates = _candidates(lists, losers)
    grouping = _Grouping(dedup, losers, is_near)
    groups = grouping.of(candidates)
    _score(groups, [entry for entry in lists if entry.weight > 0.0], fusion, rrf_k)
    if any(one.result.outdated for one in grouping.facts):
        _raise_above_outdated(groups)
    groups.sort(key=lambda group: (-group.score, group.is_outdated, group.best.place, group.best.rank))
    comparison = is_near if dedup is Dedup.NEAR else lambda *_: False
    kept, rest = _keep(groups, max_results, min_score, losers, comparison)
    return Merged(
        kept=tuple(kept),
        losers=tuple(losers),
        beyond=tuple(group.best for group in rest),
        total_before_dedup=sum(len(entry.results) for entry in lists),
        total_after_dedup=len(groups),
    )


def _candidates(lists: Sequence[BackendList[T]], losers: list[Loser[T]]) -> list[_Found[T]]:
    """Return the candidates of backends with a weight, the highest weighted score first."""
    candidates: list[_Found[T]] = []
    for place, entry in enumerate(lists):
        backend_id, weight = entry.backend_id, entry.weight
        weighted = [one * weight for one in entry.calibrated]
        told = repeat(place), count(1), repeat(backend_id), repeat(weight)
        rows = zip(map(neg, weighted), *told, entry.calibrated, weighted, entry.results, strict=False)
        if weight > 0.0:
            candidates += map(_make_found, rows)
        else:
            losers += [
                Loser(one, "weight-zero", "its backend has weight 0") for one in map(_make_found, rows)
            ]
    candidates.sort()
    return candidates


class _Grouping(Generic[T]):
    """Groups candidates at the same place around the best of them, and facts around their passages."""

    def __init__(self, dedup: Dedup, losers: list[Loser[T]], is_near: Callable[[T, T], bool]) -> None:
        self._dedup = dedup
        self._losers = losers
        self._is_near = is_near
        self.facts: list[_Found[T]] = []  # candidates with an origin
        self._groups: list[Group[T]] = []
        self._by_path: dict[str, list[Group[T]]] = {}
        self._by_origin: dict[str, list[Group[T]]] = {}
        # The folders from which each backend returned passages; it has searched everything in them.
        self._searched: set[tuple[int, str]] = set()

    def of(self, candidates: Sequence[_Found[T]]) -> list[Group[T]]:
        facts = self.facts
        for one in candidates:
            result = one.result
            if result.origin is not None:
                facts.append(one)
            elif result.path in self._by_path:
                self._add(one, *self._find_group(result))
            else:  # most of them
                self._by_path[result.path] = [group := Group(one)]
                self._groups.append(group)
        if facts:
            found = ((one.place, one.result) for one in candidates)
            self._searched = {(place, _folder(one.path)) for place, one in found if one.start_line > 0}
        for one in facts:
            self._add_fact(one)
        return self._groups

    def _add(self, one: _Found[T], home: Group[T] | None, reason: DropReason) -> Group[T]:
        """Add a candidate to the group `home`, or to a new one; return the group."""
        if home is None:
            home = Group(one)
            self._groups.append(home)
            self._by_path.setdefault(one.result.path, []).append(home)
        else:
            home.others += (one,)
            self._losers.append(Loser(one, reason, home.best))
        return home

    def _add_fact(self, one: _Found[T]) -> None:
        """Add a fact to the passage it was taken from, or to a fact that says the same."""
        home, reason = self._find_group(one.result)
        origin = one.result.origin if self._dedup is not Dedup.EXACT else None
        if origin is None:
            self._add(one, home, reason)
            return
        passages = self._passages_of(origin)
        if home is None:
            home, reason = self._find_group_of_fact(one, passages, origin), "overlap"
        group = self._add(one, home, reason)
        if home is None:
            for passage in passages:
                passage.apart += (one,)
            group.is_unconfirmed = not passages and self._is_searched_by_another(one.place, origin)
            self._by_origin.setdefault(origin.path, []).append(group)

    def _find_group(self, result: T) -> tuple[Group[T] | None, DropReason]:
        """Return the group of the same file that `result` belongs to: by equal lines, or else by overlap."""
        groups = self._by_path.get(result.path, ())
        for group in groups:
            if same_lines(result, group.best.result):
                return group, "duplicate"
            for other in group.others:
                if same_lines(result, other.result):
                    return group, "duplicate"
        if self._dedup is not Dedup.EXACT and result.start_line > 0:
            for group in groups:
                if overlap(result, group.best.result) and not are_apart(result, group.best.result):
                    return group, "overlap"
        return None, "duplicate"

    def _passages_of(self, origin: Origin | TakenFrom) -> list[Group[T]]:
        """Return the groups whose passage contains most of an origin's lines, the best first."""
        if origin.start_line < 1:
            return []
        return [group for group in self._by_path.get(origin.path, ()) if overlap(origin, group.best.result)]

    def _find_group_of_fact(
        self, fact: _Found[T], passages: Sequence[Group[T]], origin: Origin | TakenFrom
    ) -> Group[T] | None:
        """Return the group of a fact's passage, or of another fact from the same lines that says the same."""
        for group in passages:
            # A backend that ranks a fact above its own passage does so on purpose.
            lead = CLEAR_LEAD * fact.weight if group.best.place != fact.place else 0.0
            if fact.weighted - group.best.weighted <= lead:
                return group
        for group in self._by_origin.get(origin.path, ()):
            sibling = group.best.result
            is_same_source = sibling.origin and origin.start_line > 0 and overlap(origin, sibling.origin)
            if is_same_source and self._is_near(fact.result, sibling):
                return group
        return None

    def _is_searched_by_another(self, place: int, origin: Origin | TakenFrom) -> bool:
        """Return whether a backend other than the one at `place` searched the lines of an origin."""
        if origin.start_line < 1:
            return False
        folder = _folder(origin.path)
        return any(there == folder and searcher != place for searcher, there in self._searched)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _score(groups: list[Group[T]], lists: Sequence[BackendList[T]], fusion: Fusion, rrf_k: int) -> None:
    if not lists:
        return
    if fusion is Fusion.WEIGHTED:
        heaviest = max(entry.weight for entry in lists)
        for group in groups:
            score = group.best.weighted / heaviest
            if group.others or group.is_unconfirmed:
                group.support = _support(group) / heaviest
                score += group.support
            group.score = score if 0.0 <= score <= 1.0 else min(1.0, max(0.0, score))
        return
    total = sum(entry.weight for entry in lists)
    for group in groups:
        best = _best_of_each_backend(group)
        if fusion is Fusion.CONVEX:
            group.score = sum(one.calibrated * one.weight for one in best) / total
        else:
            group.score = sum(one.weight / (rrf_k + one.rank) for one in best) * (rrf_k + 1) / total


def _raise_above_outdated(groups: Sequence[Group[T]]) -> None:
    """Raise each fact that still holds above the passages that it outdates."""
    by_path: dict[str, list[Group[T]]] = {}
    for holding in groups:
        for fact in holding.members:
            if not fact.result.outdated or fact.calibrated < ANSWERING:
                continue
            if not by_path:
                for group in groups:
                    by_path.setdefault(group.best.result.path, []).append(group)
            for place in fact.result.outdated:
                for group in by_path.get(place.path, ()):
                    if group is not holding and _says_only(group, place, fact.result.origin):
                        group.is_outdated = True
                        group.apart += (fact,)
                        if group.score > holding.score:
                            holding.support += group.score - holding.score
                            holding.score = group.score


def _says_only(group: Group[T], place: Origin | TakenFrom, holding: Origin | TakenFrom | None) -> bool:
    """Return whether a passage contains the outdated lines, and not those of the fact that holds."""
    passage = group.best.result
    if passage.start_line < 1 or place.start_line < 1 or not overlap(place, passage):
        return False
    return holding is None or holding.path != passage.path or not overlap(holding, passage)


def _support(group: Group[T]) -> float:
    """Return what its facts add to a passage's weighted score, or what an unconfirmed fact loses."""
    best = group.best
    if group.is_unconfirmed:
        return (UNCONFIRMED_FACTOR - 1.0) * best.weighted
    if best.result.origin is not None:
        return 0.0
    support = 0.0
    for one in group.others:
        if one.result.origin and one.place != best.place and one.weighted > support:
            support = one.weighted
    return SUPPORT_SHARE * support


def _best_of_each_backend(group: Group[T]) -> list[_Found[T]]:
    """Return the first member of each backend, which is its best."""
    best: dict[int, _Found[T]] = {}
    for member in group.members:
        best.setdefault(member.place, member)
    return list(best.values())


def _keep(
    groups: Sequence[Group[T]],
    max_results: int | None,
    min_score: float,
    losers: list[Loser[T]],
    is_near: Callable[[T, T], bool],
) -> tuple[list[Group[T]], Sequence[Group[T]]]:
    """Return the groups to return, and those that came after the last of them.

    A note takes the place of the first copy of it from another memory, however far below it was ranked.
    """
    kept: list[Group[T]] = []
    moved: set[int] = set()  # ids of groups that took the place of a copy
    for position, group in enumerate(groups):
        if id(group) in moved:
            continue
        if len(kept) == max_results:
            return kept, [one for one in groups[position:] if id(one) not in moved]
        if _is_too_low(group, min_score):
            detail = f"calibrated score {group.calibrated:.3f} is below {min_score:g}"
            losers.append(Loser(group.best, "min-score", detail))
            continue
        copy = group.best
        twin = next((other for other in kept if is_near(copy.result, other.best.result)), None)
        if twin is not None:
            twin.others += group.members
            losers.append(Loser(copy, "near-duplicate", twin.best))
            continue
        kept.append(group)
        if _is_foreign(copy):
            behind = (one for one in groups[position + 1 :] if not _is_foreign(one.best))
            likely = (one for one in behind if id(one) not in moved and not _is_too_low(one, min_score))
            note = next((one for one in likely if is_near(copy.result, one.best.result)), None)
            if note is not None:
                moved.add(id(note))
                group.best, group.others = note.best, (*group.members, *note.others)
                losers.append(Loser(copy, "near-duplicate", note.best))
    return kept, ()


def _is_too_low(group: Group[T], min_score: float) -> bool:
    return group.calibrated < min_score and not group.exact


def _is_foreign(found: _Found[T]) -> bool:
    return FOREIGN in found.result.path


def _result(group: Group[MemorySearchResult]) -> MemorySearchResult:
    found = group.best.result  # `replace` takes several times as long, and every query comes through here
    return MemorySearchResult(
        path=found.path,
        start_line=found.start_line,
        end_line=found.end_line,
        score=group.score,
        snippet=found.snippet,
        source=found.source,
        citation=citation_of(found),
        source_backend=group.best.backend_id,
        exact=group.exact,
        origin=found.origin,
        start_char=found.start_char,
        metadata=found.metadata,
        highlights=found.highlights,
        text=found.text or found.snippet,
        facts=_facts(group) if group.others or group.apart else found.facts,
        title=found.title,
        headings=found.headings,
    )


def _facts(group: Group[MemorySearchResult]) -> tuple[SupportingFact, ...]:
    """Return the distinct facts of all members; for a passage, only those taken from its lines."""
    passage, told = group.best.result, [fact for one in group.members for fact in one.result.facts]
    told += [fact for one in group.apart for fact in one.result.facts]
    if passage.start_line > 0:
        told = [one for one in told if one.origin is None or _is_from(one.origin, passage)]
    return tuple(dict.fromkeys(told))


def _is_from(origin: Origin, passage: MemorySearchResult) -> bool:
    return origin.path == passage.path and (origin.start_line < 1 or overlap(origin, passage))


def _attribution(group: Group[T]) -> Attribution:
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
