"""What a logged query takes on disk, as it is written."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
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


def first_words(text: str) -> str:
    """Return as many words as a preview shows, each whole."""
    shown = text[:SNIPPET_PREVIEW_CHARS]
    return shown if text[len(shown) :][:1] in {"", " "} else shown[: shown.rfind(" ") + 1]


async def test_what_is_shown_has_its_preview_and_so_have_facts_that_stand_in_no_file(tmp_path: Path) -> None:
    lists = [notes(0), notes(30), FACTS]
    await logged(tmp_path, lists)

    read = await asyncio.to_thread(read_queries, tmp_path)
    (query,) = read.queries
    told = {one.key: one.snippet_preview for found in query.lists for one in found.candidates}
    whole = {one.key: first_words(one.snippet) for one in chain(*lists)}
    shown, facts = {one.key for one in query.shown}, {one.key for one in FACTS}
    assert {key: told[key] for key in shown} == {key: whole[key] for key in shown}
    assert all(len(told[key]) > 40 and whole[key].startswith(told[key]) for key in facts)
    assert {told[key] for key in told.keys() - shown - facts} == {""}


@pytest.mark.parametrize("fits", [20, 9, 1])
@pytest.mark.parametrize("begin", [" ", "\n", "钥匙是"])
async def test_a_preview_ends_before_a_secret_that_does_not_fit(
    tmp_path: Path, begin: str, fits: int
) -> None:
    """What is left of such a secret could not be told for one, and so would not be masked."""
    secret = "ghp_" + "a8Kf02LqPz" * 3 + "b7X1Yd"
    before = ("the dock controller answers " * 9)[: SNIPPET_PREVIEW_CHARS - fits - len(begin)] + begin
    await logged(tmp_path, [[replace(notes(0)[0], snippet=f"{before}{secret} and so on")]])

    events = await asyncio.to_thread(OpsLogReader(tmp_path).tail, 9)
    (row,) = cast("Any", events[-1].detail)["finalResults"]
    assert row["snippetPreview"].rstrip() == before.rstrip()


async def test_a_result_has_the_preview_of_its_own_backend(tmp_path: Path) -> None:
    one, twins = notes(0), [replace(each, path=f"{at}.md") for at, each in enumerate([notes(0)[0]] * 20)]
    other = [replace(each, snippet=f"Also: {each.snippet}", score=0.01) for each in reversed(one)]
    await logged(tmp_path, [[*twins, *one[:4]], other])

    events = await asyncio.to_thread(OpsLogReader(tmp_path).tail, 9)
    shown = cast("Any", events[-1].detail)["finalResults"]
    assert {row["backend"] for row in shown} == {"builtin", "qmd"}
    for row in shown:
        found = [*twins, *one] if row["backend"] == "builtin" else other
        snippet = next(
            each.snippet for each in found if each.path == row["path"] and each.start_line == row["startLine"]
        )
        assert row["snippetPreview"] == first_words(snippet)


async def test_where_there_is_too_much_facts_that_were_not_shown_have_shorter_previews(
    tmp_path: Path,
) -> None:
    facts = [replace(one, snippet=f"{one.snippet} {text(at)}") for at, one in enumerate(FACTS)]
    lists = [notes(0), notes(30), facts]
    assert await logged(tmp_path, lists) <= MOST_BYTES

    read = await asyncio.to_thread(read_queries, tmp_path)
    (query,) = read.queries
    shown = {one.key for one in query.shown}
    told = {one.key: one.snippet_preview for one in query.lists[2].candidates}
    whole = {one.key: first_words(one.snippet) for one in facts}
    assert [key for key in told.keys() & shown if told[key] != whole[key]] == []
    assert all(0 < len(told[key]) < len(whole[key]) for key in told.keys() - shown)
