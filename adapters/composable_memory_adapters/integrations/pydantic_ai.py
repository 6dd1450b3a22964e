"""The tools of a memory for agents of Pydantic AI."""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from composable_memory.tools import tool as tools
from composable_memory.types import JsonValue
from composable_memory_adapters.integrations import needs_extra
from composable_memory_adapters.integrations.shared import AnyMemory, call_tool, tools_named

with needs_extra("pydantic-ai"):
    from pydantic_ai import FunctionToolset, Tool


def memory_toolset(
    memory: AnyMemory, names: Collection[str] | None = None, *, session_key: str | None = None
) -> FunctionToolset[Any]:
    """Return the tools of a memory, or those with these names.

        agent = Agent(model, toolsets=[memory_toolset(memory, ["memory_search", "memory_get"])])

    These are the tools that `cmem mcp` serves, with the same descriptions and arguments. `session_key` names
    the conversation: groups and channels get no citations.

    Raises:
        ConfigError: there is no tool with one of these names.
    """
    return FunctionToolset(
        [
            Tool.from_schema(
                _function(memory, tool, session_key),
                name=tool.name,
                description=tool.description,
                json_schema=tool.input_schema,
            )
            for tool in tools_named(names)
        ]
    )


def _function(
    memory: AnyMemory, tool: tools.Tool, session_key: str | None
) -> Callable[..., Awaitable[dict[str, JsonValue]]]:
    async def call(**arguments: object) -> dict[str, JsonValue]:
        return await call_tool(memory, tool, arguments, session_key)

    return call
