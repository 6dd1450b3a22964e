"""For authors of backends: contracts that a backend has to pass, and small fakes to test against.

Needs pytest, since the contracts are classes of tests. See `adapters/README.md` for an example.
"""

try:
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "composable_memory.testing needs pytest; install it with `pip install pytest pytest-asyncio`",
        name="pytest",
    ) from error

# Before the import: else a failing contract shows a bare AssertionError to authors outside this project.
pytest.register_assert_rewrite("composable_memory.testing.contracts")

from composable_memory.testing.contracts import (  # noqa: E402 - see above
    AnswerContract,
    BackendContract,
    EmbedderContract,
    FactsContract,
    GraphContract,
    IngestContract,
    Opener,
    ReadFileContract,
    SyncContract,
    VectorContract,
    WriteNote,
)
from composable_memory.testing.corpus import (  # noqa: E402
    HOSTILE_PATHS,
    HOSTILE_TEXTS,
    SEED_NOTES,
    SEED_QUESTIONS,
    SeedQuestion,
)
from composable_memory.testing.fakes import (  # noqa: E402
    FailingEmbedder,
    FakeBackend,
    FlakyBackend,
    FloodBackend,
    HangingBackend,
    HashEmbedder,
    InMemoryBackend,
    InMemoryGraph,
    InMemorySettings,
    RaisingBackend,
    RubbishBackend,
    SlowBackend,
    open_in_memory,
)
from composable_memory.testing.in_memory import FIXED_NOW, make_services  # noqa: E402
from composable_memory.testing.in_memory import spec as in_memory_spec  # noqa: E402

__all__ = [
    "FIXED_NOW",
    "HOSTILE_PATHS",
    "HOSTILE_TEXTS",
    "SEED_NOTES",
    "SEED_QUESTIONS",
    "AnswerContract",
    "BackendContract",
    "EmbedderContract",
    "FactsContract",
    "FailingEmbedder",
    "FakeBackend",
    "FlakyBackend",
    "FloodBackend",
    "GraphContract",
    "HangingBackend",
    "HashEmbedder",
    "InMemoryBackend",
    "InMemoryGraph",
    "InMemorySettings",
    "IngestContract",
    "Opener",
    "RaisingBackend",
    "ReadFileContract",
    "RubbishBackend",
    "SeedQuestion",
    "SlowBackend",
    "SyncContract",
    "VectorContract",
    "WriteNote",
    "in_memory_spec",
    "make_services",
    "open_in_memory",
]
