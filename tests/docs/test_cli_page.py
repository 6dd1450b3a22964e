"""The page on the command line and the program agree, in both directions."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from composable_memory.cli import app
from composable_memory.cli.command import ExitCode
from composable_memory.cli.command_group import all_commands
from composable_memory.cli.commands import COMMANDS
from composable_memory.json_documents import json_name
from tests.cli_page import PAGES, examples, keys_in, sections

SOURCES = [
    Path(__file__).parents[2] / folder for folder in ("composable_memory", "adapters", "feedback", "ops_logs")
]
WITHOUT_EXAMPLE = {"demo"}
"""Its document is made of those of other commands."""
SHARED = {"--workspace", "-w", "--state-dir", "--json", "--help", "-h"}
WITHOUT_SHARED = {
    "demo": {"--workspace", "-w", "--state-dir"},
    "hook": {"--json"},
    "mcp": {"--json"},
    "trust": {"--workspace", "-w"},
    "workspace list": {"--workspace", "-w"},
    "workspace prune": {"--workspace", "-w"},
}
"""Commands that lack a shared option; the page says so."""


@cache
def commands() -> dict[str, set[str]]:
    """Return every command with its options."""
    return {path: options for name, one in all_commands(app).items() for path, options in _leaves(one, name)}


def _leaves(command: Any, name: str) -> Iterator[tuple[str, set[str]]]:
    for word, inner in getattr(command, "commands", {}).items():
        yield from _leaves(inner, f"{name} {word}")
    if not hasattr(command, "commands"):
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


@cache
def names_in_the_program() -> set[str]:
    """Return every word of the sources, also as it would be a key of JSON."""
    text = "\n".join(path.read_text(encoding="utf-8") for folder in SOURCES for path in folder.rglob("*.py"))
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    return words | {json_name(word) for word in words if word.islower()}


def test_the_page_has_a_section_for_every_command_and_no_other() -> None:
    assert sections().keys() - {"What all commands share", "All commands"} == commands().keys()


def test_the_list_of_commands_leads_to_each_of_them() -> None:
    listed = re.findall(r"^\| \[`cmem ([^`]+)`\]\((cli/\S+)\)", sections()["All commands"], re.MULTILINE)

    assert dict(listed) == {
        name: f"cli/{page.name}#cmem-{name.replace(' ', '-')}"
        for page in PAGES[1:]
        for name in re.findall(r"^## cmem (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_the_shared_options_are_explained_once() -> None:
    assert options_on_the_page(sections()["What all commands share"]) == SHARED


def test_the_options_of_a_command_are_those_on_the_page() -> None:
    for command, options in commands().items():
        shared = SHARED - WITHOUT_SHARED.get(command, set())

        assert options_on_the_page(sections()[command]) == options - SHARED, command
        assert options & SHARED == shared, command


def test_every_command_with_json_has_an_example() -> None:
    with_json = {name for name, options in commands().items() if "--json" in options}

    assert {name for name in commands() if examples(name)} - WITHOUT_EXAMPLE == with_json - WITHOUT_EXAMPLE


def test_every_key_on_the_page_is_a_name_that_the_program_knows() -> None:
    for command in commands():
        shown = set().union(*map(keys_in, examples(command)))

        assert shown - names_in_the_program() == set(), command


def test_the_list_of_commands_says_what_their_own_help_says() -> None:
    loaded = all_commands(app)
    for name, (_, summary) in COMMANDS.items():
        own = " ".join((loaded[name].help or "").split("\n\n")[0].split())

        assert own.startswith(summary.removesuffix(".")), name


def test_every_exit_code_is_explained() -> None:
    codes = re.findall(r"^\| (\d+) \|", sections()["What all commands share"], flags=re.MULTILINE)

    assert {int(code) for code in codes} == {*map(int, ExitCode), 130}
