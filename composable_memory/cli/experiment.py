"""`cmem experiment`: starts, shows and ends the comparison of two weight tables in live queries."""

from collections.abc import Sequence
from math import isfinite
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import Target, command
from composable_memory.cli.options import TABLE_HELP, AsJson
from composable_memory.cli.output import print_json, print_line, warn
from composable_memory.cli.render import print_pairs
from composable_memory.cli.weights import (
    format_table,
    format_time,
    named_table,
    opened_learning,
    table_document,
)
from composable_memory.json_documents import document
from composable_memory_feedback.experiments import ExperimentStatus
from composable_memory_feedback.weights import WeightTable

HOW_TO_LOOK = "hint: every further query counts; `cmem experiment status` shows the state"
HOW_TO_END = "hint: the result is final; `cmem experiment stop` ends it"
HOW_TO_ADOPT = "hint: `cmem experiment stop --adopt` adopts the weights of b"

app = typer.Typer()
experiment = typer.Typer(
    help="Compare two weight tables on live queries, by which results get used.",
    no_args_is_help=True,
)
app.add_typer(experiment, name="experiment")


@command(experiment, "start", epilog="Example: cmem experiment start --b builtin=0.6,graphiti=0.3")
async def start(
    target: Target,
    *,
    b: Annotated[str, typer.Option("--b", metavar="W", help=f"The weights to try: {TABLE_HELP}.")],
    a: Annotated[str, typer.Option("--a", metavar="W", help="The weights to compare with.")] = "now",
    alpha: Annotated[
        float,
        typer.Option(
            "--alpha",
            metavar="P",
            min=0.0001,
            max=0.5,
            help="The chance of declaring a false winner that you accept, however often you look.",
        ),
    ] = 0.05,
    max_queries: Annotated[
        int, typer.Option("--max-queries", metavar="N", min=1, help="Stop after this many queries.")
    ] = 2000,
    as_json: AsJson = False,
) -> None:
    """Start an experiment: interleave the results of two weight tables in every query."""
    async with opened_learning(target) as learning:
        tables = await named_table(learning, a, "--a"), await named_table(learning, b, "--b")
        await learning.experiments.start(*tables, alpha=alpha, max_queries=max_queries)
        found = await learning.experiments.status()
    _print_latest(found, as_json=as_json)
    warn(HOW_TO_LOOK)


@command(experiment, "status", epilog="Example: cmem experiment status --json")
async def status(target: Target, *, as_json: AsJson = False) -> None:
    """Show the running experiment, or how the latest one ended."""
    async with opened_learning(target) as learning:
        found = await learning.experiments.status()
    _print_latest(found, as_json=as_json)
    if found is None:
        warn(_how_to_start(learning.backends))
    elif found.record.is_running and found.is_over:
        warn(HOW_TO_ADOPT if found.decision == "b" else HOW_TO_END)


@command(experiment, "stop", epilog="Example: cmem experiment stop --adopt")
async def stop(
    target: Target,
    *,
    adopt: Annotated[bool, typer.Option("--adopt", help="Adopt the weights of b if b won.")] = False,
    as_json: AsJson = False,
) -> None:
    """End the experiment and rank by one table again."""
    async with opened_learning(target) as learning:
        ended = await learning.experiments.stop(adopt=adopt)
        table = (await learning.weights.report()).table
    if as_json:
        print_json(experiment_document(ended, table))
    else:
        print_experiment(ended)
        print_line(f"Active weights: {format_table(table)}.")


def _how_to_start(backends: Sequence[str]) -> str:
    if len(backends) < 2:
        return "hint: an experiment compares weights of several backends, but fewer than two are enabled here"
    first, second = backends[:2]
    return f"hint: `cmem experiment start --b {first}=0.6,{second}=0.3` starts one"


def _print_latest(found: ExperimentStatus | None, *, as_json: bool) -> None:
    if as_json:
        is_running = found is not None and found.record.is_running
        latest = experiment_document(found) if found else None
        print_json(document(is_running=is_running, experiment=latest))
    elif found is not None:
        print_experiment(found)
    else:
        print_line("No experiment yet.")


def experiment_document(status: ExperimentStatus, active: WeightTable | None = None) -> dict[str, JsonValue]:
    """Return the two tables and the outcome of the queries so far as JSON.

    `eValue` is left out if it is too large for a number. `inForce` is the table that ranks after the end.
    """
    record = status.record
    experiment = document(
        record,
        a=table_document(record.a),
        b=table_document(record.b),
        memory=None,
        reason=None,
        winner=None,
    )
    e_value = status.found.e_value if isfinite(status.found.e_value) else None
    found = document(status.found, e_value=e_value, decision=status.decision)
    return experiment | found | document(needs=status.needs, in_force=table_document(active))


def print_experiment(status: ExperimentStatus) -> None:
    """Print the tables, what each won, the evidence, and what is missing."""
    record, found = status.record, status.found
    wins = f"a won {found.wins_a}, b won {found.wins_b}, {found.ties} tied"
    e_value = f"{found.e_value:.3g}" if isfinite(found.e_value) else "beyond measure"
    print_line(f"Experiment {record.id}, {_format_state(status)}", bold=True)
    print_pairs(
        [
            ("a", format_table(record.a)),
            ("b", format_table(record.b)),
            ("queries", f"{found.queries}: {wins}"),
            ("evidence", f"{e_value}, decided at {1.0 / record.alpha:.3g}"),
        ]
    )
    if status.needs:
        print_line(f"{status.needs[:1].upper()}{status.needs[1:]}.")


def _format_state(status: ExperimentStatus) -> str:
    record = status.record
    if record.ended_at is None:
        return f"{record.state} since {format_time(record.started_at)}"
    won = f", {status.decision} won" if status.decision else ""
    return f"{record.state} {format_time(record.ended_at)}{won}"
