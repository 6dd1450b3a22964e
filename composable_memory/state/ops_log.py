"""Opens the ops log of a state folder according to the settings; several memories may share it."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from composable_memory.config.settings import MemorySettings
from composable_memory.interfaces import Clock
from composable_memory.state.folders import OPS_LOG_FOLDER, all_judged_elsewhere, feedback_stores
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs import OpsLog
from composable_memory_ops_logs.private_files import make_private_folder


def open_ops_log(memory: MemorySettings, *, state_dir: Path, clock: Clock) -> OpsLog:
    """Return the log; it writes nothing if switched off."""
    settings = memory.ops_log
    return OpsLog(
        state_dir / OPS_LOG_FOLDER if settings.enabled else None,
        clock=clock,
        retention_days=settings.retention_days,
        max_bytes=settings.max_size_mb * 1_000_000,
        judged=partial(judged_traces, state_dir),
        judged_days=memory.feedback.retention_days,
    )


def judged_traces(state_dir: Path) -> frozenset[str]:
    """Return the traces that have judgements in any memory of a state folder; the log keeps their lines.

    Raises:
        OSError: a store cannot be read, so they are unknown.
    """
    # Called in the log's thread, and only before it deletes something.
    from composable_memory_feedback.store.store import FeedbackStore

    traces: set[str] = set()
    for path in feedback_stores(state_dir):
        try:
            with FeedbackStore.open(path) as store:
                traces |= store.judged_traces()
        except FeedbackError as error:
            raise OSError(f"no log files are deleted: {error}") from error
    for path in all_judged_elsewhere(state_dir):
        traces |= {*path.read_text("ascii", errors="replace").split()}
    return frozenset(traces)


def keep_traces(file: Path, traces: Iterable[str]) -> None:
    """Add traces to a file that `judged_traces` reads, for judgements kept elsewhere.

    Raises:
        OSError: it cannot be written.
    """
    make_private_folder(file.parent)
    with open(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "wb") as kept:  # noqa: PTH123
        kept.write("".join(f"{trace}\n" for trace in traces).encode())
        kept.flush()
        os.fsync(kept.fileno())
