"""Keeps what is known of updates and embeddings in a file, for later processes and for others beside us."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from composable_memory_adapters.qmd.maintenance.rules import UpkeepState
from composable_memory_adapters.qmd.runtime.index_config import replace_file
from composable_memory_adapters.qmd.values import Home

__all__ = ["Learn", "UpkeepBooks"]

Learn = Callable[[UpkeepState], UpkeepState]
"""Returns the state after something has happened."""


class UpkeepBooks:
    """The state of one home; `state` is what was known when somebody last looked."""

    def __init__(self, home: Home) -> None:
        self._file = home.root / "upkeep.json"
        self._index_file = home.index_file
        self._turn = asyncio.Lock()
        self.state = UpkeepState()

    async def look_up(self) -> None:
        """Take in what other processes have written."""
        async with self._turn:
            self.state = await asyncio.to_thread(self._read)

    async def learn(self, learn: Learn) -> None:
        """Write down what has happened; on a disk that takes nothing, this process alone knows."""
        async with self._turn:
            self.state = await asyncio.to_thread(self._learn, learn)

    def _read(self) -> UpkeepState:
        state = self.state
        with suppress(OSError):
            state = UpkeepState.of(self._file.read_bytes()).newer_of(state)
        return state if self._index_file.exists() else state.without_index()

    def _learn(self, learn: Learn) -> UpkeepState:
        state = learn(self._read())
        with suppress(OSError):
            replace_file(self._file, state.written())
        return state
