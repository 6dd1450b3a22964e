"""An open memory in the hands of several: whoever closes it closes it for all."""

from collections.abc import Callable, Coroutine
from dataclasses import fields

from composable_memory.interfaces import Capability
from composable_memory.runtime.memory import Memory
from composable_memory.supervision.tasks import Once
from composable_memory.types import SearchAnswer, SearchOptions
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedMemory(Memory):
    """A memory that is a `MemorySearchManager` as well, with `SupportsSync` and `QueryOrchestrator`."""

    closing: Once[None]

    @classmethod
    def of(
        cls, memory: Memory, release: Callable[["SharedMemory"], Coroutine[object, object, None]]
    ) -> "SharedMemory":
        """Share `memory`, which `release` closes."""
        parts = {field.name: getattr(memory, field.name) for field in fields(memory)}
        closing: Once[None] = Once(lambda: release(shared), name="close shared memory")
        shared = cls(**parts, closing=closing)
        return shared

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what the backends can do."""
        return self.manager.capabilities

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and say what is missing from the answer."""
        return await self.manager.answer(query, options)

    async def close(self) -> None:
        """Close it for everybody; calling it again does nothing.

        A call that is cancelled waits no longer, but it is closed all the same.
        """
        await self.closing()
