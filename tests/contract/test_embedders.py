"""The packaged embedder keeps the contract."""

import pytest

from composable_memory.interfaces import EmbedderAdapter
from composable_memory.testing import EmbedderContract, Opener
from composable_memory_adapters.embedders.wordllama import spec


class TestWordLlama(EmbedderContract):
    @pytest.fixture
    def open_embedder(self) -> Opener[EmbedderAdapter]:
        return lambda: spec.open({})
