"""The root of the command line: the module of each command, so that only the one that runs is imported."""

from typing import Annotated, ClassVar

import typer

from composable_memory.cli.command_group import CommandGroup

COMMANDS = {
    "index": ("index", "Update the index from the notes."),
    "search": ("search", "Search all memories and show the best passages."),
    "pack": ("pack", "Combine the best notes and facts into one text, with their sources."),
    "get": ("get", "Show a memory file, or some of its lines."),
    "explain": ("explain", "Explain in words how a search arrived at its answer."),
    "recall": ("recall", "Show what is known about somebody or something, or about a time."),
    "reflect": (
        "recall",
        "Propose pages on facts, opinions and entities from the lines retained in the notes.",
    ),
    "ingest": ("ingest", "Extract facts from notes or a text and store them."),
    "remember": ("remember", "Write a fact, an experience or an opinion into the note of the day."),
    "forget": ("remember", "Forget lines of notes or messages, and everything any store holds about them."),
    "status": ("status", "Show the status of the memory and of each backend."),
    "watch": ("watch", "Keep running and update the index as notes change."),
    "serve": (
        "serve",
        "Keep a workspace ready: watch its notes, and answer `search`, `get`, `recall` and others faster.",
    ),
    "backup": (
        "backup",
        "Back up what cannot be rebuilt: judgements, weights, golden answers, facts and settings.",
    ),
    "restore": ("backup", "Restore a backup into this workspace or another."),
    "export": ("backup", "Export notes, facts, judgements and weights for other programs to read."),
    "import": ("backup", "Import what another memory has exported, as notes and transcripts."),
    "hook": (
        "hook",
        "Answer an agent's hook: with a recap, what is known about a prompt, or a memory flush.",
    ),
    "mcp": ("mcp", "Serve the memory to agents as an MCP server, on stdin and stdout or over HTTP."),
    "demo": ("demo", "Index a sample workspace, ask it a few questions, and trace one answer."),
    "workspace": (
        "workspaces",
        "List known workspaces, clean up, or reconnect one whose folder was replaced.",
    ),
    "connect": (
        "connect",
        "Connect an agent to this memory: add the MCP server and hooks to the agent's configuration.",
    ),
    "trust": (
        "trust",
        "Show what a workspace's settings file asks for that needs your consent, and allow it.",
    ),
    "logs": ("logs", "Read the operations log: what happened, when, and in which trace."),
    "backends": ("backends", "List backends, test one, or add one."),
    "embedders": ("status", "Inspect the embedding providers."),
    "config": ("status", "Inspect the settings."),
    "feedback": (
        "feedback",
        "Rate results, have a model rate them, and see how good each backend is.",
    ),
    "weights": ("weights", "Show, set and roll back the weights of the backends."),
    "advise": ("advise", "Propose better weights from judged searches, with their expected gain."),
    "replay": (
        "replay",
        "Rank logged queries again and show what a change of ranking would do.",
    ),
    "gate": (
        "replay",
        "Test weights on judged queries; exit with 1 if they may rank worse than the baseline.",
    ),
    "eval": (
        "evaluate",
        "Ask questions with known answers; show recall, MRR and nDCG overall and per backend.",
    ),
    "experiment": (
        "experiment",
        "Compare two weight tables on live queries, by which results get used.",
    ),
}
"""For each command its module in this package and its line in `cmem --help`, in the order of the help."""

GROUPS = {
    "Index and find": ("index", "search", "pack", "get", "explain", "recall"),
    "Write": ("remember", "forget", "reflect", "ingest"),
    "Maintain": ("status", "watch", "serve", "backup", "restore", "workspace", "logs"),
    "Connect": ("connect", "mcp", "hook", "trust", "import", "export", "backends", "embedders", "config"),
    "Tune": ("feedback", "weights", "advise", "replay", "gate", "eval", "experiment"),
}
"""Headings in `cmem --help`; commands under none come first."""


class _Commands(CommandGroup):
    """The commands of the core, and those that installed packages add."""

    core: ClassVar = {
        name: (f"composable_memory.cli.{module}", line) for name, (module, line) in COMMANDS.items()
    }
    groups: ClassVar = {name: group for group, names in GROUPS.items() for name in names}


def _print_version(wanted: bool) -> None:
    if wanted:
        from composable_memory import __version__

        typer.echo(f"composable-memory {__version__}")
        raise typer.Exit


app = typer.Typer(
    name="cmem",
    cls=_Commands,
    help="Search all of an agent's memories at once: one ranked, cited and traced answer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failure, 2 bad usage, 3 degraded (with --strict).",
)


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass
