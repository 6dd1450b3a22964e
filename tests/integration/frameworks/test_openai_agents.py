"""The tools for the OpenAI Agents SDK, called by its agent."""

import json
from pathlib import Path

import pytest
from agents import Agent, OpenAIResponsesModel, RunConfig, Runner
from openai import AsyncOpenAI

from composable_memory import BlockingMemory, open_memory
from composable_memory.tools.catalogue import TOOLS
from composable_memory_adapters.integrations.openai_agents import memory_tools
from tests.integration.frameworks.conftest import KEYWORDS
from tests.integration.frameworks.scripted_model import ScriptedModel, ToolCall, scripted_model


async def run(model: ScriptedModel, tools: list[object]) -> str:
    async with AsyncOpenAI(base_url=model.url, api_key="none") as client:
        chat = OpenAIResponsesModel(model="scripted", openai_client=client)
        agent = Agent(name="Assistant", model=chat, tools=tools)
        done = await Runner.run(agent, "Which port?", run_config=RunConfig(tracing_disabled=True))
        return str(done.final_output)


async def test_an_agent_searches_and_reads_on(memory: BlockingMemory) -> None:
    search = ToolCall("memory_search", {"query": "dock controller port", "maxResults": 1})
    read = ToolCall("memory_get", {"path": "MEMORY.md#L3"})
    with scripted_model(search, read) as model:
        said = await run(model, memory_tools(memory))

    found, text = map(json.loads, model.replies())
    assert found["results"][0]["citation"] == "MEMORY.md#L1-L4"
    assert text["text"].strip() == "The dock controller listens on port 8443."
    assert "port 8443" in said


async def test_the_tools_are_those_of_the_server(memory: BlockingMemory) -> None:
    with scripted_model() as model:
        await run(model, memory_tools(memory))

    told = {name: (one["description"], one["parameters"]) for name, one in model.tools.items()}
    assert told == {one.name: (one.description, one.input_schema) for one in TOOLS}


async def test_wrong_arguments_are_told_to_the_agent(memory: BlockingMemory) -> None:
    with scripted_model(ToolCall("memory_search", {"query": "dock", "maxResult": 1})) as model:
        await run(model, memory_tools(memory))

    (reply,) = map(json.loads, model.replies())
    assert "maxResults" in reply["error"]


@pytest.mark.parametrize("text", ["[1]", "{", '"dock"'])
async def test_arguments_that_are_no_object_are_told_to_the_agent(text: str, memory: BlockingMemory) -> None:
    (search,) = memory_tools(memory, ["memory_search"])

    assert "JSON object" in json.loads(await search.on_invoke_tool(None, text))["error"]


async def test_a_memory_on_this_loop_is_awaited(workspace: Path, state_dir: Path) -> None:
    async with open_memory(workspace, state_dir, KEYWORDS) as memory:
        await memory.sync()
        with scripted_model(ToolCall("memory_search", {"query": "dock controller port"})) as model:
            said = await run(model, memory_tools(memory, ["memory_search"]))

    assert "port 8443" in said
