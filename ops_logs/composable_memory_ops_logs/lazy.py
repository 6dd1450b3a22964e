"""Things that are created on first use: the names of a package, and regular expressions."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, from a mapping of its modules to their names.

    Define them `if not TYPE_CHECKING`: otherwise a type checker would accept any name.
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


class Pattern:
    """A regular expression with the methods of `re.Pattern`, compiled on first use.

    Compiling all rules at import would take as long as a search.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """Return the compiled pattern."""
        return re.compile(self.source, self._flags)

    # Each method is looked up only once, so that a match costs no more than with `re.Pattern`.

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        """Match at a position."""
        return self.compiled.match

    @cached_property
    def fullmatch(self) -> Callable[..., re.Match[str] | None]:
        """Match everything from a position to the end."""
        return self.compiled.fullmatch

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Find the first match."""
        return self.compiled.search

    @cached_property
    def finditer(self) -> Callable[..., Iterator[re.Match[str]]]:
        """Find all matches."""
        return self.compiled.finditer

    @cached_property
    def findall(self) -> Callable[..., list[Any]]:
        """Find the texts of all matches, or of their groups."""
        return self.compiled.findall

    @cached_property
    def split(self) -> Callable[..., list[str | Any]]:
        """Split at all matches."""
        return self.compiled.split

    @cached_property
    def sub(self) -> Callable[..., str]:
        """Replace all matches."""
        return self.compiled.sub
