"""Regular expressions that are compiled when they are first used, since most texts need few of them."""

import re
from collections.abc import Callable, Iterator
from functools import cached_property


class Pattern:
    """A regular expression with the methods of `re.Pattern`.

    Importing all rules would take as long as a search if each compiled its own.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """Return what Python matches with."""
        return re.compile(self.source, self._flags)

    # Each is looked up once, so that a match costs no more than one of `re.Pattern`.

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        """Match at a place."""
        return self.compiled.match

    @cached_property
    def fullmatch(self) -> Callable[..., re.Match[str] | None]:
        """Match all from a place to the end."""
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
    def findall(self) -> Callable[..., list[str]]:
        """Find the texts of all matches."""
        return self.compiled.findall
