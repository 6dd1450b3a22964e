"""The root of the command line: the module of each command, so that only the one that runs is imported."""

from typing import Annotated, ClassVar

import typer

from composable_memory.cli.command_group import CommandGroup

__all__ = ["COMMANDS", "app"]

COMMANDS = {
    "index": ("index", "Bring the index up to date with the notes."),
    "search": ("search", "Search all memories and show the best passages."),
    "pack": ("search", "Pack the best notes and facts into one text, with their sources."),
    "get": ("search", "Show a memory file, or some lines of it."),
    "ingest": ("ingest", "Read notes, or a text, into the memory of facts."),
    "status": ("status", "Show the state of the memory and of each backend."),
    "watch": ("watch", "Stay, and keep the index up to date as the notes change."),
    "backup": (
        "backup",
        "Copy what cannot be rebuilt: judgements, weights, golden answers, facts and settings.",
    ),
    "restore": ("backup", "Take in what a backup holds, in this workspace or another."),
    "mcp": ("watch", "Serve the memory to an agent: an MCP server on stdin and stdout."),
    "demo": ("demo", "Index a sample workspace, ask it a few questions, and show how an answer came about."),
    "workspace": (
        "workspaces",
        "Look at the workspaces of the state folder, and bring one back whose folder was replaced.",
    ),
    "logs": ("logs", "Read the operations log: what happened, when, and under which trace."),
    "backends": ("status", "Look at the backends."),
    "embedders": ("status", "Look at the embedding providers."),
    "config": ("status", "Look at the settings."),
    "feedback": (
        "feedback",
        "Say how well results answered, or have it judged; see how good each backend is.",
    ),
    "weights": ("weights", "Look at the weights of the backends, set them, and go back."),
    "advise": ("advise", "Propose better weights from the judged searches, and say what they would bring."),
    "replay": (
        "replay",
        "Rank logged queries again, from the log alone, and show what a change of the ranking would do.",
    ),
    "gate": (
        "replay",
        "Test weights on judged queries: exit with 1 if they may rank worse than the baseline.",
    ),
    "eval": ("evaluate", "Ask questions with known answers; show recall, MRR and nDCG."),
    "experiment": (
        "experiment",
        "Let two weight tables rank real questions side by side, and see whose results are used.",
    ),
}
"""For each command its module in this package and its line in `cmem --help`, in the order of the help."""


class _Commands(CommandGroup):
    """The commands of the core, and what installed packages add."""

    core: ClassVar = {
        name: (f"composable_memory.cli.{module}", line) for name, (module, line) in COMMANDS.items()
    }


def _print_version(wanted: bool) -> None:
    if wanted:
        from composable_memory import __version__

        typer.echo(f"composable-memory {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="cmem",
    cls=_Commands,
    help="Ask all memories of an agent at once: one ranked, cited and traced answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 failed, 2 bad usage, 3 degraded when --strict asks.",
)


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass
