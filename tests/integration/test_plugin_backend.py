"""A backend of an installed package: found by its entry point, and set up by its section like any of ours."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.errors import ConfigError
from composable_memory.tools.status import MemoryStatusRequest, memory_status
from composable_memory.types import QueryResponse
from tests.installed_packages import install

PLUGIN = """
import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from composable_memory.interfaces import BackendSpec
from composable_memory.config.settings import SettingsModel
from composable_memory.config.trust import only
from composable_memory.testing.fakes import SlowBackend

class WikiSettings(SettingsModel):
    page: str = "start.md"
    delay_s: float = 0.0
    hides_status: bool = False

class Wiki(SlowBackend):
    def status(self):
        return replace(super().status(), custom={"pagesOfTheWiki": 3, "searchMode": "by page"})

class Hiding(SlowBackend):
    def status(self):
        raise RuntimeError("the wiki is asleep")

OPENED = []

@asynccontextmanager
async def open_wiki(settings, services):
    kind = Hiding if settings.hides_status else Wiki
    notes = {settings.page: "Tides are high on Monday."}
    OPENED.append(kind(settings.delay_s, notes, backend_id=services.backend_id))
    yield OPENED[-1]

spec = BackendSpec(
    id="wiki",
    summary="a wiki",
    settings=WikiSettings,
    open=open_wiki,
    condition=lambda intent: bool(intent.topics),
    trust={"page": only("start.md", "other.md")},
)
"""

COMMANDS = """
import typer
from composable_memory.cli.plugin_api import AsJson, Target, command, print_json, print_line

wiki = typer.Typer(help="Look at the wiki.")

@command(wiki, "page")
async def page(target: Target, name: str, *, as_json: AsJson = False) -> None:
    "Show a page."
    from composable_memory import open_memory

    async with open_memory(target.workspace, target.state_dir) as memory:
        (found,) = await memory.search(name)
    if as_json:
        print_json({"text": found.snippet})
    else:
        print_line(found.snippet)

@wiki.command("pages")
def pages() -> None:
    "List the pages."
"""
SPECS = """
from composable_memory.cli.plugin_api import CommandSpec

lazy = CommandSpec("Look at the wiki, later.", "wiki_of_this_test_later:wiki")
missing = CommandSpec("Of no use.", "wiki_of_this_test_commands:nothing")
absent = CommandSpec("Needs more.", "wiki_of_this_test_absent:wiki", extra="pages")
"""
ENTRY_POINTS = """
[composable_memory.backends]
wiki = wiki_of_this_test:spec

[composable_memory.commands]
wiki = wiki_of_this_test_commands:wiki
search = wiki_of_this_test_commands:wiki
broken = wiki_of_this_test_commands:nothing
lazy = wiki_of_this_test_specs:lazy
missing = wiki_of_this_test_specs:missing
absent = wiki_of_this_test_specs:absent
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    install(
        site,
        "wiki-of-this-test",
        ENTRY_POINTS,
        wiki_of_this_test=PLUGIN,
        wiki_of_this_test_commands=COMMANDS,
        wiki_of_this_test_later=COMMANDS,
        wiki_of_this_test_specs=SPECS,
    )
    monkeypatch.syspath_prepend(site)
    yield
    for name in [one for one in sys.modules if one.startswith("wiki_of_this_test")]:
        del sys.modules[name]


async def asked(
    folders: tuple[Path, Path], section: dict[str, object], query: str = "#tides high"
) -> QueryResponse:
    config = {"embedding": {"provider": "none"}, "builtin": {"enabled": False}, "backends": {"wiki": section}}
    async with open_memory(*folders, config) as memory:
        return await memory.query(query)


@pytest.fixture
def folders(installed: None, workspace: Path, state_dir: Path) -> tuple[Path, Path]:
    return workspace, state_dir


async def test_naming_its_section_is_enough(folders: tuple[Path, Path]) -> None:
    response = await asked(folders, {})

    assert [(one.path, one.source_backend) for one in response.results] == [("start.md", "wiki")]


async def test_its_own_settings_reach_it(folders: tuple[Path, Path]) -> None:
    response = await asked(folders, {"page": "tides.md"})

    assert [one.path for one in response.results] == ["tides.md"]


async def test_a_wrong_key_is_refused_with_the_nearest(folders: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"unknown key; did you mean 'memory\.wiki\.page'"):
        await asked(folders, {"pgae": "tides.md"})


async def test_its_section_stands_where_ours_do(folders: tuple[Path, Path]) -> None:
    config = {"embedding": {"provider": "none"}, "builtin": {"enabled": False}}
    section = {"enabled": True, "page": "tides.md"}
    async with open_memory(*folders, {**config, "wiki": section}) as memory:
        response = await memory.query("#tides high")

    assert [one.path for one in response.results] == ["tides.md"]


@pytest.mark.parametrize(
    ("said", "refused"), [("page: other.md", None), ("page: x", "page"), ("delay_s: 1", "delay_s")]
)
async def test_a_workspace_may_set_what_its_trust_rules_allow(
    folders: tuple[Path, Path], said: str, refused: str | None
) -> None:
    file = folders[0] / ".composable-memory.yaml"
    file.write_text(f"memory:\n  wiki:\n    {said}\n", "utf-8")
    if refused is None:
        (result,) = (await asked(folders, {})).results
        assert result.path == "other.md"
        return
    with pytest.raises(ConfigError) as caught:
        await asked(folders, {})
    assert (caught.value.key, caught.value.origin) == (f"memory.wiki.{refused}", f"{file}:3")


async def test_its_weight_counts(folders: tuple[Path, Path]) -> None:
    response = await asked(folders, {"weight": 0.5})

    assert [one.weight for one in response.attributions] == [0.5]


@pytest.mark.parametrize(
    ("section", "query", "skipped"),
    [
        ({}, "#tides high", None),
        ({}, "high tides", "condition"),
        ({"condition": []}, "high tides", None),
        ({"condition": ["entities"]}, "#tides high", "condition"),
        ({"condition": ["entities", "times"]}, "tides on 2026-03-02", None),
    ],
)
async def test_its_condition_holds_unless_its_section_has_another(
    folders: tuple[Path, Path], section: dict[str, object], query: str, skipped: str | None
) -> None:
    response = await asked(folders, section, query)

    assert [one.skipped for one in response.answers] == [skipped]


async def test_it_gets_the_intent_of_a_query_and_says_how_it_searches(folders: tuple[Path, Path]) -> None:
    config = {"embedding": {"provider": "none"}, "builtin": {"enabled": False}, "backends": {"wiki": {}}}
    async with open_memory(*folders, config) as memory:
        response = await memory.query("#tides high on 2026-03-02")
        status = memory.status()

    ((_, options),) = sys.modules["wiki_of_this_test"].OPENED[-1].asked
    assert options.intent == response.intent
    assert options.intent.topics == ("tides",)
    assert status.search_mode == "by page"


async def test_its_deadline_holds(folders: tuple[Path, Path]) -> None:
    response = await asked(folders, {"delay_s": 30, "timeout_ms": 20})

    assert [(one.backend_id, one.code) for one in response.degraded] == [("wiki", "timeout")]


async def test_the_builtin_index_stands_in_for_it(installed: None, workspace: Path, state_dir: Path) -> None:
    config = {
        "backend": "wiki",
        "builtin": {"sync": {"onSearchWaitMs": 60_000}},  # its first question has the index made
        "embedding": {"provider": "none"},
        "backends": {"wiki": {"delay_s": 30, "timeout_ms": 20, "condition": []}},
    }
    async with open_memory(workspace, state_dir, config) as memory:
        response = await memory.query("harbour ferry")

    assert response.results
    assert [(one.backend_id, one.code) for one in response.degraded if one.code == "fallback"] == [
        ("wiki", "fallback")
    ]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("has_builtin", [True, False])
async def test_a_status_that_raises_is_the_failure_of_its_backend_alone(
    tmp_path: Path, has_builtin: bool
) -> None:
    config = {
        "embedding": {"provider": "none"},
        "builtin": {"enabled": has_builtin},
        "backends": {"wiki": {"enabled": True, "hides_status": True}},
    }
    (tmp_path / "notes").mkdir()
    async with open_memory(tmp_path / "notes", tmp_path / "state", config) as memory:
        reply = await memory_status(memory, MemoryStatusRequest())

    assert "the wiki is asleep" in str(reply.backends["wiki"].custom["problem"])
    assert (reply.status.backend == "builtin") is has_builtin


