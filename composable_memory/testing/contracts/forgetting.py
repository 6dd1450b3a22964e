"""The contract of a memory with `Capability.FORGET`: lines that have gone from the notes leave no trace."""

from composable_memory.forget.report import ForgetLine, Forgetting
from composable_memory.interfaces import MemorySearchManager, SupportsForget, SupportsSync
from composable_memory.testing.contracts.opening import BackendSuite, OpenBackend, opened
from composable_memory.testing.contracts.sync import WriteNote
from composable_memory.types import SearchOptions

PATH = "memory/2026-04-02.md"
KEPT = "- Anna Bosun works at Beacon Labs."
GONE = "- Mirela Capstan works at Zanzebrook Labs."
WANTED = Forgetting(lines=(ForgetLine(path=PATH, start_line=2, end_line=2, text=GONE),))


class ForgetContract(BackendSuite):
    """What a memory that can forget must do; it needs the fixture `write_note` of `SyncContract` too."""

    async def test_what_is_erased_is_held_no_more_and_the_rest_is(
        self, open_backend: OpenBackend, write_note: WriteNote
    ) -> None:
        """It tells what it holds, which then goes; erasing twice is as good as once."""
        async with opened(open_backend) as memory:
            assert isinstance(memory, SupportsForget)
            await write_note(PATH, f"{KEPT}\n{GONE}\n")
            await _sync(memory)
            assert sum(one.count for one in await memory.holdings(WANTED)) > 0

            await write_note(PATH, f"{KEPT}\n")
            await memory.erase(WANTED)
            await memory.erase(WANTED)

            found = await memory.search("where does Anna Bosun work?", SearchOptions(max_results=50))
            assert any("Beacon" in f"{one.snippet} {one.text}" for one in found)
            assert not any("Zanzebrook" in f"{one.snippet} {one.text}" for one in found)

    async def test_what_was_never_stored_can_be_erased(self, open_backend: OpenBackend) -> None:
        """There is nothing to tell of it, and nothing goes."""
        async with opened(open_backend) as memory:
            assert isinstance(memory, SupportsForget)
            await _sync(memory)

            assert [one for one in await memory.holdings(WANTED) if one.count] == []
            await memory.erase(WANTED)


async def _sync(memory: MemorySearchManager) -> None:
    if isinstance(memory, SupportsSync):
        await memory.sync()
