"""The open memories that are served, by workspace name."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from composable_memory.errors import ComposableMemoryError, InvalidArgument
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.tools.document import ErrorReply, Reply
from composable_memory.tools.search import why_empty
from composable_memory.tools.tool import Tool
from composable_memory_ops_logs.quick_dataclass import dataclass

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The memory of a workspace, or why it could not be opened."""

    memory: Memory | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The workspaces by name, or a single one without a name, and the session that is served."""

    workspaces: Mapping[str, Opened]
    session_key: str | None

    @property
    def memories(self) -> list[Memory]:
        """Return the open memories."""
        return [one.memory for one in self.workspaces.values() if one.memory is not None]

    def workspace(self, name: object) -> Opened:
        """Return the workspace with a name.

        Raises:
            InvalidArgument: there is none.
        """
        found = self.workspaces.get(name) if isinstance(name, str) else None
        if found is None:
            raise InvalidArgument("workspace", " or ".join(self.workspaces), name)
        return found

    async def call(self, tool: Tool, arguments: Mapping[str, object]) -> Reply:
        """Call a tool; if there are several workspaces, the argument `workspace` names one."""
        given = dict(arguments)
        try:
            workspace = self.workspace("" if "" in self.workspaces else given.pop("workspace", None))
        except InvalidArgument as error:
            return ErrorReply(error=str(error))
        if workspace.memory is None:
            return tool.unavailable(workspace.problem)
        return await tool.call(workspace.memory, given, session_key=self.session_key)


def schema_for(tool: Tool, workspaces: Sequence[str]) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments, with the workspace if there are several."""
    schema = tool.input_schema
    if not workspaces:
        return schema
    properties = {"workspace": {"enum": list(workspaces)}} | schema["properties"]
    return schema | {"properties": properties, "required": ["workspace", *schema.get("required", [])]}


@asynccontextmanager
async def open_service(
    workspaces: Mapping[str, Path], state_dir: Path | None, session_key: str | None
) -> AsyncIterator[Service]:
    """Open the memories of all workspaces; for one that cannot be opened, keep the reason."""
    async with AsyncExitStack() as stack:
        opened = {name: await _open(stack, folder, state_dir) for name, folder in workspaces.items()}
        yield Service(workspaces=opened, session_key=session_key)


async def _open(stack: AsyncExitStack, workspace: Path, state_dir: Path | None) -> Opened:
    try:
        memory = await stack.enter_async_context(open_memory(workspace, state_dir))
        await stack.enter_async_context(_sync_in_background(memory))
    except ComposableMemoryError as error:
        return Opened(problem=str(error))
    return Opened(memory=memory)


@asynccontextmanager
async def _sync_in_background(memory: Memory) -> AsyncIterator[None]:
    """Sync the index in the background until the block ends."""
    task = asyncio.create_task(_sync(memory))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _sync(memory: Memory) -> None:
    try:
        await memory.sync(reason="boot")
    except ComposableMemoryError as error:
        log.warning("the index could not be brought up to date: %s", error)
    else:
        if warning := why_empty(memory):
            log.warning("%s", warning)
