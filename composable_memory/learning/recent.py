"""What was shown lately, so that it can be told which of it an answer quotes; kept in memory only."""

from collections import OrderedDict
from collections.abc import Sequence

from composable_memory.types import MemorySearchResult
from composable_memory_ops_logs import AnswerGiven

KEPT_QUERIES = 64


class RecentResults:
    """The results of the latest queries of an open memory, by trace id."""

    def __init__(self) -> None:
        self._shown: OrderedDict[str, tuple[str, tuple[MemorySearchResult, ...]]] = OrderedDict()

    def note(self, query: str, trace_id: str, results: Sequence[MemorySearchResult]) -> None:
        """Remember what a query showed; the oldest is forgotten for it."""
        self._shown[trace_id] = (query, tuple(results))
        self._shown.move_to_end(trace_id)
        while len(self._shown) > KEPT_QUERIES:
            self._shown.popitem(last=False)

    def clear(self) -> None:
        """Forget all of them."""
        self._shown.clear()

    def quoted_in(self, answer: str, trace_id: str) -> AnswerGiven | None:
        """Return the event that tells what an answer quotes of a query; None if the query is not known."""
        if trace_id not in self._shown:
            return None
        # Few record answers; all others need not wait for what reads logs.
        from composable_memory_feedback.signals import ShownText, quoted_places

        query, results = self._shown[trace_id]
        shown = [
            ShownText(
                path=one.path,
                start_line=one.start_line,
                end_line=one.end_line,
                start_char=one.start_char,
                text=one.snippet,
            )
            for one in results
        ]
        places = quoted_places(answer, shown, question=query)
        return AnswerGiven(query_trace_id=trace_id, chars=len(answer), quoted=places)
