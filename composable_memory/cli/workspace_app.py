"""The commands of `cmem workspace` and their options."""

from typing import Annotated

import typer

from composable_memory.cli.options import AsJson, Here, StateDir, Workspace
from composable_memory.cli.runner import Place, run

__all__ = ["workspace_adopt", "workspace_list", "workspace_prune", "workspaces"]

workspaces = typer.Typer(
    help="Look at the workspaces of the state folder, and bring one back whose folder was replaced.",
    no_args_is_help=True,
)


@workspaces.command("list")
def workspace_list(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List the workspaces that are known, and what is kept of each."""
    from composable_memory.cli import workspaces as commands

    run(commands.listing(Place(workspace=Here, state_dir=state_dir), as_json=as_json), as_json=as_json)


@workspaces.command("adopt", epilog="Example: cmem workspace adopt 3f9c2a7d1e40 --workspace ~/notes")
def workspace_adopt(
    workspace_id: Annotated[
        str, typer.Argument(metavar="ID", help="The workspace, as `cmem workspace list` names it.")
    ],
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if its folder is there, or this one has a memory of its own."),
    ] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Let a folder be a known workspace from now on: its facts, judgements, weights and log."""
    from composable_memory.cli import workspaces as commands

    place = Place(workspace=workspace, state_dir=state_dir)
    run(commands.adopt(place, workspace_id, force=force, as_json=as_json), as_json=as_json)


@workspaces.command("prune")
def workspace_prune(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove them, instead of showing them.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove indexes of folders that are gone, or have no notes. What cannot be made anew stays."""
    from composable_memory.cli import workspaces as commands

    place = Place(workspace=Here, state_dir=state_dir)
    run(commands.prune(place, remove=yes, as_json=as_json), as_json=as_json)
