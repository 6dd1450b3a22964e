"""`cmem eval`: asks questions with known answers, and checks the active weights against the floor."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import (
    error,
    one_line,
    print_json,
    print_line,
    warn,
    warn_degraded,
    warn_if_empty,
)
from composable_memory.cli.render import print_table
from composable_memory.json_documents import document
from composable_memory.learning import GoldenRun, QuestionScore
from composable_memory_feedback.golden import GoldenComparison, read_questions
from composable_memory_ops_logs.plurals import counted

NAMED = 10
"""How many unanswered questions to name."""
MISSES = 20
"""How many missed questions to show."""
QUESTION_CHARS = 90

app = typer.Typer()


@command(app, "eval", epilog="Example: cmem eval questions.jsonl -k 10")
async def evaluate(
    target: Target,
    questions: Annotated[
        Path,
        typer.Argument(
            metavar="QUERIES.jsonl",
            help='One question per line: {"question": "...", "expect": ["memory/keys.md#L3"]}.',
            exists=True,
            dir_okay=False,
        ),
    ],
    *,
    k: Annotated[
        int, typer.Option("-k", metavar="N", min=1, max=1000, help="How many of the top results count.")
    ] = 10,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep/--no-keep",
            help="Keep these answers as a floor: weights that rank them worse are not adopted.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Ask questions with known answers; show recall, MRR and nDCG overall and per backend.

    Nothing is kept without --keep. Fails if the active weights rank the kept answers worse than when
    they were kept.
    """
    asked = await asyncio.to_thread(read_questions, questions)
    async with target.open() as memory:
        warn_degraded(memory.unavailable())
        found = await memory.learning.golden.record(memory, asked, k=k, keep=keep)
        status = memory.status()
    tolerance = memory.settings.memory.feedback.golden_tolerance
    if as_json:
        print_json(golden_document(found, k, tolerance))
    else:
        print_run(found, k)
    warn_if_empty(status)
    if found.unanswered:
        _warn_of_unanswered(found.unanswered)
    if found.floor and found.floor.falls_by_more_than(tolerance):
        worse = f"worse than then, by more than {tolerance:g}"
        error(f"the active weights rank the answers kept before {worse}")
        return ExitCode.FAILED
    return ExitCode.FINE


def golden_document(run: GoldenRun, k: int, tolerance: float) -> dict[str, JsonValue]:
    """Return as JSON the scores of all backends together and each alone, and how each question went.

    `floor` compares the answers kept before, as they were ranked `then` and with the active weights `now`;
    `worse` names the questions whose nDCG falls.
    """
    floor = None
    if run.floor:
        floor = document(
            holds=not run.floor.falls_by_more_than(tolerance),
            tolerance=tolerance,
            then=document(run.floor.current, by_backend=None),
            now=document(run.floor.proposed, by_backend=None),
            worse=run.floor.worse,
        )
    return document(
        k=k,
        composite=document(run.score, by_backend=None),
        backends={one: document(score, by_backend=None) for one, score in run.score.by_backend.items()},
        questions=run.questions,
        unanswered=run.unanswered,
        kept=run.kept,
        floor=floor,
    )


def print_run(run: GoldenRun, k: int) -> None:
    """Print the scores of all together and of each backend, the misses, and the comparison with the floor."""
    print_line(f"{counted(run.score.questions, 'question')}, the first {k} results of each", bold=True)
    scores = [("all together", run.score), *run.score.by_backend.items()]
    rows = [(one_line(name), f"{s.recall:.3f}", f"{s.mrr:.3f}", f"{s.ndcg:.3f}") for name, s in scores]
    print_table(rows, head=("", "recall", "MRR", "nDCG"), right=(1, 2, 3), indent=2)
    _print_misses([one for one in run.questions if one.recall < 1.0], k)
    if run.floor:
        _print_floor(run.floor)
    if run.kept:
        print_line(f"Kept {counted(run.kept, 'question')}; weights that rank them worse will not be adopted.")


def _print_misses(missed: Sequence[QuestionScore], k: int) -> None:
    if not missed:
        return
    print_line()
    print_line(f"{counted(len(missed), 'question')} with answers missing from the first {k}", bold=True)
    shown = sorted(missed, key=lambda one: one.recall)[:MISSES]
    print_table(
        ((one_line(one.id, 20), _format_miss(one), one_line(one.question, QUESTION_CHARS)) for one in shown),
        indent=2,
    )
    if left := max(0, len(missed) - MISSES):
        print_line(f"  {left} more; --json lists all", dim=True)


def _format_miss(one: QuestionScore) -> str:
    if one.first_rank is None:
        return "none found"
    return f"{one.recall:.0%} found, first at {one.first_rank}"


def _print_floor(floor: GoldenComparison) -> None:
    then, now = floor.current, floor.proposed
    print_line()
    print_line("The answers kept before: ranked then -> with the active weights", bold=True)
    measures = (
        ("recall", then.recall, now.recall),
        ("MRR", then.mrr, now.mrr),
        ("nDCG", then.ndcg, now.ndcg),
    )
    print_line("  " + ", ".join(f"{name} {old:.3f} -> {new:.3f}" for name, old, new in measures))
    if floor.worse:
        more = f" and {len(floor.worse) - MISSES} more" if len(floor.worse) > MISSES else ""
        print_line(f"  worse: {', '.join(one_line(one) for one in floor.worse[:MISSES])}{more}")


def _warn_of_unanswered(unanswered: Sequence[str]) -> None:
    named = ", ".join(map(one_line, unanswered[:NAMED])) + (", ..." if len(unanswered) > NAMED else "")
    problem = f"no backend could be asked {counted(len(unanswered), 'question')}: {named}"
    warn(f"degraded: {problem}; `cmem status --deep` shows why")
