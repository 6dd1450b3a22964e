"""The list of collections as the real QMD takes it up: nothing is dropped and added again, nor lost."""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from composable_memory.supervision.run_command import Reply, run_command
from composable_memory_adapters.qmd.collections import canonical_path, plan_collections, resolve
from composable_memory_adapters.qmd.glob_patterns import parse_pattern
from composable_memory_adapters.qmd.home import prepare_home, read_config, write_collections
from composable_memory_adapters.qmd.installation import find_command
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import Collection, Home

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RealQmd:
    """The real QMD in a home of its own, over a workspace."""

    settings: QmdSettings
    command: Sequence[str]
    home: Home
    workspace: Path

    async def start(self, *paths: object) -> tuple[tuple[Collection, ...], bool]:
        """Hand it the collections, as at every start; return them, and whether anything had to be written."""
        return await asyncio.to_thread(self._start, paths)

    def _start(self, paths: tuple[object, ...]) -> tuple[tuple[Collection, ...], bool]:
        settings = QmdSettings.model_validate({**self.settings.model_dump(), "paths": paths})
        plan = plan_collections(settings, workspace=self.workspace, export_dir=None)
        assert plan.problems == ()
        return plan.collections, write_collections(self.home, plan.collections, settings.models)

    async def run(self, *words: str) -> Reply:
        """Run one of its commands to its end."""
        reply = await run_command(
            [*self.command, "--index", "index", *words],
            environ=self.home.environ,
            cwd=self.home.root,
            timeout_s=PATIENCE_S,
            owner="qmd",
            operation=words[0],
        )
        assert reply.code == 0, reply
        return reply

    def documents(self) -> list[tuple[object, ...]]:
        """Return what its index holds: id, collection, path, when it was added."""
        with closing(sqlite3.connect(self.home.index_file)) as index:
            return index.execute(
                "SELECT id, collection, path, created_at FROM documents WHERE active ORDER BY id"
            ).fetchall()

    def paths(self) -> list[tuple[object, ...]]:
        """Return the collection and the path of every document."""
        return sorted(row[1:3] for row in self.documents())

    def collections(self) -> set[str]:
        """Return the names of the collections that it knows."""
        with closing(sqlite3.connect(self.home.index_file)) as index:
            return {name for (name,) in index.execute("SELECT name FROM store_collections")}


@pytest.fixture
def qmd(qmd_command: str, state_dir: Path, tmp_path: Path) -> RealQmd:
    workspace = Path(os.path.realpath(tmp_path)) / "my [work] space ü日"
    write(workspace / "MEMORY.md", "# Main\n\nthe main file\n")
    write(workspace / "memory" / "2026 [draft]" / "an ö note.md", "# Note\n\na note on ferries\n")
    settings = QmdSettings(command=qmd_command)
    home = prepare_home(settings, state_dir=state_dir, agent_id="main", workspace_id="notes")
    command = find_command(qmd_command, home.environ)
    return RealQmd(settings=settings, command=command, home=home, workspace=workspace)


def there_and_back(
    collection: Collection, path: str, collections: Sequence[Collection], workspace: Path
) -> Path:
    return resolve(canonical_path(collection, path, workspace), collections, workspace)


