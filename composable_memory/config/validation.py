"""Validates settings, and explains what is wrong: which key, where it was set, the nearest known key."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from composable_memory.config.settings import BackendSection, MemorySettings, Settings, is_taken
from composable_memory.config.trees import Leaf, Tree, join, origin_of
from composable_memory.errors import ConfigError
from composable_memory.registry import Registry
from composable_memory_ops_logs import redact

ModelT = TypeVar("ModelT", bound=BaseModel)

_SECRET = re.compile(r"(?:^|[_-])(?:api[_-]?key|token|password|secret|authorization|cookie)$", re.IGNORECASE)


_SHAPES = {
    "tuple_type": "expected a list",
    "dict_type": "expected keys and values",
    "model_type": "expected keys and values",
}
"""pydantic's type names, translated for people who write settings files."""

_REMOVED = ("memory.feedback.shadow_queries",)


def is_secret(name: str) -> bool:
    """Return whether the value of a key with this last part must never be shown."""
    return _SECRET.search(name) is not None


def hides(name: str) -> bool:
    """Return whether everything below a key with this last part must be hidden."""
    return name == "headers" or is_secret(name)


def hide(value: object, *, hidden: bool) -> object:
    """Return a value of a settings file with all secrets in it hidden."""
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
    """Validate plain data at the dotted `key` and return a model.

    `origins` maps dotted keys to where they were set. `also_known` are further keys to suggest in place of an
    unknown one. The model's `REMOVED` lists keys of earlier versions.

    Raises:
        ConfigError: a key is unknown or its value is out of range; the first problem is explained, others
        named.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        known = [*known_keys(model, key), *also_known]
        removed = [*_REMOVED, *(f"{key}.{name}" for name in getattr(model, "REMOVED", ()))]
        raise _translate(error.errors(include_url=False), key, origins or {}, known, removed) from error


def unknown_key(key: str, known: Iterable[str], origin: object | None = None) -> ConfigError:
    """Return the error for a key that is not in `known`, suggesting the nearest."""
    place = None if origin is None else str(origin)
    return ConfigError(key, "unknown key", origin=place, nearest=_nearest(key, list(known)))


def _translate(
    errors: list[ErrorDetails],
    prefix: str,
    origins: Mapping[str, object],
    known: Iterable[str],
    removed: Iterable[str],
) -> ConfigError:
    first, *others = dict.fromkeys(_dotted(prefix, error["loc"]) for error in errors)
    problem = _problem(errors[0])
    if others:
        problem += f" (also wrong: {', '.join(others)})"
    unknown = errors[0]["type"] == "extra_forbidden"
    if unknown and first in removed:
        problem, unknown = "this setting was removed; delete it", False
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
    shown = redact(given) if isinstance(given, str) else given  # a URL may contain a password
    return f"{message}; it is {shown!r}"[:300]


def _origin(key: str, origins: Mapping[str, object], *, inside: bool) -> object | None:
    """Return the origin of `key`, of the list that contains it, or of the first value `inside` it."""
    if inside and key not in origins:
        return next((origin for each, origin in origins.items() if each.startswith(f"{key}.")), None)
    while key and key not in origins:
        key = key.rpartition(".")[0]
    return origins.get(key)


def _nearest(key: str, known: Iterable[str]) -> str | None:
    """Return the most similar known key beside `key`, or one elsewhere with nearly the same name."""
    sections = {each.rsplit(".", depth)[0] for each in known for depth in range(each.count(".") + 1)}
    parent, _, name = key.rpartition(".")
    beside = {each.rpartition(".")[2]: each for each in sections if each.rpartition(".")[0] == parent}
    anywhere = {each.rpartition(".")[2]: each for each in sorted(sections)}
    for names, cutoff in ((beside, 0.6), (anywhere, 0.8)):
        if found := difflib.get_close_matches(name, names, n=1, cutoff=cutoff):
            return names[found[0]]
    return None


def _model_within(annotation: object) -> type[BaseModel] | None:
    """Return the model of a field, whether direct, optional, or the value of a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_within, get_args(annotation))), None)


def place_sections(tree: Tree, installed: Collection[str]) -> Tree:
    """Return a layer's `memory` section with the section of every backend in its own place.

    `backends.<id>` moves to `<id>` if such a backend is installed. A section found under `backends` counts as
    enabled unless some layer says otherwise.

    Raises:
        ConfigError: a key is given in both places.
    """
    listed = tree.get("backends")
    if not isinstance(listed, dict):
        return tree
    gathered = {name: item for name, item in tree.items() if name != "backends"}
    for name, section in listed.items():
        section = _enabled_by_default(section)
        if name in installed:
            gathered[name] = _joined(gathered.get(name), section, name)
        else:
            others = gathered.setdefault("backends", {})
            assert isinstance(others, dict)
            others[name] = section
    return gathered


def ids_of_sections(registry: Registry) -> tuple[str, ...]:
    """Return the ids of the installed backends whose section is directly under `memory`."""
    return tuple(id_ for id_ in registry.backends.ids if not is_taken(id_))


def check_sections(tree: Tree, registry: Registry) -> None:
    """Check that each section of `tree` belongs to an installed backend.

    Raises:
        ConfigError: one does not.
    """
    ids = ids_of_sections(registry)
    for name, item in tree.items():
        if name not in ids and name not in MemorySettings.model_fields:
            raise unknown_key(f"memory.{name}", all_known_keys(registry), origin_of(item))


def all_known_keys(registry: Registry) -> Iterator[str]:
    """Yield all keys known to the core and the installed backends."""
    yield from known_keys(Settings)
    for id_ in ids_of_sections(registry):
        yield from (f"memory.{id_}", *known_keys(BackendSection, f"memory.{id_}"))


def _enabled_by_default(section: Tree | Leaf) -> Tree | Leaf:
    if isinstance(section, Leaf) and not section.is_empty:
        return section  # not a section; validation will report it
    keys = section if isinstance(section, dict) else {}
    return {"enabled": Leaf(value=True, origin=origin_of(section), is_implied=True), **keys}


def _joined(own: Tree | Leaf | None, listed: Tree | Leaf, key: str) -> Tree | Leaf:
    """Combine the section at its own place with the one under `backends`."""
    if own is None or (isinstance(own, Leaf) and own.is_empty):
        return listed
    if isinstance(listed, Leaf) and (listed.is_empty or listed.is_implied):
        return own
    if isinstance(own, dict) and isinstance(listed, dict):
        return own | {name: _joined(own.get(name), item, join(key, name)) for name, item in listed.items()}
    problem = f"also set as memory.backends.{key} ({origin_of(listed)}); keep one of them"
    raise ConfigError(f"memory.{key}", problem, origin=str(origin_of(own)))
