"""Judge one logged query with a language model, within an hourly quota, and store the result."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from statistics import fmean
from time import perf_counter
from typing import Literal

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import RELEVANT, Judgement, JudgementKind
from composable_memory_feedback.judging.prompt import (
    SCHEMA_NAME,
    SYSTEM,
    JudgingPrompt,
    JudgingReply,
    ResultVerdict,
    judging_prompt,
    judging_schema,
    read_reply,
)
from composable_memory_feedback.language_model import ChatReply, LanguageModel
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.store.stored_values import Evaluation
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.quick_dataclass import dataclass

EvaluationState = Literal["judged", "failed", "quota-used-up", "nothing-to-judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOutcome:
    """What came of it. `problem` says why there are no judgements, in every state but `judged`.

    `evaluation` is what was written down; None where the model was not asked.
    """

    state: EvaluationState
    judgements: tuple[Judgement, ...] = ()
    evaluation: Evaluation | None = None
    problem: str | None = None


class Evaluator:
    """Judges queries with a model, at most `per_hour` in any hour, over all processes with the same store.

    The calls of the store block, so they are made in threads.
    """

    def __init__(
        self,
        client: LanguageModel,
        store: FeedbackStore,
        *,
        per_hour: int = 20,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._store = store
        self._per_hour = per_hour
        self._clock = clock

    async def evaluate(
        self,
        query: LoggedQuery,
        *,
        texts: Mapping[str, str],
        answer: str | None,
        hits: Sequence[RankedHit] | None = None,
    ) -> EvaluationOutcome:
        """Ask the model once about the first of `hits`, by default what a query showed; store what it says.

        `texts` holds the texts of results by their keys, `path:start:end`; `answer` is what was answered
        with them, where that is known. A call that fails counts towards the quota, so that a broken endpoint
        is not asked without end; so does one that is cancelled.

        Raises:
            FeedbackError: the store cannot be read or written. That the model fails is an outcome.
        """
        prompt = judging_prompt(query, texts=texts, answer=answer, hits=hits)
        if not prompt.hits:
            problem = "no result of this query has a text that could be judged"
            return EvaluationOutcome(state="nothing-to-judge", problem=problem)
        begin = partial(self._store.begin_evaluation, per_hour=self._per_hour, now=self._clock())
        number = await asyncio.to_thread(begin)
        if number is None:
            problem = f"all {self._per_hour} evaluations of this hour are used up"
            return EvaluationOutcome(state="quota-used-up", problem=problem)
        outcome = await self._ask(query, prompt, has_answer=bool(answer))
        await asyncio.to_thread(self._record, number, outcome)
        return outcome

    async def _ask(self, query: LoggedQuery, prompt: JudgingPrompt, *, has_answer: bool) -> EvaluationOutcome:
        began = perf_counter()
        try:
            schema = judging_schema(len(prompt.hits))
            reply = await self._client.complete(SYSTEM, prompt.user, schema=schema, schema_name=SCHEMA_NAME)
        except FeedbackError as error:
            spent_ms = (perf_counter() - began) * 1000
            return self._outcome(query, (), problem=str(error), spent_ms=spent_ms)
        read = read_reply(reply.text, results=len(prompt.hits))
        judgements = tuple(
            self._judgement(query, prompt.hits[verdict.index], verdict, has_answer=has_answer)
            for verdict in read.verdicts
        )
        problem = _problem(read, reply)
        return self._outcome(query, judgements, problem=problem, reply=reply, suggestions=read.suggestions)

    def _judgement(
        self, query: LoggedQuery, hit: RankedHit, verdict: ResultVerdict, *, has_answer: bool
    ) -> Judgement:
        can_be_used = has_answer and query.rank_of(hit) <= len(query.shown)
        return query.judged(
            hit,
            JudgementKind.MODEL,
            at=self._clock(),
            relevance=verdict.relevance,
            was_used=verdict.was_used and can_be_used,
            rationale=verdict.rationale,
            by=self._client.model,
        )

    def _outcome(
        self,
        query: LoggedQuery,
        judgements: tuple[Judgement, ...],
        *,
        problem: str | None,
        reply: ChatReply | None = None,
        spent_ms: float = 0.0,
        suggestions: tuple[str, ...] = (),
    ) -> EvaluationOutcome:
        relevances = [one.relevance for one in judgements] or [0.0]
        evaluation = Evaluation(
            trace_id=query.trace_id,
            query_id=query.query_id,
            query=query.query,
            at=self._clock(),
            model=self._client.model,
            precision=fmean(one > RELEVANT for one in relevances),
            mean_relevance=fmean(relevances),
            used_count=sum(one.was_used for one in judgements),
            judged_count=len(judgements),
            input_tokens=reply.input_tokens if reply else 0,
            output_tokens=reply.output_tokens if reply else 0,
            duration_ms=reply.duration_ms if reply else spent_ms,
            error=problem,
            suggestions=suggestions,
        )
        return EvaluationOutcome(
            state="failed" if problem else "judged",
            judgements=judgements,
            evaluation=evaluation,
            problem=problem,
        )

    def _record(self, number: int, outcome: EvaluationOutcome) -> None:
        """Write both down in one thread, so that a cancellation cannot come between them."""
        assert outcome.evaluation is not None
        if outcome.judgements:
            self._store.add(outcome.judgements)
        self._store.finish_evaluation(number, outcome.evaluation)


def _problem(read: JudgingReply, reply: ChatReply) -> str | None:
    if read.problem is None or reply.is_whole:
        return read.problem
    return f"{read.problem}: it was cut off after {reply.output_tokens} tokens; allow the model more"
