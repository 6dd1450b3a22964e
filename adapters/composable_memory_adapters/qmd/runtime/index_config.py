"""Reads and writes QMD's `index.yml`, which lists its collections, and keeps what others put there."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.qmd.settings import ModelSettings
from composable_memory_adapters.qmd.types import BACKEND_ID
from composable_memory_ops_logs.private_files import replace_file

Config = dict[str, object]

_CORE = "tag:yaml.org,2002:"


class _PlainWords(yaml.resolver.BaseResolver):
    """Types scalars as QMD does: in YAML 1.2, `no` and `12:30` are strings, and have to stay strings."""


for _kind, _pattern, _first in (
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", "true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", "[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _PlainWords.add_implicit_resolver(_CORE + _kind, re.compile(f"(?:{_pattern})$"), _first)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _PlainWords.yaml_implicit_resolvers


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _PlainWords.yaml_implicit_resolvers


def read_config(file: Path) -> Config:
    """Parse `file`; a missing or empty one counts as an empty mapping. Looks at the disk.

    Raises:
        BackendUnavailable: it cannot be read, or is not a YAML mapping.
    """
    try:
        config = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a SafeLoader
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise _unusable(file, str(error).partition("\n")[0]) from error
    except (AttributeError, LookupError) as error:  # what PyYAML raises for a tag that does not fit its value
        raise _unusable(file, "a tag in it does not fit its value") from error
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise _unusable(file, "it holds no keys and values")
    return config


def write_config(file: Path, config: Mapping[str, object]) -> None:
    """Replace `file` in one step, so that nobody reads half of it.

    Raises:
        OSError: it cannot be written.
    """
    text = yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)
    replace_file(file, text.encode(), survives="kill")


def mapping_at(config: Mapping[str, object], key: str, file: Path) -> Config:
    """Return the mapping under `key`, with its keys as strings; an empty one if there is nothing.

    Raises:
        BackendUnavailable: the value is not a mapping.
    """
    value = config.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _unusable(file, f"`{key}` holds no keys and values")
    return {str(name): item for name, item in value.items()}


def chosen_models(models: ModelSettings) -> dict[str, str]:
    """Return the models that the settings name, by role, with `~` expanded, which QMD does not do."""
    named: dict[str, str | None] = models.model_dump()
    expanded = os.path.expanduser  # leaves alone what it cannot expand, where that of a Path raises
    return {role: expanded(name) for role, name in named.items() if name}


def _unusable(file: Path, problem: str) -> BackendUnavailable:
    return BackendUnavailable(
        BACKEND_ID,
        f"its list of collections {file} cannot be used ({problem})",
        fix="mend that file, or remove it and it is written anew",
    )