def write(file: Path, text: str = "# Text\n\nsome text\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


async def test_an_update_takes_the_list_up_whatever_the_folders_are_called(qmd: RealQmd) -> None:
    elsewhere = qmd.workspace.parent / "{else} 'where' #1"
    write(elsewhere / "wiki page.md")

    collections, _ = await qmd.start(str(elsewhere))
    await qmd.run("update")

    found = qmd.paths()
    assert found == [
        ("else-where-1", "wiki page.md"),
        ("memory-dir", "2026 [draft]/an ö note.md"),
        ("memory-root", "MEMORY.md"),
    ]
    by_name = {one.name: one for one in collections}
    for name, path in found:
        collection = by_name[str(name)]
        file = await asyncio.to_thread(there_and_back, collection, str(path), collections, qmd.workspace)
        assert file == collection.path / str(path)


@pytest.mark.thorough
async def test_a_second_start_drops_nothing_and_adds_nothing_again(qmd: RealQmd) -> None:
    await qmd.start()
    await qmd.run("update")
    before = qmd.documents()

    _, has_written = await qmd.start()
    again = await qmd.run("update")

    assert not has_written
    assert "0 new, 0 updated, 1 unchanged, 0 removed" in again.stdout
    assert qmd.documents() == before


@pytest.mark.thorough
async def test_another_collection_leaves_the_others_as_they_are(qmd: RealQmd) -> None:
    write(qmd.workspace / "docs" / "a.md")
    await qmd.start()
    await qmd.run("update")
    before = qmd.documents()

    await qmd.start("docs")
    await qmd.run("update")

    assert qmd.documents()[:-1] == before
    assert qmd.documents()[-1][1:3] == ("docs", "a.md")


async def test_a_collection_that_is_no_longer_named_is_dropped(qmd: RealQmd) -> None:
    write(qmd.workspace / "docs" / "a.md")
    await qmd.start("docs")
    await qmd.run("update")

    await qmd.start()
    await qmd.run("update")

    assert qmd.collections() == {"memory-root", "memory-dir", "bank-dir"}


async def test_what_was_added_by_hand_stays(qmd: RealQmd) -> None:
    write(qmd.workspace.parent / "theirs" / "b.md")
    await qmd.start()
    await qmd.run("update")
    await qmd.run("context", "add", "qmd://memory-dir", "yes")
    await qmd.run("collection", "add", str(qmd.workspace.parent / "theirs"), "--name", "theirs")
    models = (await asyncio.to_thread(read_config, qmd.home.config_file))["models"]

    _, has_written = await qmd.start()
    await qmd.start({"path": "memory", "pattern": "x/*.md"})
    await qmd.run("update")

    config = await asyncio.to_thread(read_config, qmd.home.config_file)
    collections = config["collections"]
    assert isinstance(collections, dict)
    assert not has_written
    assert set(collections) == {"memory-root", "memory-dir", "bank-dir", "theirs", "memory"}
    assert collections["memory-dir"]["context"] == {"": "yes"}
    assert config["models"] == models != {}
    assert ("theirs", "b.md") in qmd.paths()


async def test_a_memory_folder_that_is_made_later_is_indexed_then(qmd: RealQmd) -> None:
    folder = qmd.workspace / "memory"
    folder.rename(folder.with_name("elsewhere"))
    await qmd.start()
    await qmd.run("update")
    assert qmd.paths() == [("memory-root", "MEMORY.md")]

    folder.with_name("elsewhere").rename(folder)
    await qmd.run("update")

    assert ("memory-dir", "2026 [draft]/an ö note.md") in qmd.paths()


async def test_no_configuration_of_others_is_taken_or_touched(qmd: RealQmd, state_dir: Path) -> None:
    foreign = "collections:\n  foreign:\n    path: /nowhere\n    update: touch /nowhere\n"
    theirs = [
        write(folder / "index.yml", foreign)
        for folder in (state_dir / ".qmd", qmd.workspace / ".qmd", Path.home() / ".config" / "qmd")
    ]

    await qmd.start()
    await qmd.run("update")

    assert qmd.collections() == {"memory-root", "memory-dir", "bank-dir"}
    assert [file.read_text(encoding="utf-8") for file in theirs] == [foreign] * 3
    indexes = [
        *(file.with_name("index.sqlite") for file in theirs),
        Path.home() / ".cache" / "qmd" / "index.sqlite",
    ]
    assert not any(map(os.path.exists, indexes))


PATTERNS = (
    "**/*.md",
    "*.md",
    "*",
    "**",
    "**/**",
    "{MEMORY,memory}.md",
    "./*.md",
    "memory//x.md",
    "memory/**",
    "memory/**/y.md",
    "**/b/**",
    "memory/**/**/y.md",
    "{memory/,}x.md",
    "{memory,notes}/**/*.md",
    "{memory/a,notes}/{y,b/z}.md",
    "{a,{b,ab}}.md",
    "{a, b}.md",
    "a.md , *.txt",
    "**/*.{md,txt}",
    "?.md",
    "[a-b].md",
    "[!a]*.md",
    "*[ab]?.md",
    "a[$]*.md",
    "@*.md",
    "#x.md",
    "a^*.md",
    "a~*.md",
    "x!*.md",
    "a;b.md",
    "**/*.md,!drafts",
    "**/*.md,!draft*",
    "**/*.md,!**/drafts",
    "**/*.md,!drafts/**",
    "**/*.md,!memory/*",
    "*.MD",
    ".hidden/*.md",
    "{a}.md",
    "*.@(md|txt)",
    "/etc/*",
    "../*.md",
)

FILES = (
    *(
        "MEMORY.md",
        "memory.md",
        "a.md",
        "b.md",
        "ab.md",
        "a b.md",
        " b.md",
        "x!.md",
        "A.MD",
        "n.txt",
        "build",
    ),
    *(
        "@x.md",
        "#x.md",
        "a^.md",
        "a~.md",
        "a;b.md",
        "a$.md",
        "{a}.md",
        "drafts.md",
        "drafts/d.md",
        "memory/x.md",
    ),
    *("memory/a/y.md", "notes/b/z.md", "notes/n.txt", "dist/q.md", "a/node_modules/q.md", ".hidden/h.md"),
    *("a/.h.md", "a/drafts/e.md", "a/vendor.md"),
)


def understood(patterns: Sequence[str]) -> dict[str, str]:
    """Return the patterns that we take, each under the name of a collection."""
    taken = {}
    for number, pattern in enumerate(patterns):
        try:
            parse_pattern(pattern)
        except ValueError:
            continue
        taken[f"p{number}"] = pattern
    return taken


async def test_a_pattern_covers_exactly_what_qmd_indexes(qmd: RealQmd) -> None:
    root = qmd.workspace.parent / "files"
    for name in FILES:
        write(root / name)
    (root / "link.md").symlink_to(root / "a.md")
    (root / "linked").symlink_to(root / "memory")
    patterns = understood(PATTERNS)

    collections = [Collection(name=name, path=root, pattern=pattern) for name, pattern in patterns.items()]
    await asyncio.to_thread(write_collections, qmd.home, collections, qmd.settings.models)
    await qmd.run("update")

    indexed = qmd.paths()
    for one in collections:
        readable = {file for file in FILES if parse_pattern(one.pattern).covers(file)}
        assert readable == {path for name, path in indexed if name == one.name}, one.pattern
    assert len(patterns) == len(PATTERNS) - 6
