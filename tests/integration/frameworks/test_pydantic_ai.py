"""The tools for Pydantic AI, called by its agent."""

import json
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from composable_memory import BlockingMemory, open_memory
from composable_memory.errors import ConfigError
from composable_memory.tools.catalogue import TOOLS
from composable_memory_adapters.integrations.pydantic_ai import memory_toolset
from tests.integration.frameworks.conftest import KEYWORDS
from tests.integration.frameworks.scripted_model import ScriptedModel, ToolCall, scripted_model


def an_agent(model: ScriptedModel, toolset: object) -> "Agent":
    chat = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=model.url, api_key="none"))
    return Agent(chat, toolsets=[toolset])


async def test_an_agent_searches_and_reads_on(memory: BlockingMemory) -> None:
    search = ToolCall("memory_search", {"query": "dock controller port", "maxResults": 1})
    read = ToolCall("memory_get", {"path": "MEMORY.md#L3"})
    with scripted_model(search, read) as model:
        said = (await an_agent(model, memory_toolset(memory)).run("Which port?")).output

    found, text = map(json.loads, model.replies())
    assert found["results"][0]["citation"] == "MEMORY.md#L1-L4"
    assert text["text"].strip() == "The dock controller listens on port 8443."
    assert "port 8443" in said


async def test_the_tools_are_those_of_the_server(memory: BlockingMemory) -> None:
    with scripted_model() as model:
        await an_agent(model, memory_toolset(memory)).run("Hello")

    told = {name: (one["description"], one["parameters"]) for name, one in model.tools.items()}
    assert told == {one.name: (one.description, one.input_schema) for one in TOOLS}


async def test_wrong_arguments_are_told_to_the_agent(memory: BlockingMemory) -> None:
    wrong = ToolCall("memory_search", {"query": "dock", "maxResult": 1})
    with scripted_model(wrong, ToolCall("memory_search", {})) as model:
        await an_agent(model, memory_toolset(memory)).run("Which port?")

    unknown, missing = (json.loads(one)["error"] for one in model.replies())
    assert "maxResults" in unknown
    assert "query" in missing


def test_only_the_tools_that_are_named_are_offered(memory: BlockingMemory) -> None:
    assert set(memory_toolset(memory, ["memory_get"]).tools) == {"memory_get"}
    with pytest.raises(ConfigError, match="memory_grep"):
        memory_toolset(memory, ["memory_grep"])


async def test_a_memory_on_this_loop_is_awaited(workspace: Path, state_dir: Path) -> None:
    search = ToolCall("memory_search", {"query": "dock controller port"})
    async with open_memory(workspace, state_dir, KEYWORDS) as memory:
        await memory.sync()
        toolset = memory_toolset(memory, session_key="chat:group:42")
        with scripted_model(search) as model:
            await an_agent(model, toolset).run("Which port?")

    (reply,) = map(json.loads, model.replies())
    assert [one.get("citation") for one in reply["results"]] == [None] * len(reply["results"])


async def test_an_agent_remembers_and_finds_it_again(memory: BlockingMemory, workspace: Path) -> None:
    said = "Ana prefers the dock at Millrace."
    remember = ToolCall("memory_remember", {"text": said, "entities": ["Ana"]})
    with scripted_model(
        remember, ToolCall("memory_search", {"query": "which dock does Ana prefer?"})
    ) as model:
        await an_agent(model, memory_toolset(memory)).run("Ana prefers the dock at Millrace.")

    kept, found = map(json.loads, model.replies())
    note, _, _ = kept["citation"].partition("#")
    assert found["results"][0]["path"] == note
    assert said in (workspace / note).read_text(encoding="utf-8")
