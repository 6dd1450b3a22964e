"""HTML and SVG built from elements, which escape their content; charts, and the frame of pages (pure)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources

VOID = frozenset({"br", "hr", "input", "link", "meta"})
UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Includes characters that change the text direction around them, and lone surrogates."""

HEIGHT = 100.0
COLOURS = 6


class Markup(str):
    """Text that is already markup."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
"""Text is escaped, markup is not; None is skipped."""


def el(tag: str, *children: Child, **attributes: object) -> Markup:
    """Return an element: `el("a", "Notes", href=url, class_="here", aria_current=None)`.

    An attribute that is None or False is left out; True has no value. `data_path` becomes `data-path`.
    """
    given = "".join(_attribute(name, value) for name, value in attributes.items())
    end = "" if tag in VOID else f"{join(children)}</{tag}>"
    return Markup(f"<{tag}{given}>{end}")


def join(children: Child) -> Markup:
    """Return children as one piece of markup."""
    if children is None:
        return Markup()
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(escape(UNPRINTABLE.sub("\ufffd", str(children))))
    return Markup("".join(map(join, children)))


def page(title: str, body: Child, *, head: Child = None) -> str:
    """Return a whole page."""
    return "<!DOCTYPE html>\n" + el(
        "html",
        el(
            "head",
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("meta", name="color-scheme", content="light dark"),
            el("title", title),
            head,
        ),
        el("body", body),
        lang="en",
    )


def asset(name: str) -> str:
    """Return a style sheet or script of the inspector. Reads a file."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    named = name.rstrip("_").replace("_", "-")
    text = "" if value is True else f'="{join(str(value))}"'
    return f" {named}{text}"


def line_chart(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    ends: tuple[str, str],
    most: float,
) -> Markup:
    """Return lines over a common time axis with values from 0 to `most`; times are fractions from 0 to 1."""
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
    ends = [(places[0][0] + 2, places[0][1])] if len(places) == 1 else []  # a single point would be invisible
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places + ends)
