"""`cmem graph`: browses the facts of a memory, draws them, and forgets episodes."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import JsonValue

from composable_memory.cli.plugin_api import (
    AsJson,
    Backend,
    Here,
    StateDir,
    Target,
    Workspace,
    check_names,
    command,
    counted,
    one_line,
    parse_moment,
    print_json,
    print_line,
    print_text,
    run,
    warn,
    warn_degraded,
)
from composable_memory.errors import BackendRejected, ConfigError
from composable_memory.facts import Episode, Fact
from composable_memory.interfaces import Capability, MemorySearchManager, SupportsAdoption, SupportsFacts
from composable_memory.json_documents import document
from composable_memory.runtime.opening import open_memory
from composable_memory_adapters.graphiti.cli import graph as spec
from composable_memory_adapters.graphiti.cli.fact_text import (
    print_entity,
    print_episode,
    print_fact,
    print_on_timeline,
)
from composable_memory_adapters.graphiti.cli.pictures import html_page, mermaid
from composable_memory_ops_logs import utc_now
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

PictureFormat = Literal["json", "mermaid", "html"]

FORMATS: dict[str, PictureFormat] = {
    ".json": "json",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".html": "html",
    ".htm": "html",
}
WHAT_TO_DO = "hint: the graph is empty; `cmem ingest MEMORY.md memory/` reads notes into it"
WHO_IS_KNOWN = "hint: `cmem graph entities` lists known entities"
LOOKED_AT = 1000
"""How many of the latest episodes are searched for the one to forget, to show its text."""

graph = typer.Typer(help=spec.summary, no_args_is_help=True)

Many = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="The most entries to show.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    """The backend with the facts, and the time of the call."""

    backend_id: str
    memory: SupportsFacts
    now: datetime

    def path(self, one: Fact | Episode) -> str:
        """Return the path under which `cmem get` shows a fact or an episode."""
        return f"{self.backend_id}/{one.group_id}/{one.id}"

    def documents(self, facts: Sequence[Fact]) -> list[dict[str, JsonValue]]:
        """Return facts as JSON; `current` is whether the fact holds now."""
        return [document(fact, path=self.path(fact), current=fact.is_current(self.now)) for fact in facts]

    async def hint(self, found: Sequence[object]) -> str | None:
        """Return what to do if nothing was found."""
        if found:
            return None
        is_empty = not await self.memory.episodes(limit=1) and not await self.memory.facts(limit=1)
        return WHAT_TO_DO if is_empty else WHO_IS_KNOWN


def _facts_of(memory: "Memory", backend: str | None) -> SupportsFacts:
    try:
        return memory.facts_of(backend)
    except ConfigError:
        if memory.settings.memory.section("graphiti").enabled:
            raise
        problem = "no open backend keeps facts; set it to true for the graph memory"
        raise ConfigError("memory.graphiti.enabled", problem) from None


@asynccontextmanager
async def _open(target: Target, backend: str | None) -> AsyncIterator[_Graph]:
    async with open_memory(target.workspace, target.state_dir, long_lived=False) as memory:
        check_names(memory, (backend,) if backend else ())
        found = _facts_of(memory, backend)
        able = memory.manager.backends_with(Capability.FACTS)
        warn_degraded(memory.unavailable())
        # A primary with a fallback is not in the list.
        names = (backend_id for backend_id, one in able.items() if id(one) == id(found))
        backend_id = backend or next(names, memory.settings.memory.backend)
        yield _Graph(backend_id=backend_id, memory=found, now=utc_now())
        if isinstance(found, MemorySearchManager) and found.status().dirty:
            warn(
                f"degraded: {backend_id}: stale: some of what was ingested is not stored yet; see `cmem "
                f"status`"
            )


# --- lists --------------------------------------------------------------------------------------------------


@command(graph, "facts", epilog="Example: cmem graph facts --about Alice --as-of 2026-01-31")
async def facts(
    target: Target,
    *,
    about: Annotated[
        str | None,
        typer.Option("--about", metavar="ENTITY", help="Only facts about this entity, by name or id."),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="DATE", help="Only facts true at the end of this day, or at this time."
        ),
    ] = None,
    current: Annotated[bool, typer.Option("--current", help="Only facts that are still true.")] = False,
    limit: Many = 20,
    backend: Backend = None,
    as_json: AsJson = False,
) -> None:
    """List facts, newest first; outdated ones are dimmed."""
    moment = parse_moment(as_of, "--as-of", day_ends=True)
    async with _open(target, backend) as graph:
        found = await graph.memory.facts(about=about, as_of=moment, current_only=current, limit=limit)
        hint = await graph.hint(found)
    if as_json:
        print_json(document(facts=graph.documents(found)))
    else:
        for fact in found:
            print_fact(fact, graph.path(fact), graph.now)
    _print_end(found, "facts", hint, as_json=as_json)


@command(graph, "entities")
async def entities(
    target: Target,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Part of the name.", show_default=False)
    ] = None,
    *,
    limit: Many = 50,
    backend: Backend = None,
    as_json: AsJson = False,
) -> None:
    """List entities, those with the most facts first."""
    async with _open(target, backend) as graph:
        found = await graph.memory.entities(named=name, limit=limit)
        hint = await graph.hint(found)
    if as_json:
        print_json(document(entities=found))
    else:
        for entity in found:
            print_entity(entity)
    _print_end(found, "entities", hint, as_json=as_json)


@command(graph, "episodes")
async def episodes(
    target: Target, *, limit: Many = 20, backend: Backend = None, as_json: AsJson = False
) -> None:
    """List what was ingested, latest first."""
    async with _open(target, backend) as graph:
        found = await graph.memory.episodes(limit=limit)
        hint = await graph.hint(found)
    if as_json:
        print_json(document(episodes=[document(one, path=graph.path(one)) for one in found]))
    else:
        for episode in found:
            print_episode(episode, graph.path(episode))
    _print_end(found, "episodes", hint, as_json=as_json)


@command(graph, "timeline")
async def timeline(
    target: Target,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A name or an id.")],
    *,
    limit: Many = 100,
    backend: Backend = None,
    as_json: AsJson = False,
) -> None:
    """List all facts about one entity in chronological order."""
    async with _open(target, backend) as graph:
        found = await graph.memory.timeline(entity, limit=limit)
        hint = await graph.hint(found)
    if as_json:
        print_json(document(facts=graph.documents(found)))
    else:
        for fact in found:
            print_on_timeline(fact, graph.path(fact), graph.now)
    _print_end(found, "facts", hint, as_json=as_json)


def _print_end(found: Sequence[object], what: str, hint: str | None, *, as_json: bool) -> None:
    if not found and not as_json:
        print_line(f"No {what}.")
    if hint:
        warn(hint)


# --- changes ------------------------------------------------------------------------------------------------


@graph.command("forget")
def forget(
    episode: Annotated[
        str, typer.Argument(metavar="EPISODE", help="The episode id shown by `cmem graph episodes`.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete an episode and everything that only it supports. Asks first, unless --yes or --json."""
    target = Target(workspace=workspace, state_dir=state_dir)
    if not (yes or as_json):
        # Nothing stays open while waiting for the reply, so that it blocks nothing.
        try:
            run(_preview(target, backend, episode))
        except typer.Exit as done:
            if done.exit_code:
                raise
        typer.confirm("Forget it permanently?", abort=True, err=True)
    run(_forget(target, backend, episode, as_json=as_json), as_json=as_json)


