"""Which weights are active, how to activate others, and how to go back."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan

from composable_memory.learning.active_weights import WeightsReport, activate, active_weights
from composable_memory.learning.context import LearningContext
from composable_memory.query.ranking import LiveWeights
from composable_memory.query.replay import Replayer
from composable_memory_feedback.advice.proposal import Proposal
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.golden import compare_golden
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.weights import SETTINGS
from composable_memory_feedback.weights import (
    IntentKind,
    WeightAction,
    WeightChange,
    WeightTable,
    is_weight,
    same_proportions,
)
from composable_memory_ops_logs import WeightsChanged, redact


class WeightTables:
    """The weight tables of one memory. Activating one here also puts it into `live` for the next queries."""

    def __init__(self, context: LearningContext, live: LiveWeights | None) -> None:
        self._context = context
        self._live = live

    async def report(self) -> WeightsReport:
        """Return the active weights, and why an adopted table is not active, if so."""
        return await active_weights(self._context)

    async def refresh(self) -> WeightsReport:
        """Activate the stored weights, from the next query on, and return them."""
        return await activate(self._context, self._live)

    async def history(self, limit: int = 50) -> list[WeightChange]:
        """Return the changes of the active weights, latest first."""
        return await self._context.stored_if_any(lambda store: store.history(limit)) or []

    async def named(self, name: str) -> WeightTable:
        """Look up a table: `now`, `settings`, `equal`, a version, or written as `builtin=0.6,graphiti=0.3`.

        Raises:
            FeedbackError: there is no such table, or a weight or a backend is invalid.
        """
        match name.strip():
            case "now":
                return (await self.report()).table
            case "settings":
                return self._context.base
            case "equal":
                return WeightTable.fixed(dict.fromkeys(self._context.backends, 1.0), reason="equal weights")
            case text if "=" in text:
                return WeightTable.fixed(
                    {**self._context.base.weights, **self.read(text.split(","))}, reason=text
                )
            case version:
                found = await self._context.stored_if_any(lambda store: store.table(version))
        if found is None:
            raise FeedbackError(
                "no such weights",
                subject=version,
                advice="say now, settings, equal, a version of `cmem weights history`, or builtin=0.6,…",
            )
        return found

    def read(self, words: Sequence[str]) -> dict[str, float]:
        """Parse weights such as `builtin=0.6`.

        Raises:
            FeedbackError: one of them is not a weight of a backend of this memory.
        """
        weights: dict[str, float] = {}
        for word in words:
            backend, _, number = (part.strip() for part in word.partition("="))
            try:
                weights[backend] = float(number)
            except ValueError:
                weights[backend] = nan
            self._check(backend, weights[backend], said=word)
        return weights

    async def set(
        self,
        weights: Mapping[str, float],
        *,
        intent: IntentKind | None = None,
        reason: str = "",
        actor: str = "cli",
    ) -> WeightTable:
        """Activate weights, for one kind of question or for all; those not given stay.

        Raises:
            FeedbackError: the golden questions would be answered worse than allowed, every weight is 0, or
            one is
                not a weight of a backend of this memory.
        """
        for backend, weight in weights.items():
            self._check(backend, weight, said=f"{backend}={weight}")
        now = (await self.report()).table
        if intent is None:
            table = replace(now, weights={**now.weights, **weights})
        else:
            own = {**now.by_intent.get(intent, {}), **weights}
            table = replace(now, by_intent={**now.by_intent, intent: own})
        if all(table.of(one, intent) == 0.0 for one in self._context.backends):
            advice = "give at least one backend a weight above 0"
            raise FeedbackError("nothing would be found", subject="every weight is 0", advice=advice)
        table = replace(table, reason=redact(reason) or "set by hand", made_at=self._context.clock())
        await self.keep_floor(table)
        return await self.adopt(table, actor=actor)

    async def adopt(
        self,
        table: WeightTable,
        *,
        actor: str,
        gain: Interval | None = None,
        expected: str | None = None,
    ) -> WeightTable:
        """Activate a table; return it with its version.

        Raises:
            FeedbackError: the store cannot be written, or the last adopted table is not the `expected` one.
        """
        base, at = dict(self._context.base.weights), self._context.clock()
        before = (await self.report()).table.version
        adopted = await self._context.stored(
            lambda store: store.adopt(table, base=base, actor=actor, at=at, gain=gain, expected=expected)
        )
        return await self._changed("adopt", before, adopted.reason, actor)

    async def adopt_proposal(self, proposal: Proposal, *, actor: str) -> WeightTable:
        """Activate the table of a proposal.

        Raises:
            FeedbackError: the weights changed after it was made, or the store cannot be written.
        """
        stored = await self._context.stored(lambda store: store.current())
        now, made_for = (await self.report()).table, proposal.current
        if not same_proportions(now, made_for, backends=self._context.backends):
            conflict = f"the advice was made for {made_for.version}, but {now.version} is active"
            raise FeedbackError("the weights are unchanged", subject=conflict, advice="advise again")
        expected = (stored and stored.version) or SETTINGS
        return await self.adopt(proposal.table, actor=actor, gain=proposal.gain, expected=expected)

    async def rollback(self, to: str | None = None, *, actor: str = "cli") -> WeightTable:
        """Activate an earlier table again: a version, `settings`, or the previous one.

        Raises:
            FeedbackError: there is no such version, or nothing to roll back.
        """
        at, base = self._context.clock(), dict(self._context.base.weights)
        before = (await self.report()).table.version
        await self._context.stored(lambda store: store.rollback(to, actor=actor, at=at, base=base))
        return await self._changed("reset" if to == "settings" else "rollback", before, "taken back", actor)

    async def _changed(self, change: WeightAction, before: str, reason: str, actor: str) -> WeightTable:
        table = (await self.refresh()).table
        self._context.ops_log.emit(
            WeightsChanged(
                change=change,
                version=table.version,
                replaced=before,
                weights=table.weights,
                actor=actor,
                reason=reason,
            )
        )
        return table

    async def keep_floor(self, table: WeightTable) -> None:
        """Refuse a table below the golden floor, if there are golden questions.

        Raises:
            FeedbackError: the golden questions would be answered worse than allowed.
        """
        records = await self._context.stored_if_any(lambda store: store.golden()) or []
        if not records:
            return
        golden = await asyncio.to_thread(
            compare_golden, records, table, Replayer(), k=self._context.settings.depth
        )
        tolerance = self._context.settings.golden_tolerance
        if golden.falls_by_more_than(tolerance):
            raise FeedbackError(
                "the golden questions would be ranked worse than when they were recorded",
                subject=f"nDCG {golden.current.ndcg:.3f} to {golden.proposed.ndcg:.3f}, "
                f"worse on {', '.join(golden.worse[:5])}",
                advice="choose other weights, or raise memory.feedback.golden_tolerance",
            )

    def _check(self, backend: str, weight: float, *, said: str) -> None:
        if backend not in self._context.backends:
            known = ", ".join(self._context.backends) or "none"
            raise FeedbackError(
                "no such backend", subject=f"{backend!r} in {said!r}", advice=f"enabled backends: {known}"
            )
        if not is_weight(weight):
            advice = "write BACKEND=WEIGHT with a weight of 0 or more, such as builtin=0.6"
            raise FeedbackError("no weight", subject=said, advice=advice)
