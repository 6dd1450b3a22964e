"""`Learning`: everything about learning in a memory, using only its log and its store."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from composable_memory.config.layers import default_state_dir, load_settings
from composable_memory.config.settings import FeedbackSettings, Settings
from composable_memory.interfaces import Clock
from composable_memory.learning.advising import Advising
from composable_memory.learning.context import LearningContext
from composable_memory.learning.experimenting import Experimenting
from composable_memory.learning.golden_questions import GoldenQuestions
from composable_memory.learning.judging import Judging
from composable_memory.learning.logged import judged_cases, scorable_judgements, stream_queries
from composable_memory.learning.weight_tables import WeightTables
from composable_memory.query.ranking import LiveWeights
from composable_memory.query.replay import Replayer
from composable_memory.registry import discover_backends
from composable_memory.state.folders import existing_folder, make_state_folder
from composable_memory.state.ops_log import open_ops_log
from composable_memory.state.workspaces import find_workspace, identify
from composable_memory.supervision.resource import closing
from composable_memory_feedback.advice.evidence import Case, case_of, evidence_of
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.logged.reading import QueryStream
from composable_memory_feedback.replay import GateVerdict, PolicyChange, ReplayReport, gate, replay
from composable_memory_feedback.store.export_import import Imported
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.private_files import replacing


class Learning:
    """Judges, replays, advises and experiments; changes weights only when told to.

        table = await memory.learning.weights.named("builtin=1,qmd=0.5")
        report = await memory.learning.replay(PolicyChange(table=table))

    Every method, here and of the parts, may raise `FeedbackError` (there is no log, the store is unusable, or
    the request cannot be met) and `OpsLogError` (the log cannot be read). `live` receives every change of
    weights.
    """

    def __init__(self, context: LearningContext, live: LiveWeights | None = None) -> None:
        self.context = context
        self.weights = WeightTables(context, live)
        self.judging = Judging(context, self.weights)
        self.advising = Advising(context, self.weights)
        self.experiments = Experimenting(context, self.weights, self.judging)
        self.golden = GoldenQuestions(context, self.weights)

    @property
    def settings(self) -> FeedbackSettings:
        """Return the settings of learning."""
        return self.context.settings

    @property
    def backends(self) -> tuple[str, ...]:
        """Return the ids of the enabled backends, in their order."""
        return self.context.backends

    async def replay(
        self,
        change: PolicyChange,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        k: int | None = None,
        keep: int = 100,
        traces: Collection[str] | None = None,
        latest_judged: int | None = None,
    ) -> ReplayReport:
        """Rank logged queries again, unchanged and with a change, and compare both with the judgements.

        `traces` restricts it to their queries, `latest_judged` to that many judged queries. The report holds
        at most `keep` of the queries that change, the most important first.
        """
        judgements = await scorable_judgements(self.context, since)
        if latest_judged is not None:
            newest = {one.trace_id: None for one in sorted(judgements, key=lambda one: one.at, reverse=True)}
            traces = [*newest][:latest_judged]
        depth = k or self.settings.depth
        work = partial(_replayed, judgements=judgements, change=change, depth=depth, keep=keep)
        return await stream_queries(self.context, work, since=since, until=until, traces=traces)

    async def gate(
        self,
        baseline: PolicyChange,
        candidate: PolicyChange,
        *,
        since: datetime | None = None,
        k: int | None = None,
        tolerance: float = 0.0,
    ) -> GateVerdict:
        """Return whether the judged queries allow replacing a baseline by a candidate.

        `tolerance`, from 0 to 1, is how far nDCG may fall.
        """
        if not 0.0 <= tolerance <= 1.0:
            raise FeedbackError("no tolerance", subject=f"{tolerance}", advice="give a number from 0 to 1")
        cases = await judged_cases(self.context, since=since)
        depth = k or self.settings.depth
        return await asyncio.to_thread(
            gate, cases, baseline, candidate, ranker=Replayer(), k=depth, tolerance=tolerance
        )

    async def export(self, write: Callable[[bytes], object]) -> Mapping[str, int]:
        """Write judgements and weights of one snapshot as JSON lines; return the number of rows by table."""
        return await self.context.stored(lambda store: store.export(write, memory=self.context.memory_id))

    async def export_into(self, file: Path) -> Mapping[str, int]:
        """Write them to a file for its owner only, replacing it atomically."""

        def write(store: FeedbackStore) -> Mapping[str, int]:
            with replacing(file, survives="power cut") as scratch, scratch.open("wb") as out:
                return store.export(out.write, memory=self.context.memory_id)

        return await self.context.stored(write)

    async def import_from(self, file: Path) -> Imported:
        """Add what an export contains and the store does not; all of it, or nothing and an error.

        What was forgotten since the export is masked again.
        """
        hide = self.context.hide

        def mask(text: str) -> str:
            return hide(hide(text, "memory"), "sessions")

        def read(store: FeedbackStore) -> Imported:
            with file.open("rb") as lines:
                found = store.import_(lines, memory=self.context.memory_id)
            if store.mask(mask, is_rehearsal=True):
                store.mask(mask)
            return found

        found = await self.context.stored(read)
        await self.weights.refresh()
        return found

    async def close(self) -> None:
        """Close the store."""
        await self.context.close()


@asynccontextmanager
async def open_learning(
    workspace: Path | str,
    *,
    of: str | None = None,
    state_dir: Path | str | None = None,
    config: Mapping[str, object] | Settings | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Learning]:
    """Open the learning of a memory without opening any of its backends.

    `of` names another workspace in the state folder, by its id, its name or its last known folder: its log
    and store are used, with the settings of `workspace`. The rest is as for `open_memory`.

    Raises:
        ConfigError: the workspace is not a folder or not known, or a setting is invalid.
    """
    environ, now = os.environ if environ is None else environ, clock or utc_now
    folder = await asyncio.to_thread(existing_folder, Path(workspace))
    registry = await asyncio.to_thread(discover_backends)
    loaded = await asyncio.to_thread(load_settings, folder, overrides=config, environ=environ)
    state = await asyncio.to_thread(make_state_folder, Path(state_dir or default_state_dir(environ)))
    if of is not None:
        workspace_id = await asyncio.to_thread(find_workspace, state, of)
    else:
        name = loaded.settings.memory.id
        workspace_id = (await asyncio.to_thread(identify, state, folder, now=now(), name=name)).id
    async with open_ops_log(loaded.settings.memory, state_dir=state, clock=now) as ops_log:
        context = await asyncio.to_thread(
            LearningContext.of,
            loaded,
            registry=registry,
            environ=environ,
            workspace_id=workspace_id,
            state_dir=state,
            ops_log=ops_log,
            clock=now,
        )
        async with closing(Learning(context)) as learning:
            yield learning


def _replayed(
    queries: QueryStream, *, judgements: Sequence[Judgement], change: PolicyChange, depth: int, keep: int
) -> ReplayReport:
    ranker, evidence, other = Replayer(keeps=1), evidence_of(judgements), []

    def checked() -> Iterator[LoggedQuery | Case]:
        for query in queries:
            is_exact = ranker.reproduces(query)
            if not is_exact:
                other.append(query.trace_id)
            known = evidence.get(query.key) if is_exact else None
            yield (case_of(query, known) if known else None) or query

    report = replay(checked(), change, ranker=ranker, k=depth, keep=keep)
    return replace(report, not_reproduced=tuple(reversed(other)), incomplete=dict(queries.incomplete))
