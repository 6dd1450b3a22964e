"""A reranker judges what the builtin memory found; it may read ahead, and its failures cost no answer."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.cli.index import sync
from composable_memory.types import QueryResponse
from composable_memory_adapters.builtin import spec as builtin
from composable_memory_adapters.builtin.search.reranking import FileTexts, Reranking
from composable_memory_adapters.rerankers import spec as late_interaction
from composable_memory_adapters.sqlite_file import SqliteFile
from tests.installed_packages import install

RERANKERS = """
import asyncio
from contextlib import asynccontextmanager
from composable_memory.interfaces import RerankerSpec

class Prefers:
    "Judges by whether a passage names a boat; reads ahead, and notes what it read."

    def __init__(self, state_dir, must_read):
        self.file, self.must_read = state_dir / "read.txt", must_read

    async def rerank(self, request):
        if self.must_read and not await asyncio.to_thread(self.file.exists):
            return None
        assert request.weights and all(weight > 0 for weight in request.weights.values())
        return [1.0 if "boat" in passage else 0.0 for passage in request.passages]

    async def read_ahead(self, passages):
        read = [text async for batch in passages for text in batch]
        await asyncio.to_thread(self.file.write_text, "\\n".join(read), encoding="utf-8")

class Rubbish:
    def __init__(self, answer):
        self.answer = answer

    async def rerank(self, request):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

def spec(id, make):
    @asynccontextmanager
    async def opening(services):
        yield make(services)

    return RerankerSpec(id=id, summary="of a test", open=opening)

boats = spec("boats", lambda services: Prefers(services.state_dir, False))
reader = spec("reader", lambda services: Prefers(services.state_dir, True))
broken = spec("broken", lambda _: Rubbish(ValueError("no power")))
short = spec("short", lambda _: Rubbish([0.5]))
loud = spec("loud", lambda _: Rubbish([7.0, 7.0, 7.0]))
mute = spec("mute", lambda _: Rubbish("?"))
"""
IDS = ("boats", "reader", "broken", "short", "loud", "mute")
NOTES = {
    "a.md": "The harbour ferry leaves at noon, the harbour is full.",
    "b.md": "A boat in the harbour.",
    "c.md": "Bread is baked near the harbour at dawn.",
}
QUERY = "the ferry of the harbour"


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a workspace, where a package that offers rerankers is installed."""
    site, workspace = tmp_path / "site", tmp_path / "workspace"
    entries = "\n".join(f"{id_} = rerankers_of_this_test:{id_}" for id_ in IDS)
    entry_points = f"[composable_memory.rerankers]\n{entries}\n"
    install(site, "rerankers-of-this-test", entry_points, rerankers_of_this_test=RERANKERS)
    monkeypatch.syspath_prepend(site)
    (workspace / "memory").mkdir(parents=True)
    for name, text in NOTES.items():
        (workspace / "memory" / name).write_text(text, encoding="utf-8")
    yield workspace
    sys.modules.pop("rerankers_of_this_test", None)


async def asked(notes: Path, rerank: str, *, embedder: str = "none") -> QueryResponse:
    """Index in one process, as it were, and ask in another."""
    config = {"embedding": {"provider": embedder}, "builtin": {"query": {"rerank": rerank}}}
    state_dir = notes.parent / "state"
    async with open_memory(notes, state_dir, config, long_lived=False) as memory:
        await memory.sync()
    async with open_memory(notes, state_dir, config, long_lived=False) as memory:
        return await memory.query(QUERY)


def codes(response: QueryResponse) -> list[str]:
    return [one.code for one in response.degraded if one.code == "not-reranked"]


def names(response: QueryResponse) -> list[str]:
    return [Path(one.path).name for one in response.results]


async def test_what_it_judges_counts_in_the_score(notes: Path) -> None:
    before, after = await asked(notes, "off"), await asked(notes, "boats")

    scores = {one.path: one.score for one in before.results}
    assert names(before)[0] == "a.md"
    assert names(after)[0] == "b.md"
    for one in after.results:
        judged = 1.0 if "boat" in one.snippet else 0.0
        assert one.score == pytest.approx(0.5 * scores[one.path] + 0.5 * judged)
    assert after.answers[0].engines["rerank"] == "boats"
    assert "rerank" not in before.answers[0].engines
    assert codes(after) == codes(before) == []


async def test_it_reads_the_index_ahead(notes: Path) -> None:
    response = await asked(notes, "reader")

    read = (notes.parent / "state" / "read.txt").read_text(encoding="utf-8")
    assert sorted(read.splitlines()) == sorted(NOTES.values())
    assert names(response)[0] == "b.md"
    assert codes(response) == []


async def test_an_index_run_tells_how_long_it_read_for_reranking(notes: Path) -> None:
    config = {"embedding": {"provider": "none"}, "builtin": {"query": {"rerank": "reader"}}}
    async with open_memory(notes, notes / "state", config, long_lived=False) as memory:
        _, took_ms, parts = await sync(memory)

    assert "reading for reranking" in parts
    assert abs(sum(parts.values()) * 1000 - took_ms) < 1


async def test_an_open_memory_lets_it_read_in_the_background(notes: Path) -> None:
    config = {"embedding": {"provider": "none"}, "builtin": {"query": {"rerank": "reader"}}}
    async with open_memory(notes, notes.parent / "state", config) as memory:
        async with asyncio.timeout(30):
            while codes(response := await memory.query(QUERY)) or not response.results:
                assert not response.results or names(response)[0] == "a.md"

    assert names(response)[0] == "b.md"


@pytest.mark.parametrize("rerank", ["broken", "short", "loud", "mute", "nobody"])
async def test_its_failure_costs_no_answer(notes: Path, rerank: str) -> None:
    before, after = await asked(notes, "off"), await asked(notes, rerank)

    assert [(one.path, one.score) for one in after.results] == [
        (one.path, one.score) for one in before.results
    ]
    assert codes(after) == ["not-reranked"]
    assert any(rerank in one.reason for one in after.degraded)


async def test_the_first_answer_may_take_longer_since_a_model_may_have_to_be_loaded(
    notes: Path, tmp_path: Path
) -> None:
    state_dir = tmp_path / "state"
    await asyncio.to_thread((state_dir / "read.txt").parent.mkdir)
    await asyncio.to_thread((state_dir / "read.txt").write_text, "read")
    async with SqliteFile.open(state_dir / "memory" / "one.sqlite") as file:
        texts = FileTexts(file=file, state_dir=state_dir)
        reranking = Reranking(texts, choice="reader", state_dir=state_dir, timeout_s=0.0)
        first, second = [await reranking.judge("boat", {"boat": 1.0}, ["a boat"]) for _ in range(2)]
        await reranking.close()

    assert first.relevances == [1.0]
    assert second.relevances is None
    assert "reader" in (second.problem or "")


@pytest.mark.usefixtures("rerank_extra")
async def test_late_interaction_is_used_where_it_is_installed(notes: Path) -> None:
    response = await asked(notes, "auto")
    states = [*(notes.parent / "state" / "rerank").glob("*.sqlite")]

    assert response.answers[0].engines["rerank"] == late_interaction.id
    assert codes(response) == []
    assert names(response)[0] == "a.md"
    assert len(states) == 1
    kept = await asyncio.to_thread(builtin.kept, notes.parent / "state")
    assert {one.kind for one in kept} == {"index", "reranking"}
    assert len({one.workspace_id for one in kept}) == 1
