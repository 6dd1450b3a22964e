"""The tools of a memory for the OpenAI Agents SDK."""

import json
from collections.abc import Awaitable, Callable, Collection

from composable_memory.tools.document import ErrorReply
from composable_memory.tools.tool import Tool
from composable_memory_adapters.integrations import needs_extra
from composable_memory_adapters.integrations.shared import AnyMemory, call_tool, tools_named

with needs_extra("openai-agents"):
    from agents import FunctionTool
    from agents.tool_context import ToolContext


def memory_tools(
    memory: AnyMemory, names: Collection[str] | None = None, *, session_key: str | None = None
) -> list[FunctionTool]:
    """Return the tools of a memory, or those with these names.

        agent = Agent(name="Assistant", tools=memory_tools(memory, ["memory_search", "memory_get"]))

    These are the tools that `cmem mcp` serves, with the same descriptions and arguments. `session_key` names
    the conversation: groups and channels get no citations.

    Raises:
        ConfigError: there is no tool with one of these names.
    """
    return [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.input_schema,
            on_invoke_tool=_invoked(memory, tool, session_key),
            strict_json_schema=False,  # a strict schema has no optional arguments
        )
        for tool in tools_named(names)
    ]


def _invoked(
    memory: AnyMemory, tool: Tool, session_key: str | None
) -> Callable[[ToolContext[object], str], Awaitable[str]]:
    async def call(_: ToolContext[object], text: str) -> str:
        arguments = _read(text)
        if arguments is None:
            reply = ErrorReply(error="the arguments have to be a JSON object").as_json()
        else:
            reply = await call_tool(memory, tool, arguments, session_key)
        return json.dumps(reply, ensure_ascii=False)

    return call


def _read(text: str) -> dict[str, object] | None:
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None
