"""What every backend, store and embedder must do: test classes to subclass.

A class gets the part under test from a fixture that the author overrides, and what the part promises from
`capabilities`. What is declared must work; what is not declared must be refused. Tests are coroutines: run
them with pytest-asyncio in mode `auto`, or mark the class with `pytest.mark.asyncio`.
"""

from composable_memory.testing.contracts.backend import AnswerContract, BackendContract, ReadFileContract
from composable_memory.testing.contracts.embedder import EmbedderContract
from composable_memory.testing.contracts.facts import FactsContract, IngestContract
from composable_memory.testing.contracts.opening import Opener
from composable_memory.testing.contracts.reranker import RerankerContract
from composable_memory.testing.contracts.stores import GraphContract, VectorContract
from composable_memory.testing.contracts.sync import ForgetContract, SyncContract, WriteNote

__all__ = [
    "AnswerContract",
    "BackendContract",
    "EmbedderContract",
    "FactsContract",
    "ForgetContract",
    "GraphContract",
    "IngestContract",
    "Opener",
    "ReadFileContract",
    "RerankerContract",
    "SyncContract",
    "VectorContract",
    "WriteNote",
]
