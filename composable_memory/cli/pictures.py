"""Draws charts into a file, PNG or SVG, with matplotlib, which is only imported here, and only on demand.

The same charts give the same SVG, byte for byte.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from composable_memory.cli.charts import DAY, Chart, Series, colour_numbers
from composable_memory_feedback.errors import FeedbackError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg")
"""The supported file endings."""

INSTALL = "pip install 'composable-memory[plots]'"
WIDTH = 9.0
HEIGHT = 2.6
"""Height of one chart, in inches."""
ROOM_FOR_MARKS = 0.14
"""How much of the height of a chart is free above its values."""
MARK_WIDTH = 0.07
"""How much of the width of a chart the label of a mark may take."""
COLOURS = ("#2563eb", "#059669", "#c026d3", "#d97706", "#dc2626", "#0891b2", "#64748b")
LOOK = {
    "axes.edgecolor": "#94a3b8",
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "axes.titleweight": "bold",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "grid.color": "#e2e8f0",
    "legend.frameon": False,
    # Keep text as text in an SVG: it can be searched for, and does not depend on the fonts of this machine.
    "svg.fonttype": "none",
    # Without a fixed salt every file would have different ids.
    "svg.hashsalt": "composable-memory",
    "text.parse_math": False,
}


def write_picture(charts: Sequence[Chart], path: Path) -> None:
    """Draw the charts below each other into a file; its suffix, one of `SUFFIXES`, is the format. Blocks.

    Raises:
        FeedbackError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FeedbackError("plotting needs matplotlib", subject=str(path), advice=f"`{INSTALL}`") from error
    numbers = colour_numbers(charts)
    kind = path.suffix.lower().removeprefix(".")
    # The user's own matplotlib settings must not change what a chart says, or its bytes.
    with style.context(LOOK, after_reset=True):
        figure = Figure(figsize=(WIDTH, HEIGHT * len(charts)), layout="constrained")
        for axes, chart in zip(figure.subplots(len(charts), squeeze=False).flat, charts, strict=True):
            _draw(axes, chart, numbers)
        dated = {"Date": None, "Creator": "composable-memory"} if kind == "svg" else {"Software": None}
        try:
            figure.savefig(path, format=kind, dpi=144, metadata=dated)
        except OSError as error:
            reason = error.strerror or "it cannot be written"
            raise FeedbackError(
                "the picture was not written", subject=str(path), advice=f"{reason}; name another file"
            ) from error


def _draw(axes: "Axes", chart: Chart, numbers: Mapping[str, int]) -> None:
    axes.set_title(chart.title)
    axes.set_ylabel(chart.unit)
    axes.set_xlim(_number(chart.start), max(_number(chart.end), _number(chart.start) + 1e-3))
    axes.xaxis_date("UTC")
    axes.set_ylim(-0.03, 1.0 + ROOM_FOR_MARKS)
    for number, series in enumerate(chart.series):
        colour = COLOURS[numbers[series.name] % len(COLOURS)]
        if chart.course == "steps":
            # Wider below, so that equal values are visible at their edges.
            _draw_steps(axes, chart, series, colour, width=max(1.4, 3.2 - 0.7 * number))
        else:
            _draw_days(axes, chart, series, colour)
    _draw_marks(axes, chart)
    if chart.series:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if chart.note:
        axes.set_xlabel(chart.note, loc="left", color="#64748b")


def _draw_steps(axes: "Axes", chart: Chart, series: Series, colour: str, *, width: float) -> None:
    """Draw values that hold until the next one."""
    times = [*(_number(one.at) for one in series.points), _number(chart.end)]
    values = [*(one.value for one in series.points), series.points[-1].value]
    axes.step(times, values, where="post", color=colour, label=series.name, linewidth=width)


def _draw_days(axes: "Axes", chart: Chart, series: Series, colour: str) -> None:
    """Draw values of single days, each at noon, or as close to it as the chart reaches."""
    times = [_number(min(max(one.at + DAY / 2, chart.start), chart.end)) for one in series.points]
    values = [one.value for one in series.points]
    axes.plot(
        times, values, color=colour, label=series.name, marker="o", markersize=3.5, linewidth=1.2,
        clip_on=False,  # so that today's is complete at the edge
    )  # fmt: skip


def _draw_marks(axes: "Axes", chart: Chart) -> None:
    """Draw a line for each mark, and the labels for which there is room, latest first."""
    start, width = _number(chart.start), max(_number(chart.end) - _number(chart.start), 1e-3)
    free = 1.0
    for mark in reversed(chart.marks):
        axes.axvline(_number(mark.at), color="#94a3b8", linewidth=0.8, linestyle=":")
        place = (_number(mark.at) - start) / width
        is_left = place + MARK_WIDTH > 1.0
        if place + (0.0 if is_left else MARK_WIDTH) <= free:
            free = place - (MARK_WIDTH if is_left else 0.0)
            axes.annotate(
                mark.text, (_number(mark.at), 1.0), xycoords=("data", "axes fraction"),
                xytext=(-2 if is_left else 2, -9), textcoords="offset points",
                horizontalalignment="right" if is_left else "left", color="#64748b", fontsize="small",
            )  # fmt: skip


def _number(moment: datetime) -> float:
    """Return a moment in matplotlib's unit: days since 1970, UTC."""
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) / DAY
