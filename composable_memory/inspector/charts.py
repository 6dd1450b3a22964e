"""Charts as SVG that fill whatever width there is; their words stand beside them as HTML (pure)."""

from collections.abc import Mapping, Sequence

from composable_memory.inspector.markup import Child, Markup, el

HEIGHT = 100.0
COLOURS = 6

Points = Sequence[tuple[float, float]]
"""Where in time, from 0 to 1, and a value, in the order of time."""


def line_chart(
    title: str,
    series: Mapping[str, Points],
    *,
    ends: tuple[str, str],
    most: float | None = None,
    steps: bool = False,
) -> Markup:
    """Return lines over the same time, of values from 0 to the largest, or to `most`.

    With `steps` a value holds until the next one, and the last one to the end.
    """
    highest = most or max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    lines = [_line(points, highest, number, steps=steps) for number, points in enumerate(series.values())]
    grid = [el("path", d=f"M0 {y} H1000", class_="grid") for y in (0, HEIGHT / 2, HEIGHT)]
    legend = [el("li", name, class_=f"k{number % COLOURS}") for number, name in enumerate(series)]
    drawn = el(
        "svg", grid, lines, role="img", aria_label=_said(title, series), class_="chart",
        viewBox=f"0 -2 1000 {HEIGHT + 4:g}", preserveAspectRatio="none",
    )  # fmt: skip
    caption = el("figcaption", el("strong", title))
    time = el("div", [el("span", one) for one in ends], class_="ends soft")
    return el("figure", caption, drawn, time, el("ul", legend, class_="legend"))


def _line(points: Points, highest: float, number: int, *, steps: bool) -> Child:
    if not points:
        return None
    places = [(1000 * at, HEIGHT * (1 - min(value / highest, 1.0))) for at, value in points]
    begin = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    if steps:
        path = begin + "".join(f" H{x:.1f} V{y:.1f}" for x, y in places[1:]) + " H1000"
    else:
        path = (
            begin + "".join(f" L{x:.1f} {y:.1f}" for x, y in places[1:]) + (" h2" if len(places) == 1 else "")
        )
    return el("path", d=path, class_=f"line k{number % COLOURS}")


def _said(title: str, series: Mapping[str, Points]) -> str:
    last = (f"{name} last {points[-1][1]:.3g}" for name, points in series.items() if points)
    return f"{title}: {', '.join(last) or 'nothing yet'}"
