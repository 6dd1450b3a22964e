"""The pages of the reference made from the code: events of the log, errors, tools, the Python API."""

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import composable_memory
from composable_memory import errors
from composable_memory.json_documents import json_name
from composable_memory.tools.catalogue import TOOLS
from composable_memory_feedback import errors as feedback_errors
from composable_memory_ops_logs import errors as log_errors
from composable_memory_ops_logs import events, ingest_events, learning_events, sync_events

WIDTH = 90  # up to this many characters a signature stands on one line


def pages() -> dict[str, str]:
    """Return the text of each generated page by its place on the site."""
    made = {"events": _events(), "errors": _errors(), "tools": _tools(), "api": _api()}
    return {f"reference/{name}.md": "\n\n".join(parts) + "\n" for name, parts in made.items()}


def _table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    cells = [tuple(head.split(", ")), *rows]
    lines = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([lines[0], "|---" * len(cells[0]) + "|", *lines[1:]])


def _text(thing: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _fields(cls: Any, named: Callable[[str], str] = json_name) -> str:
    """Return a table of the fields of a dataclass, with the text below each in the source."""
    body: Any = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    texts = {
        getattr(field.target, "id", ""): " ".join(str(text.value.value).split())
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    rows = [
        (f"`{named(one.name)}`", f"`{_type_name(one.type).replace(' | ', ' or ')}`", texts.get(one.name, ""))
        for one in dataclasses.fields(cls)
    ]
    return _table("Name, Type, Meaning", rows) if rows else "It has no additional fields."


def _type_name(annotation: object) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = re.sub(r"ForwardRef\('([^']+)'[^)]*\)", r"\1", text).replace(f"'{events.JsonValue}'", "JSON")
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=\w)", "", text).replace("NoneType", "None")


def _own(modules: Iterable[Any]) -> list[Any]:
    """Return the classes that modules define, in the order of the source."""
    found = [(module.__name__, one) for module in modules for one in vars(module).values()]
    return [one for home, one in found if inspect.isclass(one) and one.__module__ == home]


def _events() -> Iterator[str]:
    yield (
        "# Events of the ops log\n\nEach line is one event, in JSON. `cmem logs tail` shows the latest, "
        "`cmem logs show TRACE_ID --json` all of one query. Unset fields are left out. "
        f"The version of the format is {events.SCHEMA_VERSION}."
    )
    found = [
        one
        for one in _own([events, sync_events, ingest_events, learning_events])
        if dataclasses.is_dataclass(one)
    ]
    yield from ("## Every event", _fields(events.OpsEvent))
    for one in found:
        if issubclass(one, events.EventDetail):
            yield from (f"## {one.action}", _text(one), _fields(one))
    yield "## Values in them"
    for one in found:
        if not issubclass(one, events.EventDetail | events.OpsEvent):
            yield from (f"### {one.__name__}", _text(one), _fields(one))


def _errors() -> Iterator[str]:
    yield (
        "# Errors\n\nAll errors that the library raises on purpose. A message says what failed, which thing, "
        "and what to do next; the command line prints it after `Error:`. `FeedbackError` is in "
        "`composable_memory_feedback`, `OpsLogError` in `composable_memory_ops_logs`, all others are in "
        "`composable_memory.errors`."
    )
    rows = []
    for cls in _own([errors, feedback_errors, log_errors]):
        made_from = inspect.signature(cls.__init__).parameters.keys() - {"self", "args", "kwargs"}
        bases = ", ".join(f"`{base.__name__}`" for base in cls.__bases__)
        rows.append(
            (f"`{cls.__name__}`", _text(cls), bases, ", ".join(f"`{one}`" for one in sorted(made_from)))
        )
    yield _table("Class, Meaning, Is a, Made from", rows)


def _tools() -> Iterator[str]:
    yield "# Tools of an agent\n\nWhat the MCP server and the integrations with agent frameworks offer."
    for tool in TOOLS:
        kinds = {"writes": tool.writes, "deletes": tool.destroys, "quotes notes": tool.quotes}
        yield f"## {tool.name}"
        yield f"{tool.title}: {', '.join(kind for kind, is_so in kinds.items() if is_so) or 'only reads'}."
        yield tool.description
        required = tool.input_schema.get("required", ())
        arguments = tool.input_schema["properties"].items()
        yield _table(
            "Argument, Type, Meaning",
            (
                (f"`{name}`{' (required)' if name in required else ''}", *_argument(one))
                for name, one in arguments
            ),
        )


def _argument(one: dict[str, Any]) -> tuple[str, str]:
    limits = " ".join(
        f"{word} {one[key]:g}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in one
    )
    values = ", ".join(f"`{value}`" for value in one.get("enum", ()))
    return f"`{one.get('type', 'string')}`", "; ".join(filter(None, (one.get("description"), values, limits)))


def _api() -> Iterator[str]:
    yield "# Python API\n\nWhat `composable_memory` exports. Everything else may change with any version."
    for name in composable_memory.__all__:
        thing = getattr(composable_memory, name)
        if callable(thing):
            yield from (f"## {name}", _text(thing))
            yield from _class(thing) if inspect.isclass(thing) else [_code(name, thing)]


def _class(cls: Any) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield _table("Member, Value", [(f"`{one.name}`", f"`{one.value}`") for one in cls])
    elif dataclasses.is_dataclass(cls):
        yield _fields(cls, str)
    for name, one in vars(cls).items():
        called = getattr(one, "__func__", one)
        if inspect.isfunction(called) and not name.startswith("_") and _text(called):
            yield from (_code(name, called), _text(called))


def _code(name: str, called: Any) -> str:
    word = "async def" if inspect.iscoroutinefunction(called) else "def"
    whole = inspect.signature(called)
    taken = [one for one in whole.parameters.values() if one.name not in {"self", "cls"}]
    rows = [_type_name(one) for one in taken]
    named_only = [number for number, one in enumerate(taken) if one.kind is one.KEYWORD_ONLY]
    if named_only:
        rows.insert(named_only[0], "*")
    returns = "" if whole.return_annotation is whole.empty else f" -> {_type_name(whole.return_annotation)}"
    line = f"{word} {name}({', '.join(rows)}){returns}"
    if len(line) > WIDTH:
        line = f"{word} {name}(\n" + "".join(f"    {row},\n" for row in rows) + f"){returns}"
    return f"```python\n{line}\n```"
