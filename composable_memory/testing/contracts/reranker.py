"""The contract of every reranker: one valid score for each passage, the right one first, and no state."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from composable_memory.interfaces import Reranker, RerankRequest, SupportsReadingAhead
from composable_memory.testing.contracts.opening import Opener, opened, to_override
from composable_memory.testing.corpus import HOSTILE_TEXTS

QUERY = "When does the ferry leave?"
PASSAGES = (
    "Tomatoes like warm and shady greenhouses.\nWater them in the evening.",
    "Ann: the boat is blue.\nBob: the ferry leaves the harbour at noon.",
    "The bakery opens early, and closes when the bread is sold.",
)
RIGHT = 1


class RerankerContract:
    """What a reranker must do."""

    @pytest.fixture
    def open_reranker(self) -> Opener[Reranker]:
        """Return a function that opens the reranker; override this."""
        raise to_override(self, "open_reranker", "your reranker")

    async def test_every_passage_gets_a_sound_number(self, open_reranker: Opener[Reranker]) -> None:
        """From 0 to 1, in the order of the passages, whatever these are."""
        async with opened(open_reranker) as reranker:
            for passages in (PASSAGES, (), PASSAGES[:1], (*HOSTILE_TEXTS.values(), "")):
                found = await _judged(reranker, QUERY, passages)

                assert len(found) == len(passages)
                assert all(0.0 <= one <= 1.0 for one in found), found

    async def test_the_passage_that_answers_comes_first(self, open_reranker: Opener[Reranker]) -> None:
        """The whole point of a reranker."""
        async with opened(open_reranker) as reranker:
            found = await _judged(reranker, QUERY, PASSAGES)

        assert max(range(len(PASSAGES)), key=lambda at: found[at]) == RIGHT

    async def test_a_number_does_not_depend_on_the_other_passages(
        self, open_reranker: Opener[Reranker]
    ) -> None:
        """Otherwise asking for more results would change the first ones."""
        async with opened(open_reranker) as reranker:
            together = await _judged(reranker, QUERY, PASSAGES)
            apart = [(await _judged(reranker, QUERY, [one]))[0] for one in PASSAGES]

        assert apart == pytest.approx(together, abs=1e-4)

    async def test_any_query_is_judged(self, open_reranker: Opener[Reranker]) -> None:
        """Also one without words."""
        async with opened(open_reranker) as reranker:
            for query in (*HOSTILE_TEXTS.values(), "?"):
                assert len(await _judged(reranker, query, PASSAGES)) == len(PASSAGES)

    async def test_a_cancelled_call_leaves_it_usable(self, open_reranker: Opener[Reranker]) -> None:
        """And so do concurrent calls."""
        async with opened(open_reranker) as reranker:
            task = asyncio.create_task(_judged(reranker, QUERY, PASSAGES))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            one, other = await asyncio.gather(
                _judged(reranker, QUERY, PASSAGES), _judged(reranker, "tomatoes", PASSAGES)
            )

        assert one[RIGHT] > one[0]
        assert other[0] > other[RIGHT]

    async def test_reading_ahead_changes_no_judgement(self, open_reranker: Opener[Reranker]) -> None:
        """It only makes judging possible, or faster."""
        async with opened(open_reranker) as reranker:
            before = await reranker.rerank(RerankRequest(query=QUERY, passages=PASSAGES))
            if isinstance(reranker, SupportsReadingAhead):
                await reranker.read_ahead(_batches(PASSAGES))
                await reranker.read_ahead(_batches(PASSAGES[:1]))
            after = await _judged(reranker, QUERY, PASSAGES)

        assert before is None or list(before) == pytest.approx(after, abs=1e-4)


async def _judged(reranker: Reranker, query: str, passages: Sequence[str]) -> list[float]:
    """Return a reranker's scores of passages, letting it read them first if it has to."""
    request = RerankRequest(query=query, passages=passages)
    found = await reranker.rerank(request)
    if found is None:
        assert isinstance(reranker, SupportsReadingAhead), "only who reads ahead may not know yet"
        await reranker.read_ahead(_batches(passages))
        found = await reranker.rerank(request)
    assert found is not None, "everything was read ahead"
    return list(found)


async def _batches(passages: Sequence[str]) -> AsyncIterator[Sequence[str]]:
    for passage in passages:
        yield [passage]