def test_its_commands_are_commands_of_cmem(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "memory: {embedding: {provider: none}, builtin: {enabled: false}, backends: {wiki: {}}}"
    )
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))
    place = ["--workspace", str(folders[0]), "--state-dir", str(folders[1])]

    listed = CliRunner().invoke(app, ["--help"])
    shown = CliRunner().invoke(app, ["wiki", "page", "#tides", *place, "--json"])
    unknown = CliRunner().invoke(app, ["wiky"])
    status = CliRunner().invoke(app, ["status", *place])

    assert re.search(r"pages of the wiki +3", status.output)
    assert "Look at the wiki." in listed.output
    assert json.loads(shown.stdout) == {"text": "Tides are high on Monday."}
    assert "'wiki'" in unknown.output


def test_its_commands_neither_replace_nor_break_others(installed: None) -> None:
    ours = CliRunner().invoke(app, ["search", "--help"])
    broken = CliRunner().invoke(app, ["broken", "page", "--json"])

    assert "QUERY" in ours.output
    assert broken.exit_code == 1
    assert "wiki-of-this-test" in broken.output
    assert "nothing" in broken.output


def test_commands_behind_a_spec_are_imported_when_one_runs(installed: None) -> None:
    listed = CliRunner().invoke(app, ["--help"])
    assert "wiki_of_this_test_later" not in sys.modules

    ran = CliRunner().invoke(app, ["lazy", "pages"])
    missing = CliRunner().invoke(app, ["missing", "page"])

    assert "Look at the wiki, later." in listed.output
    assert ran.exit_code == 0
    assert "wiki_of_this_test_later" in sys.modules
    assert missing.exit_code == 1
    assert "nothing" in missing.output


def test_a_command_whose_package_is_not_installed_names_the_extra_that_brings_it(installed: None) -> None:
    absent = CliRunner().invoke(app, ["absent", "page", "--workspace", "x"])

    assert absent.exit_code == 1
    assert "the package wiki_of_this_test_absent is not installed" in absent.output
    assert "pip install 'wiki-of-this-test[pages]'" in absent.output


TWO = {"home": {"kind": "wiki", "page": "home.md"}, "work": {"kind": "wiki", "weight": 0.5}}


async def test_sections_of_one_kind_are_backends_of_their_own(folders: tuple[Path, Path]) -> None:
    config = {
        "embedding": {"provider": "none"},
        "builtin": {"enabled": False},
        "query": {"dedup": "exact"},
        "backends": TWO,
    }
    async with open_memory(*folders, config) as memory:
        response = await memory.query("#tides high")
    found = {(one.source_backend, one.path) for one in response.results}
    assert found == {("home", "home.md"), ("work", "start.md")}


def test_sections_of_one_kind_are_listed(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(json.dumps({"memory": {"backends": TWO}}), encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(own))
    places = ["--workspace", str(folders[0]), "--state-dir", str(folders[1]), "--json"]
    listed = json.loads(CliRunner().invoke(app, ["backends", "list", *places]).stdout)["backends"]
    shown = {one["id"]: (one["enabled"], one.get("summary")) for one in listed}
    assert shown["home"] == shown["work"] == (True, "a wiki")
    assert shown["wiki"] == (False, "a wiki")


async def test_a_kind_that_nobody_offers_is_named(folders: tuple[Path, Path]) -> None:
    config = {"embedding": {"provider": "none"}, "backends": {"home": {"kind": "gopher"}}}
    async with open_memory(*folders, config) as memory:
        (lost,) = memory.unavailable()
    assert (lost.backend_id, "gopher" in lost.reason, "wiki" in lost.reason) == ("home", True, True)


async def test_an_installed_backend_is_of_its_own_kind(folders: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"memory\.qmd\.kind"):
        async with open_memory(*folders, {"backends": {"qmd": {"kind": "wiki"}}}):
            pass