async def _preview(target: Target, backend: str | None, given: str) -> None:
    """Show the text of an episode before it is forgotten."""
    async with _open(target, backend) as graph:
        listed = await graph.memory.episodes(limit=LOOKED_AT)
        memory, named = graph.memory, given.strip()
        waits = isinstance(memory, MemorySearchManager) and memory.status().dirty
    parts = (f"{named}@", f"{named}#")
    found = [
        one
        for one in listed
        if named in (one.id, one.content_id, graph.path(one)) or one.content_id.startswith(parts)
    ]
    for one in found:
        print_episode(one, graph.path(one))
    if not found and len(listed) < LOOKED_AT and not waits:
        hint = f"{named}; `cmem graph episodes` lists them"
        raise BackendRejected(graph.backend_id, "forget an episode", status="no such episode", body=hint)
    if not found:
        warn(f"{one_line(named)} is not among the latest {LOOKED_AT} episodes, or waits to be stored")
    warn("everything only this episode supports goes too: facts, and entities without any other fact")


async def _forget(target: Target, backend: str | None, episode: str, *, as_json: bool) -> None:
    async with _open(target, backend) as graph:
        gone = await graph.memory.forget(episode.strip())
    if as_json:
        print_json(document(gone))
    else:
        print_line(f"Forgot {one_line(gone.episode_id)}, with {_format_counts(gone.entities, gone.facts)}.")


