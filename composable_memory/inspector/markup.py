"""HTML and SVG that are escaped because they are made of elements, and the frame of every page (pure)."""

import re
from collections.abc import Iterable
from html import escape
from importlib import resources

VOID = frozenset({"br", "hr", "input", "link", "meta"})
UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Also what turns the direction of the text around it, and halves of characters."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | float | None | Iterable["Child"]
"""Text is escaped, markup is not; None is nothing."""


def el(tag: str, *children: Child, **attributes: object) -> Markup:
    """Return an element: `el("a", "Notes", href=url, class_="here", aria_current=None)`.

    An attribute that is None or False is left out; True has no value. `data_path` is `data-path`.
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
    """Return a style sheet or a script of the inspector. Reads a file."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    named = name.rstrip("_").replace("_", "-")
    text = "" if value is True else f'="{join(str(value))}"'
    return f" {named}{text}"
