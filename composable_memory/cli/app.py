"""The commands and their options. What a command does is imported when it runs, so that each starts fast."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from composable_memory.cli.feedback_app import advising, feedback, weights
from composable_memory.cli.options import (
    AsJson,
    Backend,
    Here,
    Limit,
    Session,
    StateDir,
    Strict,
    Workspace,
    parse_moment,
)
from composable_memory.cli.plugins import ExtensibleGroup
from composable_memory.cli.runner import Place, run
from composable_memory.cli.tuning_app import tuning
from composable_memory.cli.workspace_app import workspaces

__all__ = [
    "app",
    "backends_list",
    "backup",
    "config_show",
    "demo",
    "embedders_list",
    "get",
    "index",
    "ingest",
    "logs_query",
    "logs_show",
    "logs_tail",
    "mcp",
    "pack",
    "restore",
    "search",
    "status",
    "watch",
]

TIME_HELP = "an ISO time, or a span back from now such as 30m, 2h or 7d"

app = typer.Typer(
    name="cmem",
    cls=ExtensibleGroup,
    help="Ask all memories of an agent at once: one ranked, cited and traced answer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 failed, 2 bad usage, 3 degraded when --strict asks.",
)
logs = typer.Typer(
    help="Read the operations log: what happened, when, and under which trace.", no_args_is_help=True
)
backends = typer.Typer(help="Look at the backends.", no_args_is_help=True)
embedders = typer.Typer(help="Look at the embedding providers.", no_args_is_help=True)
config = typer.Typer(help="Look at the settings.", no_args_is_help=True)
app.add_typer(workspaces, name="workspace")
app.add_typer(logs, name="logs")
app.add_typer(backends, name="backends")
app.add_typer(embedders, name="embedders")
app.add_typer(config, name="config")
app.add_typer(feedback, name="feedback")
app.add_typer(weights, name="weights")
app.add_typer(advising)
app.add_typer(tuning)


def _show_version(wanted: bool) -> None:
    if wanted:
        from composable_memory import __version__

        typer.echo(f"composable-memory {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command()
def index(
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    force: Annotated[
        bool, typer.Option("--force", help="Build the index anew instead of updating it.")
    ] = False,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Bring the index up to date with the notes."""
    from composable_memory.cli import indexing

    place = Place(workspace=workspace, state_dir=state_dir)
    run(indexing.index(place, force=force, strict=strict, as_json=as_json), as_json=as_json)


@app.command(epilog='Example: cmem search "who has the spare key?" -n 3 --workspace ~/notes')
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in your own words.")],
    max_results: Annotated[
        int | None, typer.Option("--max-results", "-n", metavar="N", min=1, help="How many results at most.")
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            "--min-score",
            metavar="S",
            min=0.0,
            max=1.0,
            help="Leave out results that score lower, from 0 to 1; one that has every word stays.",
        ),
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", metavar="ID", help="Ask only this backend; may be repeated."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show how each result came to its place, and what was dropped and why."
        ),
    ] = False,
    session: Session = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Search all memories and show the best passages."""
    if not query.strip():
        raise typer.BadParameter("the query is blank; say what to look for", param_hint="QUERY")
    from composable_memory.cli import searching
    from composable_memory.tools import MemorySearchRequest

    request = MemorySearchRequest(
        query=query,
        max_results=max_results,
        min_score=min_score,
        session_key=session,
        backends=tuple(backend) if backend else None,
    )
    place = Place(workspace=workspace, state_dir=state_dir)
    run(searching.search(place, request, explain=explain, strict=strict, as_json=as_json), as_json=as_json)


@app.command(epilog='Example: cmem pack "who has the spare key?" --max-tokens 500 --workspace ~/notes')
def pack(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in your own words.")],
    max_chars: Annotated[
        int | None,
        typer.Option(
            "--max-chars", metavar="N", min=1, help="How many characters at most.", show_default="2000"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", min=1, help="About how many tokens at most, instead."),
    ] = None,
    max_results: Annotated[
        int | None, typer.Option("--max-results", "-n", metavar="N", min=1, help="How many results at most.")
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", metavar="ID", help="Ask only this backend; may be repeated."),
    ] = None,
    session: Session = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Pack the best notes and facts into one text, with their sources."""
    if not query.strip():
        raise typer.BadParameter("the query is blank; say what to look for", param_hint="QUERY")
    if max_chars is not None and max_tokens is not None:
        raise typer.BadParameter("give --max-chars or this, not both", param_hint="--max-tokens")
    from composable_memory.cli import packing
    from composable_memory.tools import MemoryContextPackRequest

    request = MemoryContextPackRequest(
        query=query,
        max_chars=max_chars,
        max_tokens=max_tokens,
        max_results=max_results,
        session_key=session,
        backends=tuple(backend) if backend else None,
    )
    place = Place(workspace=workspace, state_dir=state_dir)
    run(packing.pack(place, request, strict=strict, as_json=as_json), as_json=as_json)


