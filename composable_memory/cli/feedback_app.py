"""The commands by which a memory learns, `cmem feedback`, `weights` and `advise`, and their options."""

from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

import typer

from composable_memory.cli.options import AsJson, Here, StateDir, Workspace
from composable_memory.cli.runner import Place, run

__all__ = [
    "advise",
    "advising",
    "feedback",
    "feedback_add",
    "feedback_evaluate",
    "feedback_export",
    "feedback_import",
    "feedback_plot",
    "feedback_stats",
    "weights",
    "weights_diff",
    "weights_history",
    "weights_rollback",
    "weights_set",
    "weights_show",
]

TABLE_HELP = "A version such as v3, or now, settings, equal, or builtin=0.6,graphiti=0.3."

feedback = typer.Typer(
    help="Say how well results answered, or have it judged; see how good each backend is.",
    no_args_is_help=True,
)
weights = typer.Typer(
    help="Look at the weights of the backends, set them, and go back.", no_args_is_help=True
)

advising = typer.Typer()

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only from then on: an ISO time, or a span such as 7d."),
]


@feedback.command("add", epilog="Example: cmem feedback add 1f2e3d4c 2 --relevance 0.8 --used")
def feedback_add(
    trace_id: Annotated[
        str,
        typer.Argument(
            metavar="TRACE_ID", help="The search: its trace id, the unique beginning of it, or last."
        ),
    ],
    result: Annotated[
        str,
        typer.Argument(
            metavar="RESULT", help="The result: its place from 1 on, or its path, with #L3-L5 or not."
        ),
    ],
    relevance: Annotated[
        float,
        typer.Option(
            "--relevance",
            "-r",
            metavar="R",
            min=0.0,
            max=1.0,
            help="From 0, no use, to 1, answers the question.",
        ),
    ] = 1.0,
    used: Annotated[bool, typer.Option("--used", help="The answer rests on it.")] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Say how well one result of a search answered. Said again, the later word counts."""
    if not isfinite(relevance):
        raise typer.BadParameter("give a number from 0 to 1", param_hint="--relevance")
    from composable_memory.cli import feedback as commands

    place = Place(workspace=workspace, state_dir=state_dir)
    command = commands.add(place, trace_id, result, relevance=relevance, was_used=used, as_json=as_json)
    run(command, as_json=as_json)


@feedback.command("evaluate", epilog="Example: cmem feedback evaluate --since 7d --limit 10")
def feedback_evaluate(
    since: Since = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="How many queries at most.")
    ] = None,
    of_advice: Annotated[
        bool, typer.Option("--advice", help="Judge what the present advice would show and nobody judged.")
    ] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Have a language model judge logged searches, and gather what their use tells.

    The model is that of memory.feedback.llm; it is sent the question, and the text of the results.
    """
    from composable_memory.cli import feedback as commands
    from composable_memory.cli.log_reading import parse_time

    place = Place(workspace=workspace, state_dir=state_dir)
    first = parse_time(since, "--since")
    command = commands.evaluate(place, since=first, limit=limit, of_advice=of_advice, as_json=as_json)
    run(command, as_json=as_json)


@feedback.command("stats", epilog="Example: cmem feedback stats --since 30d")
def feedback_stats(
    since: Since = None, workspace: Workspace = Here, state_dir: StateDir = None, as_json: AsJson = False
) -> None:
    """Show how good each backend is, what was judged by whom, and what that has cost."""
    from composable_memory.cli import feedback as commands
    from composable_memory.cli.log_reading import parse_time

    place = Place(workspace=workspace, state_dir=state_dir)
    run(commands.stats(place, since=parse_time(since, "--since"), as_json=as_json), as_json=as_json)


@feedback.command("plot", epilog="Example: cmem feedback plot --since 90d --output quality.svg")
def feedback_plot(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", dir_okay=False, help="Draw into this file, a .png or an .svg."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", dir_okay=False, hidden=True)] = None,
    since: Since = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Draw the weights over time, the quality of each backend by day, and the gain of the changes."""
    from composable_memory.cli import feedback as commands
    from composable_memory.cli.log_reading import parse_time
    from composable_memory.cli.pictures import SUFFIXES

    file = output or out  # --out is what it was called before
    if file is not None and file.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(f"{file.name!r} ends neither with .png nor with .svg", param_hint="--output")
    place = Place(workspace=workspace, state_dir=state_dir)
    command = commands.plot(place, since=parse_time(since, "--since"), output=file, as_json=as_json)
    run(command, as_json=as_json)


@feedback.command("export", epilog="Example: cmem feedback export --output judged.jsonl")
def feedback_export(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Write into this file."),
    ] = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Write judgements, weights, golden answers and experiments as JSON lines, to stdout or a file."""
    if as_json and output is None:
        raise typer.BadParameter("what is exported takes up stdout; give --output", param_hint="--json")
    from composable_memory.cli import backing_up

    place = Place(workspace=workspace, state_dir=state_dir)
    run(backing_up.export(place, output, as_json=as_json), as_json=as_json)


