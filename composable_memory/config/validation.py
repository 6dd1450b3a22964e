"""Validates settings, and explains what is wrong: which key, where it was set, the nearest known key."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from composable_memory.errors import ConfigError
from composable_memory_ops_logs import redact

ModelT = TypeVar("ModelT", bound=BaseModel)

_SECRET = re.compile(r"(?:^|[_-])(?:api[_-]?key|token|password|secret|authorization|cookie)$", re.IGNORECASE)

_SHAPES = {
    "tuple_type": "expected a list",
    "dict_type": "expected keys and values",
    "model_type": "expected keys and values",
}
"""What pydantic says in terms of Python, said in terms of a settings file."""

_REMOVED = {"memory.feedback.shadow_queries": "this setting was removed; delete it"}


def is_secret(name: str) -> bool:
    """Return whether the value of a key with this last part is never to be shown."""
    return _SECRET.search(name) is not None


def hides(name: str) -> bool:
    """Return whether nothing below a key with this last part is to be shown."""
    return name == "headers" or is_secret(name)


def hide(value: object, *, hidden: bool) -> object:
    """Return a value of a settings file with its secrets hidden, wherever in it they are."""
    match value:
        case dict():
            return {name: hide(item, hidden=hidden or hides(name)) for name, item in value.items()}
        case list():
            return [hide(item, hidden=hidden) for item in value]
        case str() | int() | float() if hidden:
            return SecretStr(str(value))
    return value


def known_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted keys of a model's values; `<id>` stands for the keys of a mapping."""
    keys: list[str] = []
    for name, info in model.model_fields.items():
        key = f"{prefix}.{name.rstrip('_')}".lstrip(".")
        part = _model_within(info.annotation)
        keys += [key] if part is None else known_keys(part, key if part is info.annotation else f"{key}.<id>")
    return keys


def check(
    model: type[ModelT],
    data: object,
    *,
    key: str = "",
    origins: Mapping[str, object] | None = None,
    also_known: Iterable[str] = (),
) -> ModelT:
    """Make a model of plain data that stands under the dotted `key`.

    `origins` tells by dotted key where a value was set. `also_known` are keys that count when the nearest key
    to an unknown one is looked for.

    Raises:
        ConfigError: a key is unknown or its value is out of range; the first is explained, the others named.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        known = [*known_keys(model, key), *also_known]
        raise _translated(error.errors(include_url=False), key, origins or {}, known) from error


def unknown_key(key: str, known: Iterable[str], origin: object | None = None) -> ConfigError:
    """Return the error of a key that is not one of those `known`, with the nearest of them."""
    place = None if origin is None else str(origin)
    return ConfigError(key, "unknown key", origin=place, nearest=_nearest(key, list(known)))


def _translated(
    errors: list[ErrorDetails], prefix: str, origins: Mapping[str, object], known: Iterable[str]
) -> ConfigError:
    first, *others = dict.fromkeys(_dotted(prefix, error["loc"]) for error in errors)
    problem = _problem(errors[0])
    if others:
        problem += f" (also wrong: {', '.join(others)})"
    unknown = errors[0]["type"] == "extra_forbidden"
    if unknown and first in _REMOVED:
        problem, unknown = _REMOVED[first], False
    origin = _origin(first, origins, inside=unknown)
    return ConfigError(
        first,
        problem,
        origin=None if origin is None else str(origin),
        nearest=_nearest(first, known) if unknown else None,
    )


def _dotted(prefix: str, loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in ((prefix, *loc) if prefix else loc) if part != "[key]")


def _problem(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown key"
    message = _SHAPES.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    given = error["input"]
    hidden = not isinstance(given, bool | int | float | str) or any(is_secret(str(p)) for p in error["loc"])
    if hidden:
        return message
    shown = redact(given) if isinstance(given, str) else given  # an address may hold a password
    return f"{message}; it is {shown!r}"[:300]


def _origin(key: str, origins: Mapping[str, object], *, inside: bool) -> object | None:
    """Return the origin of `key`, of the list that holds it, or of the first value `inside` it."""
    if inside and key not in origins:
        return next((origin for each, origin in origins.items() if each.startswith(f"{key}.")), None)
    while key and key not in origins:
        key = key.rpartition(".")[0]
    return origins.get(key)


def _nearest(key: str, known: Iterable[str]) -> str | None:
    """Return the known key beside `key` with the most similar name, or one elsewhere with nearly the same."""
    sections = {each.rsplit(".", depth)[0] for each in known for depth in range(each.count(".") + 1)}
    parent, _, name = key.rpartition(".")
    beside = {each.rpartition(".")[2]: each for each in sections if each.rpartition(".")[0] == parent}
    anywhere = {each.rpartition(".")[2]: each for each in sorted(sections)}
    for names, cutoff in ((beside, 0.6), (anywhere, 0.8)):
        if found := difflib.get_close_matches(name, names, n=1, cutoff=cutoff):
            return names[found[0]]
    return None


def _model_within(annotation: object) -> type[BaseModel] | None:
    """Return the model that a field holds, be it directly, optionally, or as the value of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_within, get_args(annotation))), None)
