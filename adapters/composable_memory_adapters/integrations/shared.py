"""Code shared by the integrations: calling an open memory, and converting its answers."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from composable_memory import BlockingMemory, Memory
from composable_memory.errors import BackendUnavailable, ConfigError, InvalidArgument
from composable_memory.tools.catalogue import TOOLS
from composable_memory.tools.search import MemorySearchRequest, SearchHit, query_cited, why_unavailable
from composable_memory.tools.tool import Tool
from composable_memory.types import JsonValue

P = ParamSpec("P")
T = TypeVar("T")

AnyMemory: TypeAlias = Memory | BlockingMemory
"""From `open_memory`, to be awaited on its event loop, or from `open_memory_sync`, usable anywhere."""


class Passage(NamedTuple):
    """A result for frameworks: the whole text, and the rest as JSON values."""

    id: str
    text: str
    score: float
    metadata: dict[str, JsonValue]


async def ask(
    memory: AnyMemory,
    function: Callable[Concatenate[Memory, P], Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function with the open memory, on the memory's event loop."""
    if isinstance(memory, BlockingMemory):
        return await asyncio.wrap_future(memory.submit(function, *args, **kwargs))
    return await function(memory, *args, **kwargs)


def ask_and_wait(
    memory: AnyMemory,
    function: Callable[Concatenate[Memory, P], Awaitable[T]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> T:
    """Call a function with the open memory, and block until it returns.

    Raises:
        InvalidArgument: the memory can only be awaited.
    """
    if isinstance(memory, BlockingMemory):
        return memory.call(function, *args, **kwargs)
    raise InvalidArgument("memory", "one of open_memory_sync for calls without await", memory)


async def find_passages(memory: Memory, query: str, arguments: Mapping[str, object]) -> list[Passage]:
    """Search like `memory_search`; `arguments` are further fields of its request.

    Raises:
        BackendUnavailable: no memory could answer.
        ValueError: an argument is unknown or invalid.
    """
    response = await query_cited(memory, MemorySearchRequest.model_validate({"query": query, **arguments}))
    if problem := why_unavailable(response):
        raise BackendUnavailable("memory", problem, fix="run `cmem status --deep`", operation="search")
    return [
        Passage(
            id=result.key,
            text=result.text,
            score=result.score,
            metadata={
                **SearchHit.of(result, weak=response.weak).model_dump(
                    mode="json", exclude_none=True, exclude={"snippet", "source", "highlights"}
                ),
                "source": result.citation or result.path,
                "trace_id": response.trace_id,
            },
        )
        for result in response.results
    ]


def tools_named(names: Collection[str] | None) -> list[Tool]:
    """Return the agent tools with these names, or all.

    Raises:
        ConfigError: there is none with one of these names.
    """
    known = {tool.name: tool for tool in TOOLS}
    for name in names or ():
        if name not in known:
            raise ConfigError("names", f"there is no tool {name!r}; there are {', '.join(known)}")
    return [tool for tool in TOOLS if names is None or tool.name in names]


async def call_tool(
    memory: AnyMemory, tool: Tool, arguments: Mapping[str, object], session_key: str | None
) -> dict[str, JsonValue]:
    """Return a tool's reply as JSON; it also says what is wrong with the call, for the agent to read."""
    return (await ask(memory, tool.call, arguments, session_key=session_key)).as_json()
