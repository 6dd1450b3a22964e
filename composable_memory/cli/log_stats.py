"""How fast the logged answers were, and how many failed, by backend."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import quantiles

from composable_memory.cli.output import can_draw
from composable_memory.cli.render import print_table, sparkline
from composable_memory_ops_logs import OpsEvent
from composable_memory_ops_logs.quick_dataclass import dataclass

TOGETHER = "all together"
CELLS = 30
"""Into how many parts the time is divided for the medians."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """How often a backend was asked, how long it took, and how often it failed or was degraded.

    Times are in milliseconds. `course` are the medians of equal parts of its queries, oldest first.
    """

    backend: str
    queries: int
    failed: float
    degraded: float
    p50_ms: float
    p95_ms: float
    course: tuple[float, ...]


def statistics(events: Iterable[OpsEvent]) -> list[Statistics]:
    """Return the statistics of each backend by id, followed by those of the merged answers.

    `events` are of `query.backend_result` and `query.merged`, newest first.
    """
    took: defaultdict[str, list[float]] = defaultdict(list)
    how: defaultdict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.duration_ms is not None:
            name = event.backend or TOGETHER
            took[name].append(event.duration_ms)
            how[name].append(event.status)
    names = sorted(took, key=lambda one: (one == TOGETHER, one))
    return [_of(name, took[name][::-1], how[name]) for name in names]


def _of(name: str, took: list[float], how: list[str]) -> Statistics:
    cuts = quantiles(took, n=20, method="inclusive") if len(took) > 1 else took * 19
    step = -(-len(took) // CELLS)
    parts = [sorted(took[at : at + step]) for at in range(0, len(took), step)]
    return Statistics(
        backend=name,
        queries=len(took),
        failed=how.count("failure") / len(how),
        degraded=how.count("partial") / len(how),
        p50_ms=round(cuts[9], 1),
        p95_ms=round(cuts[18], 1),
        course=tuple(round(part[len(part) // 2], 1) for part in parts),
    )


def print_statistics(found: list[Statistics]) -> None:
    """Print a line for each backend."""
    print_table(
        [
            (
                one.backend,
                str(one.queries),
                f"{one.p50_ms:.1f} ms",
                f"{one.p95_ms:.1f} ms",
                f"{one.failed:.1%}",
                f"{one.degraded:.1%}",
                sparkline(one.course, 0.0, max(one.course)) if can_draw() else "",
            )
            for one in found
        ],
        head=("", "queries", "median", "95 %", "failed", "degraded", "over time"),
        right=(1, 2, 3, 4, 5),
    )
