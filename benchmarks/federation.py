"""What is lost by asking several memories instead of one: notes split at random over two, or in one index.

Takes sets as `retrieval.py` does. The notes of each workspace are split over two builtin memories, and, with
`--qmd COMMAND`, over a builtin memory and QMD; both are asked through the composite, once for each way to
fuse their answers. Prints a table in Markdown: means over the questions that have an answer, for each split,
and the paired difference to one index of all notes with 95 % bootstrap intervals.
"""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from composite import ADVERSARIAL, DEPTH, NDCG, RECALL, Question, measures, questions_of
from retrieval import interval

from composable_memory import open_memory
from composable_memory.interfaces import Capability, SupportsAnswer
from composable_memory.query.fusion import Fusion
from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import MergePolicy
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing.in_memory import FakeBackend
from composable_memory.types import MemorySearchResult, SearchAnswer, SearchOptions

WHOLE = "one index"
NOW = datetime(2024, 6, 1, tzinfo=UTC)
"""What "last week" is counted from, so that every run is the same."""
STAYS: Mapping[str, object] = {"watch": False, "on_search": False, "on_session_start": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Two backends, the share of the notes that the first one gets, and the seed that draws them."""

    first: str
    second: str
    share: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.first} + {self.second}, {100 * self.share:.0f}:{100 * (1 - self.share):.0f}"


@dataclass(slots=True)
class Outcome:
    """The measures of each question, by the way in which it was asked."""

    rows: dict[tuple[str, str], list[list[float]]] = field(default_factory=dict)

    def add(self, split: str, method: str, row: list[float]) -> None:
        self.rows.setdefault((split, method), []).append(row)


class Remembered(FakeBackend):
    """A backend that is asked each question once, however many composites ask it."""

    def __init__(self, backend_id: str, manager: SupportsAnswer) -> None:
        super().__init__(backend_id)
        self._manager = manager
        self._answers: dict[tuple[str, int], SearchAnswer] = {}

    @property
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.ANSWER, Capability.CALIBRATED})

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        options = self.note_question(query, options)
        key = query, options.max_results
        if key not in self._answers:
            self._answers[key] = await self._manager.answer(query, options)
        return self._answers[key]


@asynccontextmanager
async def opened(kind: str, notes: Path, state: Path, command: str) -> AsyncIterator[Remembered]:
    """Yield the one backend of a memory that has read all its notes."""
    config: dict[str, object] = {
        "ops_log": {"enabled": False},
        "builtin": {"enabled": kind == "builtin", "sync": STAYS},
        "qmd": {"enabled": kind == "qmd", "command": command, "update": {"interval": 0, "on_boot": False}},
    }
    async with open_memory(notes, state, {"memory": config}) as memory:
        assert not memory.unavailable(), memory.unavailable()
        report = await memory.sync()
        assert not report.problems, report.problems
        (manager,) = memory.manager.backends_with(Capability.ANSWER).values()
        assert isinstance(manager, SupportsAnswer)
        yield Remembered(kind, manager)


def lay_out(workspace: Path, target: Path, split: Split) -> tuple[Path, Path]:
    """Copy the notes of a workspace into two folders, at random."""
    paths = sorted(workspace.rglob("*.md"))
    first = set(random.Random(split.seed).sample(paths, round(split.share * len(paths))))
    places = target / "first", target / "second"
    for path in paths:
        copy = places[path not in first] / path.relative_to(workspace)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    return places


async def try_out(
    workspace: Path, questions: Sequence[Question], split: Split | None, command: str, outcome: Outcome
) -> None:
    """Ask all questions of the composite over a split, or over one index of all notes."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        parts = [("builtin", workspace)]
        if split is not None:
            parts = [*zip((split.first, split.second), lay_out(workspace, folder, split), strict=True)]
        backends = [
            await stack.enter_async_context(opened(kind, notes, folder / f"state-{at}", command))
            for at, (kind, notes) in enumerate(parts)
        ]
        for fusion in Fusion if split else [Fusion.WEIGHTED]:
            composite = ComposableMemoryManager(
                [ComposableBackendEntry(id=f"{at}", manager=one) for at, one in enumerate(backends)],
                intent_parser=parse_query_intent,
                policy=MergePolicy(fusion=fusion),
                now=NOW,
            )
            for question in questions:
                response = await composite.query(question.text, max_results=DEPTH)
                assert not any(answer.error for answer in response.answers), response.degraded
                outcome.add(split.name if split else WHOLE, fusion, measures(response.results, question))


def table(name: str, outcome: Outcome) -> Iterable[str]:
    """Yield a row for each split and method, beside one index of all."""
    base = np.array(outcome.rows[WHOLE, Fusion.WEIGHTED])
    for (split, method), rows in outcome.rows.items():
        # Of a question that was asked of several splits, the mean: they are no questions of their own.
        values = np.array(rows).reshape(-1, *base.shape).mean(axis=0)
        cells = []
        for at in (NDCG, RECALL):
            less = values[:, at] - base[:, at]
            low, high = interval(less, resamples=2000, seed=1)
            told = f"{less.mean():+.3f} ({low:+.3f} to {high:+.3f})" if split != WHOLE else ""
            cells.append(f"{values[:, at].mean():.3f} | {told}")
        told = method if split != WHOLE else ""
        yield f"| {name} | {len(base):,} | {split} | {told} | {' | '.join(cells)} |"


async def run(folder: Path, arguments: argparse.Namespace) -> Outcome:
    """Try every split on every workspace of a set."""
    pairs = [("builtin", "builtin"), *([("builtin", "qmd")] if arguments.qmd else [])]
    splits = [
        Split(first=first, second=second, share=share / 100, seed=seed)
        for first, second in pairs
        for share in arguments.shares
        for seed in range(arguments.seeds)
    ]
    outcome = Outcome()
    asked = {
        conv: [
            one for one in questions_of(folder, conv, limit=arguments.limit) if one.category != ADVERSARIAL
        ]
        for conv in arguments.conv or sorted(path.name for path in folder.iterdir() if path.is_dir())
    }
    for split in (None, *splits):
        for conv, questions in asked.items():
            await try_out(folder / conv, questions, split, arguments.qmd, outcome)
        print(f"{split.name if split else WHOLE} done", file=sys.stderr)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="+", type=Path, metavar="SET", help="a folder with queries.jsonl")
    parser.add_argument("--conv", action="append", help="only these workspaces")
    parser.add_argument("--limit", type=int, help="only so many questions of each workspace")
    parser.add_argument(
        "--shares", nargs="*", type=int, default=[50, 85], help="percent for the first backend"
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many random splits of each kind")
    parser.add_argument(
        "--qmd", default="", metavar="COMMAND", help="the command of QMD, to split with it too"
    )
    arguments = parser.parse_args()
    print("| set | questions | notes | fusion | nDCG@10 | against one index | R@10 | against one index |")
    print("|---|---|---|---|---|---|---|---|")
    for folder in arguments.sets:
        print("\n".join(table(folder.name, asyncio.run(run(folder, arguments)))))


if __name__ == "__main__":
    main()
