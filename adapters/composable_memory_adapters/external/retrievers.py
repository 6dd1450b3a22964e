"""Search functions and framework retrievers as backends, in one line of Python."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from pydantic import JsonValue

from composable_memory.errors import BackendError
from composable_memory.interfaces import BackendServices, BackendSpec
from composable_memory.supervision.resource import closing
from composable_memory_adapters.external.backend import CAPABILITIES, ExternalMemory
from composable_memory_adapters.external.settings import AnswerSettings

SearchFunction = Callable[[str, int], Awaitable[Iterable[object]]]
"""`async def search(query, limit)`: returns texts, mappings, or a framework's documents."""


def retriever_backend(id: str, retriever: object, *, summary: str | None = None) -> BackendSpec:  # noqa: A002
    """Return a backend for a search function, or for a retriever of LangChain, LlamaIndex or Haystack.

    A retriever is recognised by its method: `ainvoke` (LangChain), `aretrieve` (LlamaIndex), `run`
    (Haystack). It decides how many results to return; a function is passed the wanted number.

        spec = retriever_backend("wiki", my_retriever)
        async with open_memory(backends=[spec], config={"backends": {"wiki": {"weight": 0.8}}}) as memory: ...

    Raises:
        TypeError: it has no known way to search.
    """
    search = _search_of(retriever)

    def opened(
        settings: AnswerSettings, services: BackendServices
    ) -> AbstractAsyncContextManager[ExternalMemory]:
        backend_id = services.backend_id or id
        source = _Functions(search, backend_id=backend_id, provider=type(retriever).__name__)
        return closing(ExternalMemory(source, settings, backend_id=backend_id, clock=services.clock))

    return BackendSpec(
        id=id,
        summary=summary or f"{type(retriever).__name__}, a retriever",
        settings=AnswerSettings,
        open=opened,
        capabilities=CAPABILITIES,
    )


class _Functions:
    """Implements `Source` for a search function."""

    def __init__(self, search: SearchFunction, *, backend_id: str, provider: str) -> None:
        self._search = search
        self._id = backend_id
        self.provider = provider
        self.found: Mapping[str, JsonValue] = {}

    async def ask(self, query: str, limit: int) -> JsonValue:
        """Return the function's results.

        Raises:
            BackendError: it raised, or returned no results.
        """
        try:
            return [_row(one) for one in await self._search(query, limit)]
        except Exception as error:
            raise BackendError(self._id, "search", f"it raised {type(error).__name__}: {error}") from error

    async def use(self, what: str, words: Mapping[str, str]) -> None:
        """Return None: a retriever can neither read nor add."""

    async def close(self) -> None:
        """Do nothing: the retriever belongs to whoever created it."""


def _search_of(retriever: Any) -> SearchFunction:
    """Return a search function that calls the retriever."""
    if callable(getattr(retriever, "ainvoke", None)):
        return lambda query, _limit: retriever.ainvoke(query)
    if callable(getattr(retriever, "aretrieve", None)):
        return lambda query, _limit: retriever.aretrieve(query)
    if callable(getattr(retriever, "run", None)):
        return partial(_run_component, retriever)
    if callable(retriever):
        return partial(_call, retriever)
    raise TypeError(f"{retriever!r} is not a search function, and has no ainvoke, aretrieve or run")


async def _call(search: Any, query: str, limit: int) -> Iterable[object]:
    """Call a function, in a thread unless it is async."""
    is_async = inspect.iscoroutinefunction(search) or inspect.iscoroutinefunction(type(search).__call__)
    found = search(query, limit) if is_async else await asyncio.to_thread(search, query, limit)
    results: Iterable[object] = await found if inspect.isawaitable(found) else found
    return results


async def _run_component(component: Any, query: str, _limit: int) -> Iterable[object]:
    """Call a Haystack component, which returns a dictionary."""
    answer = await asyncio.to_thread(component.run, query=query)
    return answer["documents"]  # type: ignore[no-any-return]


def _row(one: Any) -> JsonValue:
    """Convert a result to JSON: a text, a mapping, or any framework's document."""
    if isinstance(one, str | Mapping):
        return _plain(one)
    inner = getattr(one, "node", one)  # LlamaIndex stores the score beside the node
    texts = (getattr(inner, name, None) for name in ("page_content", "content", "text"))
    metadata = getattr(inner, "metadata", None) or getattr(inner, "meta", None)
    return {
        "text": next((text for text in texts if isinstance(text, str)), ""),
        "score": _plain(getattr(one, "score", None)),
        "id": _plain(getattr(inner, "id", None) or getattr(inner, "node_id", None)),
        "metadata": _plain(metadata) if isinstance(metadata, Mapping) else None,
    }


def _plain(value: object) -> JsonValue:
    """Convert a value to JSON, dropping what JSON cannot represent."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return value if isinstance(value, str | int | float | bool) else None
