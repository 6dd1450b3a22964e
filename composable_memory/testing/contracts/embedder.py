"""The contract of every embedder: vectors of one length, finite, and equal for equal texts."""

import asyncio
from math import isfinite
from typing import ClassVar

import pytest

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter
from composable_memory.testing.contracts.opening import (
    Opener,
    blocking_forbidden,
    cancel_after,
    opened,
    to_override,
)
from composable_memory.testing.contracts.stores import cosine
from composable_memory.testing.corpus import HOSTILE_TEXTS

TEXTS = (
    "The ferry leaves the harbour at noon.",
    "At noon the ferry leaves from the harbour.",
    "Tomatoes like warm and shady greenhouses.",
)
"""The first two say the same, the third something else."""


class EmbedderContract:
    """What an embedder must do; `tolerance` is how far numbers of equal vectors may differ."""

    tolerance: ClassVar[float] = 1e-5

    @pytest.fixture
    def open_embedder(self) -> Opener[EmbedderAdapter]:
        """Return a function that opens the embedder; override this."""
        raise to_override(self, "open_embedder", "your embedder")

    async def test_it_says_which_space_its_vectors_live_in(
        self, open_embedder: Opener[EmbedderAdapter]
    ) -> None:
        """Provider, model and dimensions are known without embedding anything."""
        async with opened(open_embedder) as embedder:
            assert isinstance(embedder, EmbedderAdapter)
            assert embedder.id
            assert embedder.model
            assert embedder.dimensions > 0

    async def test_vectors_have_the_promised_length(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """Questions and passages live in the same space."""
        async with opened(open_embedder) as embedder:
            question = await embedder.embed(EmbedderInput(text=TEXTS[0], kind="query"))
            passage = await embedder.embed(EmbedderInput(text=TEXTS[0], kind="document"))

            assert len(question) == len(passage) == embedder.dimensions

    async def test_a_batch_gives_what_single_calls_give(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """In the same order, whatever else is in the batch."""
        inputs = [EmbedderInput(text=text) for text in (*TEXTS, "", TEXTS[0] * 30, TEXTS[1])]
        async with opened(open_embedder) as embedder:
            batch = await embedder.embed_batch(inputs)
            single = [await embedder.embed(item) for item in inputs]

            assert len(batch) == len(inputs)
            for one, other in zip(batch, single, strict=True):
                assert list(one) == pytest.approx(list(other), abs=self.tolerance)

    async def test_an_empty_batch_is_empty(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """Nothing in, nothing out."""
        async with opened(open_embedder) as embedder:
            assert list(await embedder.embed_batch([])) == []

    async def test_the_same_text_has_the_same_vector(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """Also in another instance: what is stored today is compared tomorrow."""
        vectors: list[list[float]] = []
        for _ in range(2):
            async with opened(open_embedder) as embedder:
                vectors.append(list(await embedder.embed(EmbedderInput(text=TEXTS[0]))))

        assert vectors[0] == pytest.approx(vectors[1], abs=self.tolerance)

    async def test_a_blank_text_has_the_zero_vector(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """It says nothing, so it is near to nothing."""
        async with opened(open_embedder) as embedder:
            for blank in ("", " ", "\n\t"):
                vector = await embedder.embed(EmbedderInput(text=blank))
                assert list(vector) == [0.0] * embedder.dimensions, ascii(blank)

    async def test_hostile_texts_are_survived(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """Whatever the text is, its vector has the right length and finite numbers."""
        async with opened(open_embedder) as embedder:
            vectors = await embedder.embed_batch(
                [EmbedderInput(text=text) for text in HOSTILE_TEXTS.values()]
            )

            for name, vector in zip(HOSTILE_TEXTS, vectors, strict=True):
                assert len(vector) == embedder.dimensions, name
                assert all(isfinite(value) for value in vector), name

    async def test_what_says_the_same_is_nearer_than_what_does_not(
        self, open_embedder: Opener[EmbedderAdapter]
    ) -> None:
        """The whole point of vectors."""
        async with opened(open_embedder) as embedder:
            first, same, other = await embedder.embed_batch([EmbedderInput(text=text) for text in TEXTS])

            assert cosine(first, same) > cosine(first, other)

    async def test_concurrent_calls_give_their_own_vectors(
        self, open_embedder: Opener[EmbedderAdapter]
    ) -> None:
        """Concurrent calls are not mixed up."""
        inputs = [EmbedderInput(text=text) for text in TEXTS * 3]
        async with opened(open_embedder) as embedder:
            in_turn = [list(await embedder.embed(item)) for item in inputs]
            at_once = await asyncio.gather(*(embedder.embed(item) for item in inputs))

            for one, other in zip(at_once, in_turn, strict=True):
                assert list(one) == pytest.approx(other, abs=self.tolerance)

    async def test_a_cancelled_call_leaves_it_usable(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """The next text is embedded as if nothing had happened."""
        async with opened(open_embedder) as embedder:
            before = list(await embedder.embed(EmbedderInput(text=TEXTS[0])))
            for turns in (0, 1, 2, 4):
                await cancel_after(turns, embedder.embed(EmbedderInput(text=TEXTS[2] * 50)))

            assert list(await embedder.embed(EmbedderInput(text=TEXTS[0]))) == pytest.approx(
                before, abs=self.tolerance
            )

    async def test_the_event_loop_is_not_blocked(self, open_embedder: Opener[EmbedderAdapter]) -> None:
        """Neither loading nor embedding reads files or waits for locks on the loop."""
        with blocking_forbidden():
            async with opened(open_embedder) as embedder:
                await embedder.embed_batch([EmbedderInput(text=text) for text in TEXTS])
