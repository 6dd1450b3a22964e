"""The retriever of LangChain, against LangChain and its own tests for retrievers."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import create_retriever_tool
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import RetrieversIntegrationTests

from composable_memory import BlockingMemory, open_memory
from composable_memory.errors import InvalidArgument
from composable_memory_adapters.integrations.langchain import MemoryRetriever
from tests.integration.frameworks.conftest import KEYWORDS
from tests.integration.frameworks.scripted_model import ToolCall, scripted_model


class TestOfLangChain(RetrieversIntegrationTests):
    """What LangChain asks of every retriever."""

    @pytest.fixture(autouse=True)
    def _opened(self, memory: BlockingMemory) -> None:
        self.memory = memory

    @property
    def retriever_constructor(self) -> type[MemoryRetriever]:
        return MemoryRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory}

    @property
    def retriever_query_example(self) -> str:
        return "dock"


def test_a_document_is_the_whole_passage_with_its_citation(memory: BlockingMemory) -> None:
    best = MemoryRetriever(memory=memory).invoke("which port does the dock controller use?")[0]

    assert "port 8443" in best.page_content
    assert best.metadata["source"] == best.metadata["citation"] == "MEMORY.md#L1-L4"
    assert (best.metadata["path"], best.metadata["source_backend"]) == ("MEMORY.md", "builtin")
    assert 0.0 < best.metadata["score"] <= 1.0
    assert best.metadata["trace_id"]
    assert json.loads(json.dumps(best.metadata)) == best.metadata


def test_filters_narrow_a_retriever_and_a_call(memory: BlockingMemory) -> None:
    work = MemoryRetriever(memory=memory, search_kwargs={"tags": ["work"]})
    everything = MemoryRetriever(memory=memory, k=1)

    assert [one.metadata["path"] for one in work.invoke("dock")] == ["memory/2026-05-04.md"]
    since = everything.invoke("dock", since="2026-05-06", paths=["memory"])
    assert [one.metadata["path"] for one in since] == ["memory/2026-05-06.md"]
    with pytest.raises(ValueError, match="tagz"):
        everything.invoke("dock", tagz=["work"])


async def test_a_memory_on_this_loop_is_awaited(workspace: Path, state_dir: Path) -> None:
    async with open_memory(workspace, state_dir, KEYWORDS) as memory:
        await memory.sync()
        retriever = MemoryRetriever(memory=memory, k=2)

        assert len(await retriever.ainvoke("dock")) == 2
        assert [len(found) for found in await retriever.abatch(["dock", "crane"])] == [2, 1]
        with pytest.raises(InvalidArgument, match="open_memory_sync"):
            retriever.invoke("dock")


def test_an_agent_calls_it_as_a_tool(memory: BlockingMemory) -> None:
    with scripted_model(ToolCall("notes", {"query": "dock controller port"})) as model:
        chat = ChatOpenAI(model="scripted", base_url=model.url, api_key="none")
        tool = create_retriever_tool(MemoryRetriever(memory=memory, k=1), "notes", "Search the notes.")
        agent = create_agent(chat, [tool])
        said = agent.invoke({"messages": [("user", "Which port?")]})["messages"][-1].content

    assert "port 8443" in said