@feedback.command("import", epilog="Example: cmem feedback import judged.jsonl")
def feedback_import(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="What an export wrote."),
    ],
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Add what an export holds; what is known stays as it is. With a bad line, everything does."""
    from composable_memory.cli import backing_up

    place = Place(workspace=workspace, state_dir=state_dir)
    run(backing_up.import_(place, file, as_json=as_json), as_json=as_json)


@weights.command("show", epilog="Example: cmem weights show")
def weights_show(workspace: Workspace = Here, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show the weights in force, for all questions and for kinds of them."""
    from composable_memory.cli import weighing

    run(weighing.show(Place(workspace=workspace, state_dir=state_dir), as_json=as_json), as_json=as_json)


@weights.command("history", epilog="Example: cmem weights history -n 5")
def weights_history(
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1000, help="How many changes at most.")
    ] = 20,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the changes of the weights, the latest first."""
    from composable_memory.cli import weighing

    place = Place(workspace=workspace, state_dir=state_dir)
    run(weighing.history(place, limit=limit, as_json=as_json), as_json=as_json)


@weights.command("set", epilog="Example: cmem weights set builtin=0.6 graphiti=0.3 --intent time")
def weights_set(
    given: Annotated[
        list[str],
        typer.Argument(metavar="WEIGHT...", help="A backend, = and its weight, such as builtin=0.6."),
    ],
    intent: Annotated[
        Literal["time", "topic", "entity", "general"] | None,
        typer.Option("--intent", help="Only for questions of this kind."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the history keeps it.")] = "",
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Set weights by hand; what is not given stays. They hold at once, in a running memory too."""
    from composable_memory.cli import weighing

    place = Place(workspace=workspace, state_dir=state_dir)
    chosen = weighing.read_weights(given)
    run(weighing.set_(place, chosen, intent=intent, reason=reason, as_json=as_json), as_json=as_json)


@weights.command("rollback", epilog="Example: cmem weights rollback v2")
def weights_rollback(
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="VERSION",
            help="The version to go back to, or settings; without it, the one before.",
            show_default=False,
        ),
    ] = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Put earlier weights in force again."""
    from composable_memory.cli import weighing

    place = Place(workspace=workspace, state_dir=state_dir)
    run(weighing.rollback(place, version, as_json=as_json), as_json=as_json)


@weights.command("diff", epilog="Example: cmem weights diff settings now")
def weights_diff(
    a: Annotated[str, typer.Argument(metavar="A", help=TABLE_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one, named likewise.")],
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Compare two weight tables."""
    from composable_memory.cli import weighing

    place = Place(workspace=workspace, state_dir=state_dir)
    run(weighing.diff(place, a, b, as_json=as_json), as_json=as_json)


@advising.command("advise", epilog="Example: cmem advise --apply")
def advise(
    llm: Annotated[
        bool, typer.Option("--llm", help="Ask the language model of memory.feedback.llm.")
    ] = False,
    formula: Annotated[
        bool, typer.Option("--formula", help="Take the share of relevant results, by a simple formula.")
    ] = False,
    apply_: Annotated[
        bool, typer.Option("--apply", help="Adopt the advice if nothing speaks against it.")
    ] = False,
    since: Since = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Propose better weights from the judged searches, and say what they would bring.

    Whoever advises, a replay says what the weights are worth. Without --apply nothing changes.
    """
    if llm and formula:
        raise typer.BadParameter("give --llm or this, not both", param_hint="--formula")
    from composable_memory.cli import weighing
    from composable_memory.cli.log_reading import parse_time

    request = weighing.AdviceRequest(
        advisor="llm" if llm else "formula" if formula else "statistical",
        since=parse_time(since, "--since"),
        applies=apply_,
    )
    place = Place(workspace=workspace, state_dir=state_dir)
    run(weighing.advise(place, request, as_json=as_json), as_json=as_json)
