"""The MCP server, asked by the client of the official SDK: in this process, and over stdin and stdout."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import CallToolResult

from composable_memory.mcp_server.server import build_server
from composable_memory.runtime.opening import open_memory
from composable_memory.tools.context_pack import (
    MemoryContextPackReply,
    MemoryContextPackRequest,
    memory_context_pack,
)
from composable_memory.tools.read import MemoryGetReply
from composable_memory.tools.search import MemorySearchReply, MemorySearchRequest, memory_search
from tests.cli_process import RunningCli, run_cli
from tests.integration.mcp_calls import document, words_only

PAGE = Path(__file__).parents[2] / "docs" / "mcp.md"
PROGRAM = [sys.executable, "-m", "composable_memory.cli", "mcp"]
QUESTION = {"query": "tomatoes shade cloth", "maxResults": 1}


@pytest.fixture(autouse=True)
def _words_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words_only(tmp_path, monkeypatch)


@asynccontextmanager
async def a_client(workspace: Path, state_dir: Path, session: str | None = None) -> AsyncIterator[Client]:
    async with Client(build_server({"": workspace}, state_dir, session_key=session)) as client:
        yield client


async def indexed_answer(client: Client, arguments: Mapping[str, object] = QUESTION) -> dict[str, object]:
    """Ask until the notes are found that are indexed behind the requests."""
    async with asyncio.timeout(30):
        while True:
            answer = content(await client.call_tool("memory_search", dict(arguments)))
            if answer["results"]:
                return answer


def content(result: CallToolResult) -> dict[str, object]:
    assert not result.is_error, result.content
    found = document(result)
    found.pop("notice", None)
    return found


async def test_arguments_and_answers_have_declared_shapes(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}

    search, get = tools["memory_search"], tools["memory_get"]
    filters = ["since", "until", "path", "tag", "source", "type", "now"]
    assert list(search.input_schema["properties"]) == ["query", "maxResults", "minScore", "weak", *filters]
    assert list(get.input_schema["properties"]) == ["path", "from", "lines"]
    assert (search.input_schema["required"], get.input_schema["required"]) == (["query"], ["path"])
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())
    assert all(tool.output_schema is None for tool in tools.values())


async def test_descriptions_carry_no_indentation_of_the_source(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        tools = (await client.list_tools()).tools

    assert all(tool.description and "\n " not in tool.description for tool in tools)


async def test_the_page_names_every_tool_with_its_arguments(workspace: Path, state_dir: Path) -> None:
    rows = re.findall(r"^\| `(memory_\w+)` \| (.+?) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)

    async with a_client(workspace, state_dir) as client:
        tools = (await client.list_tools()).tools

    assert {name: re.findall(r"`(\w+)`", cell) for name, cell in rows} == {
        tool.name: list(tool.input_schema["properties"]) for tool in tools
    }


async def test_the_server_tells_when_to_search(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        instructions = client.instructions or ""

    assert {"memory_search", "memory_get"} <= set(re.findall(r"\w+", instructions))


async def test_a_search_answers_with_cited_passages(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        answer = await indexed_answer(client)

    reply = MemorySearchReply.model_validate(answer)
    assert reply.results[0].path == "memory/projects/greenhouse.md"
    best = reply.results[0]
    assert best.snippet.endswith(f"\n\nSource: {best.citation}")
    assert "shade" in {best.snippet[begin:end].lower() for begin, end in best.highlights or ()}


async def test_the_first_search_of_a_server_finds_the_notes(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        answer = content(await client.call_tool("memory_search", dict(QUESTION)))

    assert answer["results"]
    assert "warning" not in answer


async def test_an_answer_before_the_notes_are_indexed_is_not_taken_for_none(
    workspace: Path, state_dir: Path, tmp_path: Path
) -> None:
    hasty = "memory: {embedding: {provider: none}, builtin: {sync: {on_search_wait_ms: 0}}}"
    (tmp_path / "config.yaml").write_text(hasty, encoding="utf-8")
    async with open_memory(workspace, tmp_path / "other") as memory:
        packed = await memory_context_pack(memory, MemoryContextPackRequest(query="tomatoes"))
    async with open_memory(workspace, state_dir) as memory:
        searched = await memory_search(memory, MemorySearchRequest(query="tomatoes"))
        await memory.sync()
        found = await memory_search(memory, MemorySearchRequest(query="tomatoes"))
        none = await memory_search(memory, MemorySearchRequest(query="qqxyzzy", weak=False))

    for reply in (packed, searched):
        assert "first time" in str(reply.warning)
        assert "again" in str(reply.action)
    assert found.results
    assert found.warning is None
    assert "first time" not in str(none.warning)


async def test_a_context_is_one_text_within_its_budget(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        await indexed_answer(client)
        asked = {"query": "tomatoes shade cloth", "maxTokens": 100}
        answer = content(await client.call_tool("memory_context", asked))

    reply = MemoryContextPackReply.model_validate(answer)
    assert reply.pack.startswith("#1 memory/projects/greenhouse.md:")
    assert 0 < reply.tokens <= 100
    assert reply.sources[0].citation


async def test_a_server_for_a_group_does_not_cite(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir, session="agent:main:x:group:1") as client:
        answer = await indexed_answer(client)

    reply = MemorySearchReply.model_validate(answer)
    assert [hit.citation for hit in reply.results] == [None]


async def test_lines_of_a_note_are_read(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        result = await client.call_tool("memory_get", {"path": "MEMORY.md", "from": 3, "lines": 1})

    read = content(result)
    assert (read["text"], read["path"]) == ("The harbour office answers on extension 4417.", "MEMORY.md")


async def test_a_path_outside_is_refused_in_the_answer(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        result = await client.call_tool("memory_get", {"path": "../config.yaml"})

    reply = MemoryGetReply.model_validate(document(result))
    assert (reply.status, reply.code) == ("error", "MEMORY_PATH_NOT_ALLOWED")
    assert result.is_error


async def test_a_missing_note_is_an_error_that_names_the_nearest(workspace: Path, state_dir: Path) -> None:
    (workspace / "memory" / "greenhouse.md").write_text("Tomatoes.\n", encoding="utf-8")
    async with a_client(workspace, state_dir) as client:
        result = await client.call_tool("memory_get", {"path": "memory/grenhouse.md"})

    reply = MemoryGetReply.model_validate(document(result))
    assert result.is_error
    assert reply.code == "MEMORY_NOT_FOUND"
    assert "memory/greenhouse.md" in str(reply.error)


async def test_the_citation_of_a_result_can_be_read(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        hit: Any
        [hit] = cast("Any", (await indexed_answer(client))["results"])
        read = content(await client.call_tool("memory_get", {"path": hit["citation"]}))

    assert "shade cloth" in str(read["text"])


async def test_an_agent_is_told_of_a_workspace_without_notes(tmp_path: Path, state_dir: Path) -> None:
    empty = tmp_path / "typo"
    empty.mkdir()
    async with a_client(empty, state_dir) as client, asyncio.timeout(30):
        replies = []
        for tool in ("memory_search", "memory_context"):
            while True:
                reply = content(await client.call_tool(tool, {"query": "tomatoes"}))
                if "warning" in reply:  # else the first look at the folder is still under way
                    break
            replies.append(reply)

    for reply in replies:
        assert str(empty) in str(reply["warning"])
        assert reply["action"]


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("memory_search", {"query": "x", "max_results": 2}, ["max_results", "maxResults"]),
        ("memory_search", {"query": "x", "limit": 2}, ["limit", "query", "maxResults", "minScore"]),
        ("memory_get", {"path": "MEMORY.md", "from_line": 2}, ["from_line", "from"]),
        ("memory_status", {"deepp": True}, ["deepp", "deep"]),
    ],
)
async def test_an_unknown_argument_is_refused_with_the_nearest(
    workspace: Path, state_dir: Path, tool: str, arguments: dict[str, object], words: list[str]
) -> None:
    async with a_client(workspace, state_dir) as client:
        schema = {one.name: one.input_schema for one in (await client.list_tools()).tools}[tool]
        result = await client.call_tool(tool, arguments)

    assert schema["additionalProperties"] is False
    assert result.is_error
    assert all(word in str(document(result)["error"]) for word in words)


async def test_a_wrong_argument_is_told_without_the_prose_of_a_library(
    workspace: Path, state_dir: Path
) -> None:
    async with a_client(workspace, state_dir) as client:
        result = await client.call_tool("memory_search", {"query": "x", "maxResults": 0})

    error = str(document(result)["error"])
    assert "maxResults" in error
    assert "pydantic" not in error
    assert "\n" not in error


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": "  "}, {"query": "x", "maxResults": 0}, {"query": "x", "minScore": 2}],
    ids=str,
)
async def test_arguments_that_make_no_sense_are_refused(
    workspace: Path, state_dir: Path, arguments: dict[str, object]
) -> None:
    async with a_client(workspace, state_dir) as client:
        result = await client.call_tool("memory_search", arguments)

    assert result.is_error


async def test_the_status_can_be_asked_deeply(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        status = content(await client.call_tool("memory_status", {"deep": True}))

    assert isinstance(status["probe"], dict)
    assert status["probe"]["search"]["ok"] is True


async def test_a_memory_that_cannot_be_opened_explains_itself(tmp_path: Path, state_dir: Path) -> None:
    async with a_client(tmp_path / "nowhere", state_dir) as client:
        search = content(await client.call_tool("memory_search", QUESTION))
        get = await client.call_tool("memory_get", {"path": "MEMORY.md"})
        status = await client.call_tool("memory_status", {})

    assert (search["results"], search["unavailable"]) == ([], True)
    assert "nowhere" in str(search["error"])
    assert get.is_error
    assert "nowhere" in str(document(get))
    assert status.is_error


async def test_many_questions_at_once_are_all_answered(workspace: Path, state_dir: Path) -> None:
    async with a_client(workspace, state_dir) as client:
        await indexed_answer(client)
        answers = await asyncio.gather(*(indexed_answer(client) for _ in range(20)))

    assert {answer["results"][0]["path"] for answer in answers} == {"memory/projects/greenhouse.md"}  # type: ignore[index]


async def test_the_program_serves_over_stdin_and_stdout(workspace: Path, state_dir: Path) -> None:
    server = StdioServerParameters(
        command=PROGRAM[0],
        args=[*PROGRAM[1:], "-w", str(workspace), "--state-dir", str(state_dir)],
        env=dict(os.environ),
    )
    async with Client(stdio_client(server)) as client:
        answer = await indexed_answer(client)

    assert MemorySearchReply.model_validate(answer).results[0].path == "memory/projects/greenhouse.md"


def test_without_its_extra_the_server_says_what_to_install_and_all_else_works(
    workspace: Path, state_dir: Path
) -> None:
    hidden = "import sys; sys.modules.update(mcp=None, starlette=None, uvicorn=None); sys.argv[0] = 'cmem'"
    program = [sys.executable, "-c", f"{hidden}; from composable_memory.cli import main; main()"]
    target = ["-w", str(workspace), "--state-dir", str(state_dir)]

    served, found = (
        subprocess.run([*program, *words, *target], capture_output=True, text=True, timeout=60, check=False)
        for words in (["mcp"], ["search", "tomatoes shade cloth"])
    )

    assert (served.returncode, served.stdout) == (1, "")
    assert "composable-memory[mcp]" in served.stderr
    assert len(served.stderr.splitlines()) == 1
    assert found.returncode == 0, found.stderr
    assert "greenhouse.md" in found.stdout


def test_nothing_but_the_protocol_goes_to_stdout(workspace: Path, state_dir: Path) -> None:
    """Also where the client goes at once, while the index is being built."""
    place = ["-w", str(workspace), "--state-dir", str(state_dir)]
    done = run_cli("mcp", *place, text='{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')

    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["jsonrpc"] for line in done.stdout.splitlines()] == ["2.0"]


def test_a_request_that_cannot_be_read_is_answered(workspace: Path, state_dir: Path) -> None:
    """A client would wait for ever; half an emoji is what a cut text ends with."""
    call = {"name": "memory_search", "arguments": {"query": "\ud83d dock"}}
    frames = [
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call},
        {"jsonrpc": "2.0", "method": "notifications/\ud83d"},
        {"jsonrpc": "1.0", "id": "a", "method": "ping"},
        {"jsonrpc": "2.0", "id": 8, "method": "ping"},
    ]
    bottomless = '{"jsonrpc": "2.0", "id": 9, "method": "ping", "params": ' + "[" * 100_000
    with RunningCli("mcp", "-w", str(workspace), "--state-dir", str(state_dir)) as process:
        process.stdin.write("\n".join((bottomless, *map(json.dumps, frames), "no JSON", "")))
        process.stdin.flush()
        # Only then is the input closed: what has not been answered by its end need not be.
        answers = {one["id"]: one for one in (json.loads(process.stdout.readline()) for _ in range(3))}
        _, complaints = process.rest()

        assert process.wait() == 0, complaints
    assert answers.keys() == {7, "a", 8}
    assert all("error" in answers[one] for one in (7, "a"))


def test_ctrl_c_ends_the_server_while_it_waits_for_the_client(workspace: Path, state_dir: Path) -> None:
    with RunningCli("mcp", "-w", str(workspace), "--state-dir", str(state_dir)) as process:
        process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        process.stdout.readline()

        process.send_signal(signal.SIGINT)

        assert process.wait() == -signal.SIGINT


def test_the_program_of_the_page_runs(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))

    done = subprocess.run(
        [sys.executable, "-c", program, str(workspace)],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert '"traceId"' in done.stdout


@pytest.mark.thorough
def test_the_commands_of_the_page_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    commands = [
        shlex.split(line) for block in blocks for line in block.splitlines() if line.startswith("cmem")
    ]
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("notes", "work"):
        (tmp_path / folder).mkdir()

    assert len(commands) == 3
    for words in commands:
        over_http = "--http" in words
        port = ["--port", "0"] if over_http else []
        with subprocess.Popen(
            [*PROGRAM, *words[2:], *port, "--state-dir", str(tmp_path / "state")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr is not None
            if over_http:
                assert "http://127.0.0.1:" in process.stderr.readline()
                process.terminate()
            _, told = process.communicate(timeout=60)

        assert process.returncode == 0, (words, told)


def test_every_answer_on_the_page_has_its_declared_shape() -> None:
    blocks = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    answers = [json.loads(block) for block in blocks if "mcpServers" not in block]

    assert len(answers) == 3
    assert answers[0].pop("notice")
    for answer in answers:
        (MemorySearchReply if "results" in answer else MemoryGetReply).model_validate(answer)
