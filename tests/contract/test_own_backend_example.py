"""The example of a backend made of parts keeps the contract of a memory, as its reader's own would."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from composable_memory.content import MemoryContentObject, MemoryTemporalMetadata
from composable_memory.interfaces import MemorySearchManager
from composable_memory.testing import FIXED_NOW, SEED_NOTES, BackendContract, Opener
from composable_memory.testing.in_memory import make_services
from examples import own_backend

SEEDS = [
    MemoryContentObject(
        id=f"{path}:{number}",
        kind="document",
        text=text,
        temporal=MemoryTemporalMetadata(observed_at=FIXED_NOW),
    )
    for path, note in SEED_NOTES.items()
    for number, text in enumerate(filter(None, note.split("\n\n")))
]


@pytest.mark.thorough
class TestPartsMemory(BackendContract):
    capabilities = own_backend.spec.capabilities

    @pytest.fixture
    def open_backend(self, tmp_path: Path) -> Opener[MemorySearchManager]:
        @asynccontextmanager
        async def open_parts() -> AsyncIterator[MemorySearchManager]:
            settings = own_backend.PartsSettings()
            async with own_backend.spec.open(settings, make_services(tmp_path)) as memory:
                assert (await memory.ingest(SEEDS)).ok  # type: ignore[attr-defined]
                yield memory

        return open_parts


async def test_what_was_said_is_found_by_its_meaning_and_by_what_it_is_about(tmp_path: Path) -> None:
    settings = own_backend.PartsSettings()
    async with own_backend.spec.open(settings, make_services(tmp_path)) as memory:
        said = MemoryContentObject(id="m", kind="message", text="Ingrid lives in Lindholm.")
        report = await memory.ingest([said])  # type: ignore[attr-defined]
        found = await memory.search("Where does Ingrid live?")

    assert (report.stored, report.facts) == (1, 1)
    assert {hit.path.startswith("parts/fact-") for hit in found} == {True, False}
