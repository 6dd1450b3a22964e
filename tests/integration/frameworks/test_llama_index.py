"""The retriever of LlamaIndex, against LlamaIndex."""

from pathlib import Path

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import QueryFusionRetriever

from composable_memory import BlockingMemory, open_memory
from composable_memory.errors import InvalidArgument
from composable_memory_adapters.integrations.llama_index import MemoryRetriever
from tests.integration.frameworks.conftest import KEYWORDS


def test_a_node_is_the_whole_passage_with_its_citation(memory: BlockingMemory) -> None:
    best = MemoryRetriever(memory).retrieve("which port does the dock controller use?")[0]

    assert "port 8443" in best.get_content()
    assert best.metadata["citation"] == "MEMORY.md#L1-L4"
    assert 0.0 < best.get_score() <= 1.0


def test_how_many_and_which_can_be_said(memory: BlockingMemory) -> None:
    assert len(MemoryRetriever(memory, similarity_top_k=2).retrieve("dock")) == 2
    (work,) = MemoryRetriever(memory, tags=["work"]).retrieve("dock")
    assert work.metadata["path"] == "memory/2026-05-04.md"


async def test_a_memory_on_this_loop_is_awaited(workspace: Path, state_dir: Path) -> None:
    async with open_memory(workspace, state_dir, KEYWORDS) as memory:
        await memory.sync()
        retriever = MemoryRetriever(memory, similarity_top_k=1)

        assert len(await retriever.aretrieve("dock")) == 1
        with pytest.raises(InvalidArgument, match="open_memory_sync"):
            retriever.retrieve("dock")


def test_a_query_engine_shows_a_model_the_passage_and_its_citation_only(memory: BlockingMemory) -> None:
    engine = RetrieverQueryEngine.from_args(MemoryRetriever(memory, similarity_top_k=1), llm=MockLLM())
    prompt = str(engine.query("which port does the dock controller use?"))  # this model says what it is asked

    assert "port 8443" in prompt
    assert "citation: MEMORY.md#L1-L4" in prompt
    assert "trace_id" not in prompt


def test_it_is_one_retriever_among_others(memory: BlockingMemory) -> None:
    both = QueryFusionRetriever(
        [MemoryRetriever(memory, tags=["work"]), MemoryRetriever(memory, paths=["MEMORY.md"])],
        llm=MockLLM(),
        num_queries=1,
        use_async=False,
    )

    assert {one.metadata["path"] for one in both.retrieve("dock")} == {"MEMORY.md", "memory/2026-05-04.md"}
