"""The page on the command line and the program agree, in both directions."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from composable_memory.cli import app
from composable_memory.cli.demonstrating import DemoDocument
from composable_memory.cli.documents import (
    BackendsDocument,
    EmbeddersDocument,
    IndexDocument,
    SearchDocument,
    SettingsDocument,
)
from composable_memory.cli.experiment_documents import ExperimentDocument, LatestExperimentDocument
from composable_memory.cli.feedback_documents import (
    BackupDocument,
    EvaluateDocument,
    ExportDocument,
    ImportDocument,
    JudgementDocument,
    PlotDocument,
    StatsDocument,
)
from composable_memory.cli.golden_documents import EvalDocument
from composable_memory.cli.ingest_documents import IngestDocument
from composable_memory.cli.log_documents import EventsDocument, TraceDocument
from composable_memory.cli.runner import ExitCode
from composable_memory.cli.tuning_documents import GateDocument, ReplayDocument
from composable_memory.cli.watching import WatchDocument
from composable_memory.cli.weight_documents import (
    AdviceDocument,
    DifferenceDocument,
    HistoryDocument,
    WeightsDocument,
)
from composable_memory.cli.workspaces import AdoptedDocument, PrunedDocument, WorkspacesDocument
from composable_memory.tools import Document, MemoryContextPackReply, MemoryGetReply, MemoryStatusReply
from composable_memory_adapters.graphiti.cli.documents import (
    AdoptedEpisodesDocument,
    EntitiesDocument,
    EpisodesDocument,
    FactsDocument,
    ForgottenDocument,
    NeighbourhoodDocument,
)

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
DOCUMENTS: dict[str, type[Document]] = {
    "advise": AdviceDocument,
    "backends list": BackendsDocument,
    "backup": BackupDocument,
    "config show": SettingsDocument,
    "embedders list": EmbeddersDocument,
    "eval": EvalDocument,
    "experiment start": ExperimentDocument,
    "experiment status": LatestExperimentDocument,
    "experiment stop": ExperimentDocument,
    "feedback add": JudgementDocument,
    "feedback evaluate": EvaluateDocument,
    "feedback export": ExportDocument,
    "feedback import": ImportDocument,
    "feedback plot": PlotDocument,
    "feedback stats": StatsDocument,
    "gate": GateDocument,
    "get": MemoryGetReply,
    "graph adopt": AdoptedEpisodesDocument,
    "graph entities": EntitiesDocument,
    "graph episodes": EpisodesDocument,
    "graph export": NeighbourhoodDocument,
    "graph facts": FactsDocument,
    "graph forget": ForgottenDocument,
    "graph timeline": FactsDocument,
    "index": IndexDocument,
    "ingest": IngestDocument,
    "logs query": EventsDocument,
    "logs show": TraceDocument,
    "logs tail": EventsDocument,
    "pack": MemoryContextPackReply,
    "replay": ReplayDocument,
    "restore": BackupDocument,
    "search": SearchDocument,
    "status": MemoryStatusReply,
    "watch": WatchDocument,
    "weights diff": DifferenceDocument,
    "weights history": HistoryDocument,
    "weights rollback": WeightsDocument,
    "weights set": WeightsDocument,
    "weights show": WeightsDocument,
    "workspace adopt": AdoptedDocument,
    "workspace list": WorkspacesDocument,
    "workspace prune": PrunedDocument,
}
TOLD_ELSEWHERE = {
    "backends list": ("status",),
    "experiment start": ("experiment stop",),
    "experiment status": ("experiment stop",),
    "feedback stats": ("advise", "weights show"),
    "restore": ("backup",),
    "graph export": ("graph entities", "graph facts"),
    "graph timeline": ("graph facts",),
    "weights rollback": ("weights show",),
    "weights set": ("weights show",),
}
"""Commands whose documents hold what those of others show in full."""
SHARED = {"--workspace", "-w", "--state-dir", "--json", "--help", "-h"}
WITHOUT_SHARED = {
    "demo": {"--workspace", "-w", "--state-dir"},
    "mcp": {"--json"},
    "workspace list": {"--workspace", "-w"},
    "workspace prune": {"--workspace", "-w"},
}
"""Commands that lack a shared option; the page says so."""


@cache
def sections() -> dict[str, str]:
    """Return the text under each heading; under the name of the command where it is about one."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {title.removeprefix("cmem "): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}


@cache
def commands() -> dict[str, set[str]]:
    """Return every command with its options."""
    return dict(_leaves(typer.main.get_command(app), ""))


def _leaves(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    is_group = hasattr(command, "list_commands")
    context = typer.Context(command)
    for word in command.list_commands(context) if is_group else ():
        yield from _leaves(command.get_command(context, word), f"{name} {word}".strip())
    if not is_group:
        options = {
            name
            for param in command.params
            for name in param.opts
            if name.startswith("-") and not getattr(param, "hidden", False)
        }
        yield name, options | {"--help", "-h"}


def options_on_the_page(text: str) -> set[str]:
    cells = re.findall(r"^\| (`-.*?) \|", text, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(--?[a-z-]+)", cell)}


def examples(text: str) -> list[dict[str, object]]:
    return [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)]


def names_in(value: object) -> set[str]:
    match value:
        case dict():
            return set(value).union(*map(names_in, value.values()))
        case list():
            return set().union(*map(names_in, value))
    return set()


def names_of(document: type[Document]) -> set[str]:
    schema = document.model_json_schema(by_alias=True)
    parts = [schema, *schema.get("$defs", {}).values()]
    return {name for part in parts for name in part.get("properties", {})}


def test_the_page_has_a_section_for_every_command_and_no_other() -> None:
    assert sections().keys() - {"What all commands share"} == commands().keys()


def test_the_shared_options_are_explained_once() -> None:
    assert options_on_the_page(sections()["What all commands share"]) == SHARED


@pytest.mark.parametrize("command", sorted(commands()))
def test_the_options_of_a_command_are_those_on_the_page(command: str) -> None:
    own = commands()[command] - SHARED
    shared = SHARED - WITHOUT_SHARED.get(command, set())

    assert options_on_the_page(sections()[command]) == own
    assert commands()[command] & SHARED == shared


@pytest.mark.parametrize("command", sorted(DOCUMENTS))
def test_every_example_is_a_document_of_its_command(command: str) -> None:
    found = examples(sections()[command])

    assert found
    for example in found:
        DOCUMENTS[command].model_validate(example)


@pytest.mark.parametrize("command", sorted(DOCUMENTS))
def test_every_key_of_a_document_is_in_an_example(command: str) -> None:
    places = (command, *TOLD_ELSEWHERE.get(command, ()))
    shown = set().union(*(names_in(examples(sections()[place])) for place in places))
    if DOCUMENTS[command] is EventsDocument:
        shown |= {"hasMore"}  # only `logs query` has pages

    assert names_of(DOCUMENTS[command]) - shown == set()


def test_the_example_of_the_demo_has_the_keys_of_its_document() -> None:
    (example,) = examples(sections()["demo"])

    assert list(example) == [field.alias for field in DemoDocument.model_fields.values()]


def test_every_command_with_json_has_an_example() -> None:
    with_json = {name for name, options in commands().items() if "--json" in options}

    assert with_json == {*DOCUMENTS, "demo"}


def test_every_exit_code_is_explained() -> None:
    codes = re.findall(r"^\| (\d+) \|", sections()["What all commands share"], flags=re.MULTILINE)

    assert {int(code) for code in codes} == {*map(int, ExitCode), 130}