@app.command()
def get(
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="The file, as a search names it; a citation with lines will do."),
    ],
    from_line: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="The first line.")
    ] = None,
    lines: Annotated[int | None, typer.Option("--lines", metavar="N", min=1, help="How many lines.")] = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show a memory file, or some lines of it."""
    from composable_memory.cli import searching
    from composable_memory.tools import MemoryGetRequest

    place = Place(workspace=workspace, state_dir=state_dir)
    request = MemoryGetRequest(path=path, from_=from_line, lines=lines)
    run(searching.get(place, request, as_json=as_json), as_json=as_json)


@app.command(epilog="Example: cmem ingest MEMORY.md memory/")
def ingest(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Notes, transcripts, or folders with some; - is stdin.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[str | None, typer.Option("--text", metavar="T", help="This text.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="The text that comes on stdin.")] = False,
    title: Annotated[str | None, typer.Option("--title", metavar="T", help="What it is about.")] = None,
    observed_at: Annotated[
        str | None,
        typer.Option(
            "--observed-at", metavar="TIME", help="When it was said or seen, in place of dates in it."
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="The conversation that it belongs to.")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Be content when everything is kept safely.")
    ] = False,
    backend: Backend = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Read notes, or a text, into the memory of facts."""
    named = tuple(path for path in paths or () if path != "-")
    if not all(path.strip() for path in named):
        raise typer.BadParameter("a path is blank", param_hint="PATH")
    from_stdin = stdin or "-" in (paths or ())
    if bool(named) + (text is not None) + from_stdin != 1:
        problem = "name files or folders, or give --text, or --stdin: exactly one of them"
        raise typer.BadParameter(problem, param_hint="PATH")
    from composable_memory.cli import ingesting

    said = ingesting.read_stdin() if from_stdin else text or ""
    if not named and not said.strip():
        raise typer.BadParameter("the text is blank", param_hint="--stdin" if from_stdin else "--text")
    request = ingesting.IngestRequest(
        paths=named,
        text=said,
        title=title,
        observed_at=parse_moment(observed_at, "--observed-at"),
        session_key=session,
        backend=backend,
        wait=not no_wait,
    )
    place = Place(workspace=workspace, state_dir=state_dir)
    run(ingesting.ingest(place, request, strict=strict, as_json=as_json), as_json=as_json)


@app.command()
def status(
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Try an embedding, the vector engine and a search; exit with 1 if it fails."
        ),
    ] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Show the state of the memory and of each backend."""
    from composable_memory.cli import reporting

    place = Place(workspace=workspace, state_dir=state_dir)
    run(reporting.status(place, deep=deep, strict=strict, as_json=as_json), as_json=as_json)


@app.command()
def watch(workspace: Workspace = Here, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Stay, and keep the index up to date as the notes change. With --json, one document a line."""
    from composable_memory.cli import watching

    run(watching.watch(Place(workspace=workspace, state_dir=state_dir), as_json=as_json), as_json=as_json)


