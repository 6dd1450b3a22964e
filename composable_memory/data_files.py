"""Words, patterns and settings that are data: TOML files beside the module that uses them."""

import tomllib
from importlib import resources
from typing import Any


def tables(package: str | None, name: str) -> dict[str, Any]:
    """Return what the file `name` of a package holds; a module gives its `__package__`. Reads a file."""
    return tomllib.loads(resources.files(package or "").joinpath(name).read_text(encoding="utf-8"))
