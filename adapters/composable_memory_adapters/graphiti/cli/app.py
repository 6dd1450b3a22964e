"""The commands of `cmem graph` and their options."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from composable_memory.cli.plugin_api import (
    AsJson,
    Backend,
    Here,
    Place,
    StateDir,
    Workspace,
    parse_moment,
    run,
)

if TYPE_CHECKING:
    from composable_memory_adapters.graphiti.cli.commands import PictureFormat

__all__ = [
    "graph",
    "graph_adopt",
    "graph_entities",
    "graph_episodes",
    "graph_export",
    "graph_facts",
    "graph_forget",
    "graph_timeline",
]

graph = typer.Typer(
    help="Look at the facts of the memory: who is known, what holds since when, and where it is from.",
    no_args_is_help=True,
)

Many = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="How many at most.")]


@graph.command("facts", epilog="Example: cmem graph facts --about Alice --as-of 2026-01-31")
def graph_facts(
    about: Annotated[
        str | None, typer.Option("--about", metavar="ENTITY", help="Only about this one: a name or an id.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="DATE", help="Only what held at the end of this day, or at this time."
        ),
    ] = None,
    current: Annotated[bool, typer.Option("--current", help="Only what still holds.")] = False,
    limit: Many = 20,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List facts, the newest first; what holds no more is dimmed."""
    from composable_memory_adapters.graphiti.cli import commands

    command = commands.facts(
        Place(workspace=workspace, state_dir=state_dir),
        backend,
        about=about,
        as_of=parse_moment(as_of, "--as-of", day_ends=True),
        current_only=current,
        limit=limit,
        as_json=as_json,
    )
    run(command, as_json=as_json)


@graph.command("entities")
def graph_entities(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A part of the name.", show_default=False)
    ] = None,
    limit: Many = 50,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List who and what is known, those with most facts first."""
    from composable_memory_adapters.graphiti.cli import commands

    place = Place(workspace=workspace, state_dir=state_dir)
    run(commands.entities(place, backend, named=name, limit=limit, as_json=as_json), as_json=as_json)


@graph.command("episodes")
def graph_episodes(
    limit: Many = 20,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List what was ingested, the latest first."""
    from composable_memory_adapters.graphiti.cli import commands

    place = Place(workspace=workspace, state_dir=state_dir)
    run(commands.episodes(place, backend, limit=limit, as_json=as_json), as_json=as_json)


@graph.command("timeline")
def graph_timeline(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="A name or an id.")],
    limit: Many = 100,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List what is and was known of one entity, in the order of time."""
    from composable_memory_adapters.graphiti.cli import commands

    place = Place(workspace=workspace, state_dir=state_dir)
    run(commands.timeline(place, backend, entity, limit=limit, as_json=as_json), as_json=as_json)


@graph.command("forget")
def graph_forget(
    episode: Annotated[
        str, typer.Argument(metavar="EPISODE", help="The episode, as `cmem graph episodes` names it.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove an episode for good, with what only it supports. Asks first, except with --yes or --json."""
    from composable_memory_adapters.graphiti.cli import commands

    place = Place(workspace=workspace, state_dir=state_dir)
    if not (yes or as_json):
        commands.ask_to_forget(place, backend, episode)
    run(commands.forget(place, backend, episode, as_json=as_json), as_json=as_json)


@graph.command("adopt")
def graph_adopt(
    everything: Annotated[
        bool, typer.Option("--all", help="Also what no note of this workspace says: all of it is yours.")
    ] = False,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take over what was ingested before workspaces were told apart, as far as it is in these notes.

    It is read once more, which costs calls where a language model reads.
    """
    from composable_memory_adapters.graphiti.cli import commands

    place = Place(workspace=workspace, state_dir=state_dir)
    run(commands.adopt(place, backend, everything=everything, as_json=as_json), as_json=as_json)


@graph.command("export", epilog="Example: cmem graph export Alice --output alice.html")
def graph_export(
    entity: Annotated[
        str | None,
        typer.Argument(
            metavar="ENTITY",
            help="Who is in the middle; without it, the newest facts of all.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        Literal["json", "mermaid", "html"] | None,
        typer.Option("--format", help="What to write; without it, what the end of --output says."),
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", metavar="N", min=1, max=5, help="How many steps from the entity.")
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Write into this file."),
    ] = None,
    limit: Many = 200,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Write a part of the graph: as JSON, as a Mermaid diagram, or as a page to look at."""
    from composable_memory_adapters.graphiti.cli import commands

    wanted = format_ or _format_of(output)
    if as_json and output is None and wanted != "json":
        problem = f"--format {wanted} needs --output beside --json"
        raise typer.BadParameter(problem, param_hint="--format")
    picture = commands.Picture(entity=entity, format=wanted, depth=depth, limit=limit, output=output)
    place = Place(workspace=workspace, state_dir=state_dir)
    run(commands.export(place, backend, picture, as_json=as_json), as_json=as_json)


FORMATS: dict[str, "PictureFormat"] = {
    ".json": "json",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".html": "html",
    ".htm": "html",
}


def _format_of(output: Path | None) -> "PictureFormat":
    """Return what the end of a file's name says that it is; without a file it is JSON.

    Raises:
        typer.BadParameter: it says something else, or nothing.
    """
    if output is None:
        return "json"
    if found := FORMATS.get(output.suffix.lower()):
        return found
    problem = f"{output.name!r} ends with none of {', '.join(FORMATS)}; name another file, or give --format"
    raise typer.BadParameter(problem, param_hint="--output")


app = typer.Typer()
app.add_typer(graph, name="graph")
