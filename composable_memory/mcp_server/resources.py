"""Notes as resources, which users attach to conversations: any by its path, and those of the last days."""

import asyncio
from typing import TypeAlias
from urllib.parse import quote, unquote

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from composable_memory.errors import InvalidArgument
from composable_memory.hooks.prompt_context import latest_days, session_recap
from composable_memory.mcp_server.open_memories import Opened, Service
from composable_memory.paths import MAIN_FILES
from composable_memory.runtime.memory import Memory
from composable_memory.tools.read import MemoryGetRequest, memory_get

SCHEME = "memory://"
NOTES = "notes/"
RECAP = "recap"
MARKDOWN = "text/markdown"
LISTED_DAYS = 7

Asked: TypeAlias = ServerRequestContext[Service]
"""A request to the server."""


async def list_resources(ctx: Asked, _: PaginatedRequestParams | None) -> ListResourcesResult:
    """List the recap, the core memory and the notes of the last days, of each workspace."""
    listed: list[Resource] = []
    for name, opened in ctx.lifespan_context.workspaces.items():
        if opened.memory is not None:
            listed += await asyncio.to_thread(
                lambda base, one: [*_listed(base, one)], _base(name), opened.memory
            )
    return ListResourcesResult(resources=listed)


async def list_templates(ctx: Asked, _: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    """List how any note of each workspace is named."""
    templates = [
        ResourceTemplate(
            uri_template=f"{_base(name)}{NOTES}{{+path}}",
            name=" ".join(filter(None, ("note", name))),
            description="A note by its path in the workspace, or by a citation",
            mime_type=MARKDOWN,
        )
        for name in ctx.lifespan_context.workspaces
    ]
    return ListResourceTemplatesResult(resource_templates=templates)


async def read_resource(ctx: Asked, params: ReadResourceRequestParams) -> ReadResourceResult:
    """Return a note, or the recap.

    Raises:
        MCPError: there is none of this name, or it is no note.
    """
    service, uri = ctx.lifespan_context, str(params.uri)
    try:
        opened, rest = _located(service, uri)
    except InvalidArgument as error:
        raise _not_found(uri, str(error)) from error
    if opened.memory is None:
        raise _not_found(uri, opened.problem)
    text = await _text(opened.memory, rest, service.session_key, uri)
    contents = TextResourceContents(uri=uri, text=text, mime_type=MARKDOWN)
    return ReadResourceResult(contents=[contents])


async def recap_of(memory: Memory, session_key: str | None) -> str:
    """Return the core memory and the last days, fenced; empty where there is nothing to tell."""
    settings, now = memory.settings.memory.hooks, memory.manager.asked_at()
    recap = await session_recap(
        memory.workspace_dir,
        settings,
        now=now,
        session_key=session_key,
        forgotten=memory.forgotten,
        note_paths=memory.status().note_paths,
    )
    return recap or ""


def _base(workspace: str) -> str:
    return f"{SCHEME}{quote(workspace, safe='')}/" if workspace else SCHEME


def _listed(base: str, memory: Memory) -> list[Resource]:
    """Return the resources of a workspace. Reads its folders."""
    told = "The core memory and the last days, in short"
    recap = Resource(uri=f"{base}{RECAP}", name=RECAP, description=told, mime_type=MARKDOWN)
    core = [name for name in MAIN_FILES if (memory.workspace_dir / name).is_file()][:1]
    now, places = memory.manager.asked_at(), memory.status().note_paths
    paths = (*core, *latest_days(memory.workspace_dir, LISTED_DAYS, now, places))
    notes = (Resource(uri=f"{base}{NOTES}{quote(one)}", name=one, mime_type=MARKDOWN) for one in paths)
    return [recap, *notes]


def _located(service: Service, uri: str) -> tuple[Opened, str]:
    """Return the workspace that a resource is of, and the rest of its name."""
    rest = uri.removeprefix(SCHEME)
    if "" in service.workspaces:
        return service.workspace(""), rest
    name, _, rest = rest.partition("/")
    return service.workspace(unquote(name)), rest


async def _text(memory: Memory, rest: str, session_key: str | None, uri: str) -> str:
    if rest == RECAP:
        return await recap_of(memory, session_key) or "There is nothing to tell yet."
    if not rest.startswith(NOTES):
        raise _not_found(uri, f"there is {RECAP}, and {NOTES}PATH")
    reply = await memory_get(memory, MemoryGetRequest(path=unquote(rest.removeprefix(NOTES))))
    if reply.error is not None:
        raise _not_found(uri, reply.error)
    return reply.text


def _not_found(uri: str, problem: str) -> MCPError:
    return MCPError(INVALID_PARAMS, f"resource {uri}: {problem}", {"uri": uri})
