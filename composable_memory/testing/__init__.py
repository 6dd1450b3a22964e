"""For authors of backends: contract tests that a backend must pass, and small fakes to test against.

The contracts are test classes and need pytest; the rest does not. `adapters/README.md` has an example.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from composable_memory.testing.corpus import (
    HOSTILE_PATHS,
    HOSTILE_TEXTS,
    SEED_NOTES,
    SEED_QUESTIONS,
    SeedQuestion,
)
from composable_memory.testing.fakes import (
    FailingEmbedder,
    FlakyBackend,
    FloodBackend,
    HangingBackend,
    RaisingBackend,
    RubbishBackend,
    SlowBackend,
)
from composable_memory.testing.in_memory import (
    FIXED_NOW,
    FakeBackend,
    HashEmbedder,
    InMemoryBackend,
    InMemoryGraph,
    InMemorySettings,
    make_services,
    open_in_memory,
)
from composable_memory.testing.in_memory import spec as in_memory_spec

if TYPE_CHECKING:
    from composable_memory.testing.contracts import (
        AnswerContract,
        BackendContract,
        EmbedderContract,
        FactsContract,
        ForgetContract,
        GraphContract,
        IngestContract,
        Opener,
        ReadFileContract,
        RerankerContract,
        SyncContract,
        VectorContract,
        WriteNote,
    )

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
    "ForgetContract",
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
    "RerankerContract",
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

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import the contracts on first use."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            import pytest
        except ModuleNotFoundError as error:
            needed = "the contracts of composable_memory.testing need pytest"
            message = f"{needed}; install it with `pip install pytest pytest-asyncio`"
            raise ModuleNotFoundError(message, name="pytest") from error
        contracts = "composable_memory.testing.contracts"
        if contracts not in sys.modules:
            # Before the import, or a failing contract would show a bare AssertionError outside this
            # repository.
            pytest.register_assert_rewrite(contracts)
        return getattr(import_module(contracts), name)
