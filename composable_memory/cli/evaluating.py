"""`cmem eval`: ask questions with known answers, and see that the weights in force hold the floor."""

import asyncio
from pathlib import Path

from composable_memory.cli.golden_documents import EvalDocument
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import (
    complain,
    counted,
    one_line,
    say_lines,
    tell_degraded,
    tell_if_empty,
    warn,
    write_json,
)
from composable_memory.cli.tuning_drawing import eval_lines
from composable_memory.runtime.opening import open_memory
from composable_memory_feedback.golden import read_questions

__all__ = ["evaluate"]

NAMED = 10
"""So many questions that nobody answered are named."""


async def evaluate(place: Place, path: Path, *, k: int, keep: bool, as_json: bool) -> ExitCode:
    """Ask the questions of a file; fail where the weights in force rank the kept answers worse than then.

    Raises:
        FeedbackError: the file cannot be read, holds what is no question, or the operations log is off.
    """
    questions = await asyncio.to_thread(read_questions, path)
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        tell_degraded(memory.unavailable())
        found = await memory.learning.record_golden(memory, questions, k=k, keep=keep)
        status = memory.status()
    document = EvalDocument.of(found, k=k, tolerance=memory.settings.memory.feedback.golden_tolerance)
    if as_json:
        write_json(document.as_json())
    else:
        say_lines(eval_lines(document))
    tell_if_empty(status)
    if document.unanswered:
        _tell_unanswered(document.unanswered)
    return _judge(document)


def _tell_unanswered(unanswered: tuple[str, ...]) -> None:
    named = ", ".join(map(one_line, unanswered[:NAMED])) + (", ..." if len(unanswered) > NAMED else "")
    told = f"no backend could be asked {counted(len(unanswered), 'question')}: {named}"
    warn(f"degraded: {told}; `cmem status --deep` shows why")


def _judge(document: EvalDocument) -> ExitCode:
    if document.floor is None or document.floor.holds:
        return ExitCode.FINE
    tolerance = document.floor.tolerance
    complain(f"the weights in force rank the answers kept before worse than then, by more than {tolerance:g}")
    return ExitCode.FAILED
