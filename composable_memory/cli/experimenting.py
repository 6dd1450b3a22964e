"""`cmem experiment`: start, look at and end the comparison of two weight tables in real questions."""

from composable_memory.cli.experiment_documents import ExperimentDocument, LatestExperimentDocument
from composable_memory.cli.learning_place import learning_of
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import say, say_lines, warn, write_json
from composable_memory.cli.tuning_drawing import experiment_lines, told_table
from composable_memory_feedback.experiments.values import ExperimentStatus

__all__ = ["start", "status", "stop"]

HOW_TO_START = "hint: `cmem experiment start --b builtin=0.6,graphiti=0.3` starts one"
HOW_TO_LOOK = "hint: every further query counts; `cmem experiment status` shows how it stands"
HOW_TO_END = "hint: nothing is left to wait for; `cmem experiment stop` ends it"
HOW_TO_ADOPT = "hint: `cmem experiment stop --adopt` puts the weights of b in force"


async def start(place: Place, a: str, b: str, *, alpha: float, max_queries: int, as_json: bool) -> ExitCode:
    """Start an experiment between two tables, given by their names."""
    async with learning_of(place) as learning:
        tables = await learning.table(a), await learning.table(b)
        await learning.start_experiment(*tables, alpha=alpha, max_queries=max_queries)
        found = await learning.experiment()
    _show(found, as_json=as_json)
    warn(HOW_TO_LOOK)
    return ExitCode.FINE


async def status(place: Place, *, as_json: bool) -> ExitCode:
    """Show how the running or the latest experiment stands."""
    async with learning_of(place) as learning:
        found = await learning.experiment()
    _show(found, as_json=as_json)
    if found is None:
        warn(HOW_TO_START)
    elif found.record.is_running and found.is_over:
        warn(HOW_TO_ADOPT if found.decision == "b" else HOW_TO_END)
    return ExitCode.FINE


async def stop(place: Place, *, adopt: bool, as_json: bool) -> ExitCode:
    """End the running experiment; with `adopt`, put the table that won in force."""
    async with learning_of(place) as learning:
        ended = await learning.stop_experiment(adopt=adopt)
        table = (await learning.weights()).table
    document = ExperimentDocument.of(ended, table)
    if as_json:
        write_json(document.as_json())
    else:
        say_lines(experiment_lines(document))
        say(f"In force: {told_table(table)}.")
    return ExitCode.FINE


def _show(found: ExperimentStatus | None, *, as_json: bool) -> None:
    document = LatestExperimentDocument.of(found)
    if as_json:
        write_json(document.as_json())
    elif document.experiment is not None:
        say_lines(experiment_lines(document.experiment))
    else:
        say("No experiment yet.")