@command(graph, "adopt")
async def adopt(
    target: Target,
    *,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Also adopt what no note in this workspace mentions; use this if all of it is yours.",
        ),
    ] = False,
    backend: Backend = None,
    as_json: AsJson = False,
) -> None:
    """Adopt what was ingested before workspaces were separate, if these notes mention it.

    The text is read again, which costs model calls if a language model extracts facts.
    """
    async with _open(target, backend) as graph:
        if not isinstance(graph.memory, SupportsAdoption):
            raise ConfigError("backend", f"{graph.backend_id} has nothing to adopt")
        adopted = await graph.memory.adopt(everything=everything)
    if as_json:
        print_json(document(episodes=adopted.episodes, left=adopted.left))
    else:
        print_line(f"Adopted {counted(adopted.episodes, 'episode')}; {adopted.left} left.")


# --- pictures -----------------------------------------------------------------------------------------------


@command(graph, "export", epilog="Example: cmem graph export Alice --output alice.html")
async def export(
    target: Target,
    entity: Annotated[
        str | None,
        typer.Argument(
            metavar="ENTITY",
            help="The entity at the centre; default: the newest facts overall.",
            show_default=False,
        ),
    ] = None,
    *,
    format_: Annotated[
        PictureFormat | None,
        typer.Option("--format", help="The format; default: from the file ending of --output."),
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", metavar="N", min=1, max=5, help="How many steps from the entity.")
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Write to this file."),
    ] = None,
    limit: Many = 200,
    backend: Backend = None,
    as_json: AsJson = False,
) -> None:
    """Export part of the graph as JSON, a Mermaid diagram, or an HTML page."""
    wanted = format_ or _format_of(output)
    if as_json and output is None and wanted != "json":
        problem = f"--format {wanted} needs --output with --json"
        raise typer.BadParameter(problem, param_hint="--format")
    async with _open(target, backend) as graph:
        found = await graph.memory.neighbourhood(entity, depth=depth, limit=limit)
        hint = await graph.hint(found.facts)
    about = document(entity=entity, depth=depth, entities=found.entities, output=output)
    about |= document(facts=graph.documents(found.facts))
    drawn = {"html": html_page, "mermaid": mermaid}.get(wanted)
    text = await asyncio.to_thread(drawn, found, centre=entity, now=graph.now) if drawn else _json_text(about)
    if output:
        await asyncio.to_thread(output.write_bytes, text.encode("utf-8", "replace"))
    if as_json or (wanted == "json" and not output):
        print_json(about)
    elif output:
        print_line(f"Wrote {_format_counts(len(found.entities), len(found.facts))} to {output}.")
    else:
        print_text(text)
    if hint:
        warn(hint)


def _format_of(output: Path | None) -> PictureFormat:
    """Return the format that a file's suffix stands for; JSON without a file.

    Raises:
        typer.BadParameter: the suffix is missing or unknown.
    """
    if output is None:
        return "json"
    if found := FORMATS.get(output.suffix.lower()):
        return found
    problem = (
        f"{output.name!r} does not end in one of {', '.join(FORMATS)}; choose another file, or give --format"
    )
    raise typer.BadParameter(problem, param_hint="--output")


def _format_counts(entities: int, facts: int) -> str:
    return f"{counted(entities, 'entity', 'entities')} and {counted(facts, 'fact')}"


def _json_text(about: dict[str, JsonValue]) -> str:
    return json.dumps(about, ensure_ascii=False, indent=2) + "\n"
