"""The sections of backends: two places for one of them, and what naming it says."""

from collections.abc import Collection

from composable_memory.config.settings import BackendSection, MemorySettings, Settings, is_taken
from composable_memory.config.trees import Leaf, Tree, join, origin_of
from composable_memory.config.validation import known_keys, unknown_key
from composable_memory.errors import ConfigError
from composable_memory.registry import Registry


def gather_sections(tree: Tree, installed: Collection[str]) -> Tree:
    """Return what one layer says under `memory` with the section of every backend in its own place.

    `backends.<id>` moves to `<id>` where such a backend is installed. A section that stood under `backends`
    counts as enabled unless some layer says otherwise.

    Raises:
        ConfigError: a key is given in both places.
    """
    listed = tree.get("backends")
    if not isinstance(listed, dict):
        return tree
    gathered = {name: item for name, item in tree.items() if name != "backends"}
    for name, section in listed.items():
        section = _counted_as_enabled(section)
        if name in installed:
            gathered[name] = _joined(gathered.get(name), section, name)
        else:
            others = gathered.setdefault("backends", {})
            assert isinstance(others, dict)
            others[name] = section
    return gathered


def ids_of_sections(registry: Registry) -> tuple[str, ...]:
    """Return the ids of the installed backends whose section stands under `memory` itself."""
    return tuple(id_ for id_ in registry.backends.ids if not is_taken(id_))


def check_sections(tree: Tree, registry: Registry) -> list[str]:
    """Return all keys that are known with the installed backends, once each section of `tree` is among them.

    Raises:
        ConfigError: a section is unknown.
    """
    ids = ids_of_sections(registry)
    shared = (key for id_ in ids for key in (f"memory.{id_}", *known_keys(BackendSection, f"memory.{id_}")))
    known = [*known_keys(Settings), *shared]
    for name, item in tree.items():
        if name not in ids and name not in MemorySettings.model_fields:
            raise unknown_key(f"memory.{name}", known, origin_of(item))
    return known


def _counted_as_enabled(section: Tree | Leaf) -> Tree | Leaf:
    if isinstance(section, Leaf) and not section.is_empty:
        return section  # no section at all; the check says so
    keys = section if isinstance(section, dict) else {}
    return {"enabled": Leaf(value=True, origin=origin_of(section), is_implied=True), **keys}


def _joined(own: Tree | Leaf | None, listed: Tree | Leaf, key: str) -> Tree | Leaf:
    """Return what the place of its own and the place under `backends` say together."""
    if own is None or (isinstance(own, Leaf) and own.is_empty):
        return listed
    if isinstance(listed, Leaf) and (listed.is_empty or listed.is_implied):
        return own
    if isinstance(own, dict) and isinstance(listed, dict):
        return own | {name: _joined(own.get(name), item, join(key, name)) for name, item in listed.items()}
    problem = f"set as memory.backends.{key} as well ({origin_of(listed)}); keep one of them"
    raise ConfigError(f"memory.{key}", problem, origin=str(origin_of(own)))
