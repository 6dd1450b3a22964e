"""Words, patterns and settings kept as data: TOML files beside the module that uses them."""

import tomllib
from importlib import resources
from typing import Any


def tables(package: str | None, name: str) -> dict[str, Any]:
    """Return the content of file `name` in a package; a module passes its `__package__`. Reads a file."""
    return tomllib.loads(resources.files(package or "").joinpath(name).read_text(encoding="utf-8"))
