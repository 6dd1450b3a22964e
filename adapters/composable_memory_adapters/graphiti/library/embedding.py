"""Our embedders as graphiti-core wants them, and a reranker that is never needed."""

from collections.abc import Iterable, Sequence

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.graphiti.library.core import CrossEncoderClient, EmbedderClient

__all__ = ["EmbedderBridge", "NoReranker"]


class EmbedderBridge(EmbedderClient):  # type: ignore[misc]  # graphiti-core is not typed here
    """Embeds with one of our embedders; without one every vector is empty, which `drivers` stores as none."""

    def __init__(self, embedder: EmbedderAdapter | None) -> None:
        self._embedder = embedder

    async def create(
        self, input_data: str | list[str] | Iterable[int] | Iterable[Iterable[int]]
    ) -> list[float]:
        """Return one vector: of a text, or of the first in a list, which is what graphiti-core hands over."""
        first = input_data if isinstance(input_data, str) else next(iter(input_data))
        return (await self.create_batch([str(first)]))[0]

    async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
        """Return the vectors of several texts."""
        if self._embedder is None or not input_data_list:
            return [[] for _ in input_data_list]
        inputs = [EmbedderInput(text=text) for text in input_data_list]
        return [[float(value) for value in vector] for vector in await self._embedder.embed_batch(inputs)]


class NoReranker(CrossEncoderClient):  # type: ignore[misc]  # graphiti-core is not typed here
    """Leaves passages in their order: graphiti-core must be given a reranker, and we ask for none."""

    async def rank(self, query: str, passages: Sequence[str]) -> list[tuple[str, float]]:  # noqa: ARG002 - as demanded
        """Return the passages as they are."""
        return [(passage, 0.0) for passage in passages]
