"""What the integrations share; needs no framework."""

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import BackendServices, BackendSpec, Capability, MemorySearchManager
from composable_memory.testing.fakes import RaisingBackend
from composable_memory.testing.in_memory import FakeBackend, spec
from composable_memory.types import MemorySearchResult, Origin, SearchOptions, SupportingFact
from composable_memory_adapters.integrations.shared import find_passages

FACT = SupportingFact(text="Ana works at Acme", valid_from=datetime(2026, 3, 1, tzinfo=UTC))
KNOWN = MemorySearchResult(
    path="fact:1",
    start_line=0,
    end_line=0,
    score=0.9,
    snippet="Ana works",
    text="Ana works at Acme, in the harbour.",
    origin=Origin(path="people.md", start_line=3, end_line=3),
    facts=(FACT,),
    metadata={"answered_by": "graph"},
)


class Knowing(FakeBackend):
    """A memory that always knows the same."""

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        return [KNOWN]


def serving(backend: MemorySearchManager) -> tuple[BackendSpec, Mapping[str, object]]:
    """Return what opens a memory of this backend alone."""

    @asynccontextmanager
    async def opened(settings: object, services: BackendServices) -> AsyncIterator[MemorySearchManager]:
        yield backend

    return replace(spec, id="own", open=opened, capabilities=frozenset({Capability.CALIBRATED})), {
        "memory": {"backend": "own", "fallback": "none"}
    }


async def test_a_passage_has_its_facts_with_their_times_and_where_they_are_from(
    tmp_path: Path, state_dir: Path
) -> None:
    own, config = serving(Knowing("own"))
    async with open_memory(tmp_path, state_dir, config, backends=[own]) as memory:
        (passage,) = await find_passages(memory, "where does Ana work?", {})

    metadata = json.loads(json.dumps(passage.metadata))
    assert passage.text == "Ana works at Acme, in the harbour."
    assert (metadata["source"], metadata["citation"]) == ("people.md#L3", "people.md#L3")
    assert metadata["facts"][0]["text"] == "Ana works at Acme"
    assert metadata["facts"][0]["valid_from"].startswith("2026-03-01")
    assert metadata["origin"]["path"] == "people.md"
    assert metadata["metadata"] == {"answered_by": "graph"}


async def test_a_memory_that_fails_is_an_error_and_not_an_empty_list(tmp_path: Path, state_dir: Path) -> None:
    own, config = serving(RaisingBackend(backend_id="own"))
    async with open_memory(tmp_path, state_dir, config, backends=[own]) as memory:
        with pytest.raises(BackendUnavailable, match="cmem status --deep"):
            await find_passages(memory, "where does Ana work?", {})


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("langchain", "langchain_core"),
        ("langgraph", "langgraph"),
        ("llama_index", "llama_index"),
        ("openai_agents", "agents"),
        ("pydantic_ai", "pydantic_ai"),
    ],
)
def test_without_its_framework_an_integration_says_what_to_install(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"composable_memory_adapters.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    for one in [one for one in sys.modules if one == package or one.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, one)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(
        ModuleNotFoundError, match=r"pip install 'composable-memory\[" + module.replace("_", "-")
    ):
        import_module(name)