@app.command(epilog="Example: cmem backup ~/backups/notes-2026-07-02")
def backup(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", file_okay=False, help="A folder that is not there yet, or empty.")
    ],
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Copy what cannot be rebuilt: judgements, weights, golden answers, facts and settings."""
    from composable_memory.cli import backing_up

    place = Place(workspace=workspace, state_dir=state_dir)
    run(backing_up.backup(place, folder, as_json=as_json), as_json=as_json)


@app.command(epilog="Example: cmem restore ~/backups/notes-2026-07-02")
def restore(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="What a backup wrote.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Replace what this memory holds of it already.")
    ] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Take in what a backup holds, in this workspace or another. Every file is checked by its hash first."""
    from composable_memory.cli import backing_up

    place = Place(workspace=workspace, state_dir=state_dir)
    run(backing_up.take_in(place, folder, force=force, as_json=as_json), as_json=as_json)


@app.command()
def mcp(workspace: Workspace = Here, state_dir: StateDir = None, session: Session = None) -> None:
    """Serve the memory to an agent: an MCP server on stdin and stdout."""
    from composable_memory.mcp_server import serve

    serve(workspace, state_dir, session_key=session)


@app.command()
def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", file_okay=False, help="Leave the sample and its index here."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Index a sample workspace, ask it a few questions, and show how an answer came about."""
    from composable_memory.cli import demonstrating

    run(demonstrating.demo(keep, as_json=as_json), as_json=as_json)


@backends.command("list")
def backends_list(workspace: Workspace = Here, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List every known backend: where it comes from, what it can do, what it lacks."""
    from composable_memory.cli import reporting

    run(reporting.backends(Place(workspace=workspace, state_dir=state_dir), as_json=as_json), as_json=as_json)


@embedders.command("list")
def embedders_list(workspace: Workspace = Here, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """List every known embedding provider: which one is chosen, and what the others lack."""
    from composable_memory.cli import reporting

    place = Place(workspace=workspace, state_dir=state_dir)
    run(reporting.embedders(place, as_json=as_json), as_json=as_json)


@config.command("show")
def config_show(
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value was set.")] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings in force; secrets are hidden."""
    from composable_memory.cli import reporting

    place = Place(workspace=workspace, state_dir=state_dir)
    run(reporting.settings(place, with_origin=origin, as_json=as_json), as_json=as_json)


@logs.command("tail")
def logs_tail(
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further events; end with Ctrl-C.")
    ] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show the last events. With --follow, --json writes one document a line."""
    from composable_memory.cli import log_reading

    place = Place(workspace=workspace, state_dir=state_dir)
    run(log_reading.tail(place, limit=limit, follow=follow, as_json=as_json), as_json=as_json)


@logs.command("show")
def logs_show(
    trace_id: Annotated[
        str,
        typer.Argument(
            metavar="TRACE_ID",
            help="A trace id, the unique beginning of one, from 4 characters on, or last for the last query.",
        ),
    ] = "last",
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Draw the waterfall of one trace."""
    from composable_memory.cli import log_reading

    place = Place(workspace=workspace, state_dir=state_dir)
    run(log_reading.show(place, trace_id, as_json=as_json), as_json=as_json)


@logs.command("query")
def logs_query(
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="For example query.merged.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="ID", help="Only of this backend.")
    ] = None,
    status: Annotated[
        Literal["success", "failure", "partial"] | None,
        typer.Option("--status", help="Only those that ended so."),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only of this session.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help=f"Not before this: {TIME_HELP}.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help=f"Not after this: {TIME_HELP}.")
    ] = None,
    limit: Limit = 100,
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, help="How many events to pass over.")
    ] = 0,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List events that meet every condition, newest first."""
    from composable_memory.cli import log_reading
    from composable_memory_ops_logs import EventFilter

    place = Place(workspace=workspace, state_dir=state_dir)
    wanted = EventFilter(
        action=action,
        backend=backend,
        status=status,
        session_key=session,
        start=log_reading.parse_time(since, "--since"),
        end=log_reading.parse_time(until, "--until"),
    )
    run(log_reading.query(place, wanted, limit=limit, offset=offset, as_json=as_json), as_json=as_json)
