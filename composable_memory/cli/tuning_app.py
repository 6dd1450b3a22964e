"""The commands that try weights out, `cmem replay`, `gate`, `eval` and `experiment`, and their options."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from composable_memory.cli.options import AsJson, Here, StateDir, Workspace
from composable_memory.cli.runner import Place, run

__all__ = [
    "eval_",
    "experiment",
    "experiment_start",
    "experiment_status",
    "experiment_stop",
    "gate",
    "replay",
    "tuning",
]

TABLE_HELP = "builtin=0.6,graphiti=0.3, or a version such as v3, or now, settings or equal"

tuning = typer.Typer()
"""All of them; added without a name, they stand beside the other commands."""

experiment = typer.Typer(
    help="Let two weight tables rank real questions side by side, and see whose results are used.",
    no_args_is_help=True,
)
tuning.add_typer(experiment, name="experiment")

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Queries from then on: an ISO time, or a span such as 7d."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Queries up to then: an ISO time, or a span.")
]
Depth = Annotated[
    int | None,
    typer.Option(
        "-k",
        metavar="N",
        min=1,
        max=1000,
        help="How many results of a ranking count; 10 unless set otherwise.",
    ),
]


@tuning.command("replay", epilog="Example: cmem replay --weights builtin=0.6,graphiti=0.3 --since 7d")
def replay(
    weights: Annotated[
        str | None, typer.Option("--weights", metavar="W", help=f"Other weights: {TABLE_HELP}.")
    ] = None,
    fusion: Annotated[
        Literal["weighted", "rrf", "convex"] | None,
        typer.Option("--fusion", help="Another way to make one score of several."),
    ] = None,
    dedup: Annotated[
        Literal["exact", "overlap", "near"] | None,
        typer.Option("--dedup", help="Another notion of what is the same."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="ID", help="As if this backend had not answered; may be repeated."),
    ] = None,
    since: Since = None,
    until: Until = None,
    k: Depth = None,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", metavar="N", min=0, help="How many changed queries to show at most."),
    ] = 5,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Rank logged queries again, from the log alone, and show what a change of the ranking would do.

    Without a change it proves that every logged ranking comes out as it was, to the byte, and fails if not.
    """
    from composable_memory.cli import tuning as doing
    from composable_memory.cli.log_reading import parse_time

    request = doing.ReplayRequest(
        weights=weights,
        fusion=fusion,
        dedup=dedup,
        dropped=frozenset(drop or ()),
        since=parse_time(since, "--since"),
        until=parse_time(until, "--until"),
        k=k,
        limit=limit,
    )
    place = Place(workspace=workspace, state_dir=state_dir)
    run(doing.replay(place, request, as_json=as_json), as_json=as_json)


@tuning.command("gate", epilog="Example: cmem gate --candidate builtin=0.6,graphiti=0.3 --tolerance 0.01")
def gate(
    candidate: Annotated[
        str, typer.Option("--candidate", metavar="W", help=f"The weights to be tested: {TABLE_HELP}.")
    ],
    baseline: Annotated[
        str, typer.Option("--baseline", metavar="W", help="The weights that they must not fall behind.")
    ] = "now",
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", metavar="D", min=0.0, max=1.0, help="How far nDCG may fall at the worst."
        ),
    ] = 0.0,
    since: Since = None,
    k: Depth = None,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Test weights on judged queries: exit with 1 if they may rank worse than the baseline.

    They may where the lower bound of the difference in nDCG lies below what is tolerated, and where too few
    queries are judged to tell.
    """
    from composable_memory.cli import tuning as doing
    from composable_memory.cli.log_reading import parse_time

    request = doing.GateRequest(
        baseline=baseline,
        candidate=candidate,
        tolerance=tolerance,
        since=parse_time(since, "--since"),
        k=k,
    )
    place = Place(workspace=workspace, state_dir=state_dir)
    run(doing.gate(place, request, as_json=as_json), as_json=as_json)


@tuning.command("eval", epilog="Example: cmem eval questions.jsonl -k 10")
def eval_(
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="QUERIES.jsonl",
            help='One question a line: {"question": "...", "expect": ["memory/keys.md#L3"]}.',
            exists=True,
            dir_okay=False,
        ),
    ],
    k: Annotated[
        int, typer.Option("-k", metavar="N", min=1, max=1000, help="How many results of an answer count.")
    ] = 10,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep/--no-keep", help="Keep the answers: no weights are adopted that do worse on them."
        ),
    ] = True,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Ask questions with known answers; show recall, MRR and nDCG, of all together and of each backend.

    Fails if the weights in force rank the answers that were kept before worse than they were ranked then.
    """
    from composable_memory.cli import evaluating

    place = Place(workspace=workspace, state_dir=state_dir)
    run(evaluating.evaluate(place, questions, k=k, keep=keep, as_json=as_json), as_json=as_json)


@experiment.command("start", epilog="Example: cmem experiment start --b builtin=0.6,graphiti=0.3")
def experiment_start(
    b: Annotated[str, typer.Option("--b", metavar="W", help=f"The weights to try: {TABLE_HELP}.")],
    a: Annotated[str, typer.Option("--a", metavar="W", help="The weights to compare them with.")] = "now",
    alpha: Annotated[
        float,
        typer.Option(
            "--alpha",
            metavar="P",
            min=0.0001,
            max=0.5,
            help="How likely equal tables may be told apart by luck, however often one looks.",
        ),
    ] = 0.05,
    max_queries: Annotated[
        int, typer.Option("--max-queries", metavar="N", min=1, help="Give up after so many queries.")
    ] = 2000,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Serve every further query from two weight tables, their results in turn."""
    from composable_memory.cli import experimenting

    place = Place(workspace=workspace, state_dir=state_dir)
    command = experimenting.start(place, a, b, alpha=alpha, max_queries=max_queries, as_json=as_json)
    run(command, as_json=as_json)


@experiment.command("status", epilog="Example: cmem experiment status --json")
def experiment_status(
    workspace: Workspace = Here, state_dir: StateDir = None, as_json: AsJson = False
) -> None:
    """Show how the experiment stands, or how the latest one ended."""
    from composable_memory.cli import experimenting

    place = Place(workspace=workspace, state_dir=state_dir)
    run(experimenting.status(place, as_json=as_json), as_json=as_json)


@experiment.command("stop", epilog="Example: cmem experiment stop --adopt")
def experiment_stop(
    adopt: Annotated[bool, typer.Option("--adopt", help="If b won, put its weights in force.")] = False,
    workspace: Workspace = Here,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """End the experiment; from then on one table ranks again."""
    from composable_memory.cli import experimenting

    place = Place(workspace=workspace, state_dir=state_dir)
    run(experimenting.stop(place, adopt=adopt, as_json=as_json), as_json=as_json)
