"""What a logged query takes on disk, as it is written."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.replay import is_reproduced
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing.in_memory import FakeBackend
from composable_memory.types import MemorySearchResult, Origin, SearchAnswer, SearchOptions
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_ops_logs import SNIPPET_PREVIEW_CHARS, OpsLog, OpsLogReader

MOST_BYTES = 8_000
QUESTION = "which port did Maria Lopez say the dock controller uses since last week?"
WORDS = "the dock controller answers on another port since the move and the queue drains slowly".split()


class Ready(FakeBackend):
    """Answers at once with results made beforehand."""

    def __init__(self, results: Sequence[MemorySearchResult]) -> None:
        super().__init__("ready")
        self._results = tuple(results)

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        return self._results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        legs = LEGS if "by_words" in self._results[0].metadata else {}
        return SearchAnswer(results=self._results, legs=legs)


LEGS = {
    leg: (number * 13.37, 111.11)
    for number, leg in enumerate(("changes", "keyword", "embed", "vector", "rerank"))
}


def text(number: int) -> str:
    return " ".join(f"{word}{(number * 7 + at) % 97}" for at, word in enumerate(WORDS * 5))[:700]


def notes(first: int, *, folder: str = "memory/projects") -> list[MemorySearchResult]:
    """Return 24 passages of eight files; the first are those of the builtin memory, which tells of legs."""
    return [
        MemorySearchResult(
            path=f"{folder}/2026-{number % 8 + 1:02}-the-dock.md",
            start_line=number * 20 + 1,
            end_line=number * 20 + 19,
            score=1 / (1.1 + number - first),
            snippet=text(number),
            metadata={"by_words": round(1 / (3 + number), 3), "by_meaning": round(1 / (4 + number), 3)}
            if first == 0
            else {},
        )
        for number in range(first, first + 24)
    ]


FACTS = [
    MemorySearchResult(
        path=f"graph/{number * 7919:08x}-6f6c-4f0a-9d3f",
        start_line=0,
        end_line=0,
        score=0.97 - number / 37,
        snippet=f"Maria Lopez moved queue {number} of the dock controller to port {4700 + number}",
        origin=Origin(
            path=f"memory/projects/2026-{number % 8 + 1:02}-the-dock.md",
            start_line=number * 20 + 3,
            end_line=number * 20 + 4,
        ),
    )
    for number in range(24)
]


async def logged(folder: Path, lists: Sequence[Sequence[MemorySearchResult]]) -> int:
    """Return how many bytes one query takes."""
    async with OpsLog(folder) as log:
        names = ("builtin", "qmd", "graphiti")
        entries = [
            ComposableBackendEntry(id=name, manager=Ready(found))
            for name, found in zip(names, lists, strict=False)
        ]
        manager = ComposableMemoryManager(entries, intent_parser=parse_query_intent, ops_log=log)
        await manager.query(QUESTION)
    return await asyncio.to_thread(lambda: sum(one.stat().st_size for one in folder.glob("*.jsonl")))


@pytest.mark.parametrize(
    "lists",
    [
        [notes(0)],
        [notes(0), notes(12)],
        [notes(0), notes(12), FACTS],
        [notes(0), notes(30), notes(60)],
        [notes(0, folder="memory"), notes(30, folder="work"), FACTS],
    ],
    ids=["builtin", "two that share notes", "notes and facts", "nothing shared", "two folders and facts"],
)
async def test_a_query_takes_eight_kilobytes_at_most(
    tmp_path: Path, lists: Sequence[Sequence[MemorySearchResult]]
) -> None:
    assert await logged(tmp_path / "log", lists) <= MOST_BYTES

    read = await asyncio.to_thread(read_queries, tmp_path / "log")
    assert [is_reproduced(one) for one in read.queries] == [True]


async def test_where_there_is_too_much_previews_of_facts_go_before_those_of_passages(tmp_path: Path) -> None:
    await logged(tmp_path, [notes(0), notes(30), FACTS])

    read = await asyncio.to_thread(read_queries, tmp_path)
    (query,) = read.queries
    snippets = {one.key: one.snippet for found in (notes(0), notes(30), FACTS) for one in found}
    previews = {
        f"{one.path}:{one.start_line}:{one.end_line}": one.snippet_preview
        for found in query.lists
        for one in found.candidates
    }
    assert all(preview and snippets[key].startswith(preview) for key, preview in previews.items())
    shown = {one.key for one in query.shown}
    assert all(previews[key] == snippets[key][:SNIPPET_PREVIEW_CHARS] for key in shown)
    lengths = [
        {len(previews[one.key]) for one in found if one.key not in shown} for found in (FACTS, notes(0))
    ]
    assert min(lengths[0]) > 2 * max(lengths[1])


async def test_the_builtin_memory_alone_has_all_its_previews(tmp_path: Path) -> None:
    await logged(tmp_path, [notes(0)])

    events = await asyncio.to_thread(OpsLogReader(tmp_path).tail, 9)
    (answer,) = [one for one in events if one.action == "query.backend_result"]
    results = cast("Any", answer.detail)["results"]
    assert min(len(one["snippetPreview"]) for one in results) > SNIPPET_PREVIEW_CHARS // 2
