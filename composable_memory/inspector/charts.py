"""Charts as SVG that fill whatever width there is; their words stand beside them as HTML (pure)."""

from collections.abc import Mapping, Sequence

from composable_memory.inspector.markup import Markup, el

HEIGHT = 100.0
COLOURS = 6


def line_chart(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    ends: tuple[str, str],
    most: float,
) -> Markup:
    """Return lines over the same time, which go from 0 to `most`: places in it, from 0 to 1, and values."""
    lines = [
        el("polyline", points=_points(points, most), class_=f"line k{number % COLOURS}")
        for number, points in enumerate(series.values())
    ]
    grid = [el("path", d=f"M0 {y} H1000", class_="grid") for y in (0, HEIGHT / 2, HEIGHT)]
    legend = [el("li", name, class_=f"k{number % COLOURS}") for number, name in enumerate(series)]
    last = ", ".join(f"{name} last {points[-1][1]:.3g}" for name, points in series.items() if points)
    drawn = el(
        "svg", grid, lines, role="img", aria_label=f"{title}: {last}", class_="chart",
        viewBox=f"0 -2 1000 {HEIGHT + 4:g}", preserveAspectRatio="none",
    )  # fmt: skip
    caption = el("figcaption", el("strong", title))
    time = el("div", [el("span", one) for one in ends], class_="ends soft")
    return el("figure", caption, drawn, time, el("ul", legend, class_="legend"))


def _points(points: Sequence[tuple[float, float]], most: float) -> str:
    places = [(1000 * at, HEIGHT * (1 - min(value / most, 1.0))) for at, value in points]
    ends = [(places[0][0] + 2, places[0][1])] if len(places) == 1 else []  # a point alone would not be seen
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places + ends)
