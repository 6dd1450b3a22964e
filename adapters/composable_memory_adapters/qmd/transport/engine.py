"""Asks QMD in the quickest way that works: its daemon or mcporter first, a process for the question else."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from composable_memory.errors import BackendError, BackendTimeout
from composable_memory_adapters.qmd.values import Hit, Searcher, SearchRequest

__all__ = ["Engine", "Found", "QuickWay", "Way"]

Way = Literal["daemon", "mcporter", "process"]
"""Through whom QMD was asked."""

QUICK_SHARE = 0.5
"""Of the time for a question, what the quick way gets before a process is started for the rest of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickWay:
    """A way that answers in milliseconds when it is up; `is_up` says so without asking anybody."""

    name: Way
    searcher: Searcher
    is_up: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What QMD found, by which way, and why the quick one failed if it was tried and did."""

    hits: Sequence[Hit]
    way: Way
    detour: BackendError | None = None


class Engine:
    """Knows the ways to ask, and goes from one to the next within one deadline."""

    def __init__(self, process: Searcher, *, quick: QuickWay | None = None) -> None:
        self._process = process
        self._quick = quick
        self._detour: BackendError | None = None

    @property
    def way(self) -> Way:
        """Return the way that the next question takes, as far as is known."""
        is_quick = self._quick is not None and self._detour is None and self._quick.is_up()
        return self._quick.name if self._quick is not None and is_quick else "process"

    @property
    def detour(self) -> BackendError | None:
        """Return why the quick way failed when it was last tried; None if it did not."""
        return self._detour

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Found:
        """Return what QMD finds within `timeout_s`.

        Raises:
            BackendError: no way led to an answer; the error is that of the last one tried.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        detour: BackendError | None = None
        if self._quick is not None and self._quick.is_up():
            # A model that is loaded already is waited for: another process would have to load it first.
            share = 1.0 if request.expand else QUICK_SHARE
            # A refusal is no last word: all that QMD's server says of any failure is `Internal Server Error`.
            try:
                hits = await self._quick.searcher.ask(request, timeout_s=timeout_s * share)
            except BackendError as error:
                self._detour = detour = error
            else:
                self._detour = None
                return Found(hits=hits, way=self._quick.name)
        left_s = deadline - loop.time()
        if left_s <= 0.0 and isinstance(detour, BackendTimeout):
            raise detour
        hits = await self._process.ask(request, timeout_s=max(left_s, 0.001))
        return Found(hits=hits, way="process", detour=detour)
