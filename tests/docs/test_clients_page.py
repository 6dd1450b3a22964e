"""The page on clients shows the files as they are written, and the commands that exist."""

import re
import shlex
from pathlib import Path

import pytest

from composable_memory.connect.clients import CLIENTS, Places, Scope
from composable_memory.connect.edits import plan

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^`~/([^`]+)`:\n\n```(?:json|toml)\n(.*?)```", re.MULTILINE | re.DOTALL)
HOME = Path("/home/you")
SHOWN: list[tuple[str, Scope]] = [(name, "project" if name == "vscode" else "user") for name in CLIENTS]


@pytest.mark.parametrize(("name", "scope"), SHOWN)
def test_each_file_is_shown_as_it_is_written(name: str, scope: Scope) -> None:
    client, notes = CLIENTS[name], HOME / "notes"
    places = Places(home=HOME, project=notes, environ={}, platform="linux")
    words, options = [f"{HOME}/.local/bin/cmem"], ["--workspace", str(notes)]
    written = plan(client, places, scope, words, options, hooks=True)

    shown = BLOCK.findall(SECTIONS[client.title])
    assert shown == [
        (str(edit.path.relative_to(HOME)), f"{(edit.after or '').rstrip()}\n") for edit in written
    ]


def test_the_lines_to_copy_name_every_client() -> None:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    connects = [shlex.split(line) for line in lines if line.startswith("cmem connect")]

    assert {words[2] for words in connects} == {*CLIENTS, "generic"}


def test_the_table_names_the_files_of_each_scope() -> None:
    for name, client in CLIENTS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| [`{name}`]")]
        places = Places(home=HOME, project=Path("/p"), environ={}, platform="linux")
        for files in (client.servers, client.hook_files):
            for paths in files.values():
                assert places.find(paths).name in row
