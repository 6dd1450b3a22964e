"""The way of asking for embeddings that OpenAI has made, and many others after its example."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from composable_memory_adapters.embedders.remote.embedder import Kind, RemoteEmbedder, Vector
from composable_memory_adapters.embedders.remote.settings import RemoteSettings

__all__ = ["OpenAiWireEmbedder", "without_nothing"]

SettingsT = TypeVar("SettingsT", bound=RemoteSettings)


class OpenAiWireEmbedder(RemoteEmbedder[SettingsT]):
    """Sends `{model, input}` to `/embeddings`, with a few wishes that differ from provider to provider."""

    @abstractmethod
    def wishes(self, kind: Kind) -> Mapping[str, object]:
        """Return what a request says beside the model and the texts."""

    async def request_vectors(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:
        """Ask for the vectors of all texts and put them into the order of the texts."""
        body = {"model": self.model, "input": texts, **self.wishes(kind)}
        answer = await self.post("embeddings", body, _Answer)
        vectors = answer.in_order()
        if vectors is None:
            raise self.unreadable("the indexes of its vectors are not 0, 1, 2 and so on")
        return vectors


def without_nothing(**wishes: object) -> dict[str, object]:
    """Return the wishes that are not None: a provider takes a null for a value."""
    return {name: value for name, value in wishes.items() if value is not None}


class _Item(BaseModel):
    """One vector, and the place of its text in the request."""

    model_config = ConfigDict(strict=True)

    index: int | None = None
    embedding: Vector


class _Answer(BaseModel):
    """All vectors of a request, in any order."""

    model_config = ConfigDict(strict=True)

    data: list[_Item]

    def in_order(self) -> list[Vector] | None:
        """Return the vectors by the places they name, or as they come where none does; None for nonsense."""
        if all(item.index is None for item in self.data):
            return [item.embedding for item in self.data]
        by_place = {item.index: item.embedding for item in self.data}
        places = range(len(self.data))
        return [by_place[place] for place in places] if by_place.keys() == set(places) else None
