"""Judgements in the feedback store: the latest of each judge on each delivered result.

Also the calls of models that judged, and the call quota shared by all processes.
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
"""The mark with the start times of the last hour's calls."""


class JudgementRows(Database):
    """Judgements, and the model calls that made some of them."""

    def add(self, judgements: Iterable[Judgement], /) -> int:
        """Add judgements, all or none, and return how many were new.

        Of judgements by one judge on one result of one query, of one kind, only the one stored last stays,
        whatever their times: the clock may have been ahead. It gets a new id, by which judgements are
        ordered.
        """
        words: dict[str, Entry] = {}
        for entry in map(JUDGEMENTS.entry, judgements):
            words.pop(str(entry.key), None)
            words[str(entry.key)] = entry
        with self.writing() as entries:
            known = entries.find(JUDGEMENTS.name, [*words])
            # A repeated, equal judgement is not written: signals of the last hour are gathered repeatedly.
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
        """Return judgements since a time, in the order in which they were stored.

        With `of_relevant`, only those of queries for which one of them finds a result relevant.
        """
        with self.reading() as entries:
            found = JUDGEMENTS.all(entries, since=since)
        if of_relevant:
            relevant = {(one.trace_id, one.query_id) for one in found if one.relevance > RELEVANT}
            found = [one for one in found if (one.trace_id, one.query_id) in relevant]
        return [one for one in found if kinds is None or one.kind in kinds]

    def judgements_mark(self) -> tuple[int, int | None]:
        """Return a value that changes with every judgement: the number of them, and the id of the latest."""
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
        """Reserve one call from the quota of the last hour, which all processes share.

        Returns whether one was left. A call counts even if it fails or its process dies.
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
        """Record the result of a call."""
        with self.writing() as entries:
            EVALUATIONS.put(entries, evaluation)

    def evaluations(self, since: datetime | None = None) -> list[Evaluation]:
        """Return evaluations finished since a time, oldest first."""
        with self.reading() as entries:
            return sorted(EVALUATIONS.all(entries, since=since), key=lambda one: one.at)

    def forget_before(self, at: datetime) -> int:
        """Delete judgements and evaluations from before a time, and return how many were deleted.

        A query with later judgements keeps all of its judgements: half of them would say something else. What
        the quota counts stays too.
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
