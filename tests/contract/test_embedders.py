"""Every embedder keeps the contract: the packaged one, and each provider over its protocol on loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from composable_memory.interfaces import EmbedderAdapter, EmbedderServices, EmbedderSpec
from composable_memory.testing import FIXED_NOW, EmbedderContract, Opener
from composable_memory_adapters.embedders import (
    gemini,
    ollama,
    openai,
    wordllama,
)
from composable_memory_ops_logs import OpsLog
from tests.integration.embedders import loopback


@pytest.fixture
def services(tmp_path: Path, ops_log: OpsLog) -> EmbedderServices:
    """Return what an embedding provider gets when it opens."""
    return EmbedderServices(state_dir=tmp_path, environ={}, ops_log=ops_log, clock=lambda: FIXED_NOW)


class TestWordLlama(EmbedderContract):
    @pytest.fixture
    def open_embedder(self, services: EmbedderServices) -> Opener[EmbedderAdapter]:
        return lambda: wordllama.spec.open(wordllama.WordLlamaSettings(), services)


class RemoteContract(EmbedderContract):
    """The contract over HTTP. Nothing is known of the model, so that opening measures it."""

    spec: ClassVar[EmbedderSpec]
    model: ClassVar[str] = "of-our-own"

    def answer(self, received: loopback.Received) -> loopback.Reply:
        return loopback.openai(received)

    @pytest.fixture
    def open_embedder(self, services: EmbedderServices) -> Opener[EmbedderAdapter]:
        @asynccontextmanager
        async def opening() -> AsyncIterator[EmbedderAdapter]:
            async with loopback.listening(self.answer) as server:
                keys = {"base_url": server.url, "model": self.model, "api_key": "key-of-a-test"}
                async with self.spec.open(self.spec.settings.model_validate(keys), services) as embedder:
                    yield embedder

        return opening


class TestOpenAi(RemoteContract):
    spec = openai.spec


@pytest.mark.thorough
class TestMistral(RemoteContract):
    spec = openai.mistral_spec


@pytest.mark.thorough
class TestVoyage(RemoteContract):
    spec = openai.voyage_spec


class TestOpenAiCompatible(RemoteContract):
    spec = openai.compatible_spec


class TestGemini(RemoteContract):
    spec = gemini.spec

    def answer(self, received: loopback.Received) -> loopback.Reply:
        return loopback.gemini(received)


class TestOllama(RemoteContract):
    spec = ollama.spec
    model = "nomic-embed-text-v9"

    def answer(self, received: loopback.Received) -> loopback.Reply:
        return loopback.ollama(received)
