"""Judgements in the feedback store: the latest word of each judge on each delivered result.

With them stand the calls of models that judged, and the quota that holds for all processes together.
"""

import json
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta

from composable_memory_feedback.judgements import RELEVANT, Evaluation, Judgement, JudgementKind
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.entries import Entry
from composable_memory_feedback.store.kinds import EVALUATIONS, JUDGEMENTS, MARKS, time_text

QUOTA_WINDOW = timedelta(hours=1)
_CALLS = "calls of models"
"""The mark that holds when calls of the last hour began."""


class JudgementRows(Database):
    """Judgements, and the calls of models that made some of them."""

    def add(self, judgements: Iterable[Judgement], /) -> int:
        """Add judgements, all or none, and return how many were new.

        Of one judge on one result of one query, by one kind, only the one stored last stays, whatever their
        times say: the clock may have been ahead. It takes a new id, by which words are ordered.
        """
        words: dict[str, Entry] = {}
        for entry in map(JUDGEMENTS.entry, judgements):
            words.pop(str(entry.key), None)
            words[str(entry.key)] = entry
        with self.writing() as entries:
            known = entries.find(JUDGEMENTS.name, [*words])
            # What is judged again as it was is not written: signals of the last hour are gathered repeatedly.
            same = {key for key, one in known.items() if one.detail == words[key].detail}
            entries.remove(one.id for key, one in known.items() if key not in same)
            entries.put(one for key, one in words.items() if key not in same)
        return len(words) - len(known)

    def judgements(
        self,
        *,
        since: datetime | None = None,
        kinds: Collection[JudgementKind] | None = None,
        of_relevant: bool = False,
    ) -> list[Judgement]:
        """Return judgements made since a time, in the order in which they were stored.

        With `of_relevant`, they are those of the queries that one of them finds something relevant for.
        """
        with self.reading() as entries:
            found = JUDGEMENTS.all(entries, since=since)
        if of_relevant:
            relevant = {(one.trace_id, one.query_id) for one in found if one.relevance > RELEVANT}
            found = [one for one in found if (one.trace_id, one.query_id) in relevant]
        return [one for one in found if kinds is None or one.kind in kinds]

    def judgements_mark(self) -> tuple[int, int | None]:
        """Return what changes with every judgement: how many there are, and the id of the latest."""
        with self.reading() as entries:
            return entries.count(JUDGEMENTS.name)

    def judged_traces(self) -> set[str]:
        """Return the trace ids of all judgements, whoever made them."""
        with self.reading() as entries:
            return {trace for trace, _ in _queries(entries.index(JUDGEMENTS.name))}

    def judged_queries(self, since: datetime | None = None) -> set[tuple[str, str]]:
        """Return (trace id, query id) of the queries that a model has judged."""
        with self.reading() as entries:
            index = entries.index(JUDGEMENTS.name, since=time_text(since) if since else "")
        keys = (json.loads(key) for _, key in index)
        return {(trace, query) for trace, query, *_, kind, _ in keys if kind == JudgementKind.MODEL}

    def begin_evaluation(self, *, per_hour: int, now: datetime) -> bool:
        """Reserve one call out of the quota of the rolling hour, which all processes share.

        Returns whether there was one left. A call that fails, or whose process dies, has used its part.
        """
        with self.writing() as entries:
            mark = entries.find(MARKS, [_CALLS]).get(_CALLS)
            # A clock that was wrong by years must not use up the quota of those years.
            window = (time_text(now - QUOTA_WINDOW), time_text(now + QUOTA_WINDOW))
            began = [one for one in (mark.detail if mark else "").split() if window[0] < one < window[1]]
            if len(began) >= per_hour:
                return False
            entries.put([Entry(MARKS, _CALLS, "", " ".join([*began, time_text(now)]))])
        return True

    def add_evaluation(self, evaluation: Evaluation, /) -> None:
        """Record what came of a call."""
        with self.writing() as entries:
            EVALUATIONS.put(entries, evaluation)

    def evaluations(self, since: datetime | None = None) -> list[Evaluation]:
        """Return what was finished at or after a time, oldest first."""
        with self.reading() as entries:
            return sorted(EVALUATIONS.all(entries, since=since), key=lambda one: one.at)

    def forget_before(self, at: datetime) -> int:
        """Delete judgements and evaluations from before a time, and return how many went.

        A query whose judgements go on until after that time keeps them all: half of them would say something
        else. What the quota counts stays as well.
        """
        time = time_text(at)
        with self.writing() as entries:
            old = entries.index(JUDGEMENTS.name, before=time)
            later = _queries(entries.index(JUDGEMENTS.name, since=time)) if old else set()
            gone = [one[0] for one in old if not _queries([one]) & later]
            gone += [id_ for id_, _ in entries.index(EVALUATIONS.name, before=time)]
            entries.remove(gone)
        return len(gone)


def _queries(index: Iterable[tuple[int, str]]) -> set[tuple[str, str]]:
    """Return (trace id, query id) of judgements."""
    keys = (json.loads(key) for _, key in index)
    return {(trace, query) for trace, query, *_ in keys}
