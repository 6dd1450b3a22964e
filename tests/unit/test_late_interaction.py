"""What late interaction keeps of an index, and what it says of words."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from composable_memory.interfaces import RerankRequest, RerankServices, SupportsReadingAhead
from composable_memory_adapters.rerankers import spec as late_interaction
from composable_memory_adapters.rerankers.token_states import LONGEST_LINE, lines_of
from composable_memory_adapters.sqlite_file import SqliteFile

needs_extra = pytest.mark.usefixtures("rerank_extra")


def test_long_lines_are_read_in_parts_and_empty_ones_not() -> None:
    sentence = "The ferry leaves the harbour at noon. "
    parts = [*lines_of(f"\n---\n  one line \n{sentence * 40}\n{'x' * 1500}")]

    assert parts[0] == "one line"
    assert max(map(len, parts)) <= LONGEST_LINE
    assert "".join(parts[1:]).replace(" ", "") == (sentence * 40 + "x" * 1500).replace(" ", "")
    assert {part.split()[-1] for part in parts[1:3]} <= {*sentence.split()}


async def batches(*passages: str) -> AsyncIterator[Sequence[str]]:
    for passage in passages:
        yield [passage]


async def lines_kept(state_dir: Path) -> int:
    async with SqliteFile.open(state_dir / "rerank" / "one.sqlite") as file:
        count = await file.read(lambda connection: connection.execute("SELECT count(*) FROM states").get)
    return int(count)


@needs_extra
async def test_of_lines_that_are_gone_nothing_is_kept(tmp_path: Path) -> None:
    async with late_interaction.open(RerankServices(collection="one", state_dir=tmp_path)) as reranker:
        assert isinstance(reranker, SupportsReadingAhead)
        await reranker.read_ahead(batches("a secret\nthe ferry", "the bread"))
        before = await lines_kept(tmp_path)
        await reranker.read_ahead(batches("the ferry\nthe bread"))

    assert (before, await lines_kept(tmp_path)) == (3, 2)


@needs_extra
async def test_passages_with_many_unread_lines_have_to_be_read_ahead(tmp_path: Path) -> None:
    long = "\n".join(f"line {number} of the ferry" for number in range(40))
    asked = RerankRequest(query="the ferry", passages=[long])
    services = RerankServices(collection="one", state_dir=tmp_path)
    async with late_interaction.open(services) as reranker:
        assert isinstance(reranker, SupportsReadingAhead)
        before = await reranker.rerank(asked)
        await reranker.read_ahead(batches(long))
        after = await reranker.rerank(asked)
    async with late_interaction.open(services) as again:
        from_file = await again.rerank(asked)

    assert before is None
    assert after == from_file
    assert after is not None
    assert after[0] > 0.5


@needs_extra
async def test_words_that_tell_more_count_more(tmp_path: Path) -> None:
    passages = ["The ferry is late.", "The bread is late."]
    async with late_interaction.open(RerankServices(collection="one", state_dir=tmp_path)) as reranker:
        for weights, best in (({"ferry": 5.0, "bread": 0.1}, 0), ({"ferry": 0.1, "bread": 5.0}, 1)):
            found = await reranker.rerank(
                RerankRequest(query="ferry or bread?", passages=passages, weights=weights)
            )
            assert found is not None
            assert max((0, 1), key=lambda at: found[at]) == best


@needs_extra
async def test_words_that_are_near_to_each_other_count_more_than_the_same_words_far_apart(
    tmp_path: Path,
) -> None:
    rest = ["The bakery opens early.", "Rain fell on the roof.", "A letter came from Rome."]
    together = "\n".join(["The ferry was late.", "The harbour was full.", *rest])
    apart = "\n".join(["The ferry was late.", *rest, "The harbour was full."])
    asked = RerankRequest(query="ferry harbour", passages=[apart, together, "", "The ferry was late."])
    async with late_interaction.open(RerankServices(collection="one", state_dir=tmp_path)) as reranker:
        found = await reranker.rerank(asked)

    assert found is not None
    assert found[1] > found[0] > found[3] > found[2] == 0.0


@needs_extra
async def test_to_a_query_that_the_model_cannot_read_all_passages_are_alike(tmp_path: Path) -> None:
    passages = ["渡轮中午开船。", "The ferry leaves at noon."]
    async with late_interaction.open(RerankServices(collection="one", state_dir=tmp_path)) as reranker:
        for query in ("渡轮什么时候开？", "когда отходит паром?", "フェリーはいつ出ますか"):
            assert await reranker.rerank(RerankRequest(query=query, passages=passages)) == [0.0, 0.0]
