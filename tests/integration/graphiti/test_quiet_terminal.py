"""Facts read with a language model on the command line: what graphiti-core logs reaches no terminal."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.graphiti.chat_endpoint import Call, ChatEndpoint, Reply, facts_of
from tests.integration.graphiti.processes import HOUSES
from tests.variants import variants

PATIENCE_S = 120.0
OURS = ("degraded: ", "problem: ", "note: ", "Error: ", "hint: ", "warning: ")
"""How each line begins that the command itself prints to stderr."""


def dangling(call: Call) -> Reply:
    """Answer as a model does that states facts about names it did not list, some of them twice or empty."""
    if call.schema != "ExtractedEdges":
        return facts_of(call)
    edges = json.loads(facts_of(call).text)["edges"]
    strange = [
        {**edges[0], "target_entity_name": name, "fact": f"of {name}"} for name in ("Oslo", "", "Zelda")
    ]
    odd = {**edges[1], "valid_at": "some day", "invalid_at": "2026-99-99"}
    return Reply(text=json.dumps({"edges": [*edges, *strange, odd]}))


def rubbish(_: Call) -> Reply:
    return Reply(text="I would rather not.")


def failing(_: Call) -> Reply:
    return Reply(status=500, text="CUDA out of memory")


def ingested(place: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Ingest a note in a process of its own, as a user does."""
    (place / "notes").mkdir(parents=True)
    (place / "notes" / "MEMORY.md").write_text("Zelda keeps the boat in Bergen.\n", encoding="utf-8")
    config = place / "config.yaml"
    llm = json.dumps({"base_url": url, "timeout_ms": 5000})
    config.write_text(
        "memory: {builtin: {enabled: false}, backend: graphiti, embedding: {provider: none},"
        f" graphiti: {{enabled: true, llm: {llm}}}}}\n",
        encoding="utf-8",
    )
    where = ["--workspace", str(place / "notes"), "--state-dir", str(place / "state")]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, HOUSES)),
        "COMPOSABLE_MEMORY_CONFIG": str(config),
        "COLUMNS": "1000",
    }
    return subprocess.run(
        [sys.executable, "-m", "composable_memory.cli", "ingest", "MEMORY.md", *where],
        env=environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("graph_parts")
@pytest.mark.parametrize("script", variants([dangling, rubbish, failing], dangling))
def test_nothing_that_graphiti_core_logs_reaches_the_terminal(
    tmp_path: Path, script: Callable[[Call], Reply]
) -> None:
    pytest.importorskip("graphiti_core")
    with ChatEndpoint(script) as endpoint:
        done = ingested(tmp_path, endpoint.url)

    said = [line for line in done.stderr.splitlines() if line.strip()]
    assert endpoint.calls, done
    assert "facts" in done.stdout, done
    assert all(line.startswith(OURS) for line in said), said
