"""The names of a package that are imported when they are first asked for."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, given for its modules the names to take from each.

    Define them `if not TYPE_CHECKING`: a type checker would take them for a promise of any name.
    """
    homes = {name: module for module, names in modules.items() for name in names.split()}

    def getattr_(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        module = vars(sys.modules[package])
        return sorted({*module, *module["__all__"]})

    return getattr_, dir_
