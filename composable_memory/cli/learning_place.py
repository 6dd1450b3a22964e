"""Opens what a memory has learnt for a command, and tells what the user must know of the store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from composable_memory.cli.runner import Place
from composable_memory.cli.screen import warn
from composable_memory.learning import Learning, open_learning

__all__ = ["learning_of"]


@asynccontextmanager
async def learning_of(place: Place) -> AsyncIterator[Learning]:
    """Open what the memory of a place has learnt; a remark on its store is told in the end."""
    async with open_learning(place.workspace, state_dir=place.state_dir) as learning:
        try:
            yield learning
        finally:
            if learning.context.remark:
                warn(learning.context.remark)
