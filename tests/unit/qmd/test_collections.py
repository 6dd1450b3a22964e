"""Which folders are indexed, how their files are named, and which of them may be read."""

import os
from pathlib import Path
from typing import Any

import pytest

from composable_memory.errors import MemoryPathError
from composable_memory_adapters.qmd.collections import (
    CollectionPlan,
    canonical_path,
    plan_collections,
    resolve,
)
from composable_memory_adapters.qmd.glob_patterns import parse_pattern
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import Collection

NOTHING_BY_DEFAULT: dict[str, Any] = {"include_default_memory": False}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an empty workspace whose path is real."""
    root = Path(os.path.realpath(tmp_path)) / "workspace"
    root.mkdir()
    return root


def planned(root: Path, *, export_dir: Path | None = None, **options: object) -> CollectionPlan:
    return plan_collections(QmdSettings.model_validate(options), workspace=root, export_dir=export_dir)


def names(plan: CollectionPlan) -> list[str]:
    return [one.name for one in plan.collections]


def write(file: Path, text: str = "text") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


# --- planning -----------------------------------------------------------------------------------------------


def test_memory_files_are_three_collections_though_the_folders_are_not_there_yet(root: Path) -> None:
    plan = planned(root)

    assert plan.problems == ()
    assert plan.collections == (
        Collection(name="memory-root", path=root, pattern="{MEMORY,memory}.md"),
        Collection(name="memory-dir", path=root / "memory", pattern="**/*.md"),
        Collection(name="bank-dir", path=root / "bank", pattern="**/*.md"),
    )


def test_a_workspace_behind_a_link_is_planned_where_it_really_is(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)

    assert {one.path for one in planned(link).collections} == {root, root / "memory", root / "bank"}


def test_exported_sessions_are_a_collection_of_their_own_source(root: Path, tmp_path: Path) -> None:
    [exported] = planned(root, export_dir=tmp_path / "exported", **NOTHING_BY_DEFAULT).collections

    assert (exported.name, exported.source) == ("sessions", "sessions")


@pytest.mark.parametrize(
    ("given", "slug"),
    [
        ("My Notes!", "my-notes"),
        ("Café_Über", "cafe-uber"),
        ("--a--b--", "a-b"),
        ("日本", "collection"),
        ("x" * 80, "x" * 64),
    ],
)
def test_names_are_written_as_qmd_takes_them(root: Path, given: str, slug: str) -> None:
    (root / "docs").mkdir()

    plan = planned(root, paths=[{"path": "docs", "name": given}], **NOTHING_BY_DEFAULT)

    assert names(plan) == [slug]


def test_a_name_that_is_taken_gets_a_number(root: Path) -> None:
    for folder in ("a/notes", "b/Notes", "c/notes"):
        (root / folder).mkdir(parents=True)

    plan = planned(root, paths=["a/notes", "b/Notes", "c/notes"], **NOTHING_BY_DEFAULT)

    assert names(plan) == ["notes", "notes-2", "notes-3"]


def test_a_folder_that_is_named_twice_is_one_collection(root: Path) -> None:
    (root / "docs").mkdir()

    assert names(planned(root, paths=["docs", "./docs/", str(root / "docs")], **NOTHING_BY_DEFAULT)) == [
        "docs"
    ]


def test_a_path_may_be_below_the_home_folder(root: Path) -> None:
    notes = Path.home() / "notes"
    notes.mkdir()

    [collection] = planned(root, paths=["~/notes"], **NOTHING_BY_DEFAULT).collections

    assert collection.path == Path(os.path.realpath(notes))


def test_a_missing_folder_is_a_problem_and_is_not_made(root: Path) -> None:
    plan = planned(root, paths=["gone"], **NOTHING_BY_DEFAULT)

    assert plan.collections == ()
    assert "'gone'" in plan.problems[0]
    assert "does not exist" in plan.problems[0]
    assert not (root / "gone").exists()


@pytest.mark.parametrize(
    "path", ["a\0b", "x" * 300, "\ud800"], ids=["NUL", "a name too long", "no valid Unicode"]
)
def test_a_path_that_can_be_none_is_a_problem(root: Path, path: str) -> None:
    plan = planned(root, paths=[{"path": path}], **NOTHING_BY_DEFAULT)

    assert plan.collections == ()
    assert len(plan.problems) == 1


def test_a_file_is_no_collection(root: Path) -> None:
    write(root / "memory", "a file where the folder belongs")
    write(root / "todo.md")

    plan = planned(root, paths=["todo.md"])

    assert names(plan) == ["memory-root", "bank-dir"]
    assert [problem.rpartition(": ")[2] for problem in plan.problems] == ["it is not a folder"] * 2


@pytest.mark.parametrize("target", ["outside", "workspace"])
def test_a_memory_folder_that_is_a_link_is_left_out(root: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").mkdir()
    for folder in ("memory", "bank"):
        (root / folder).symlink_to(tmp_path / target)

    plan = planned(root)

    assert names(plan) == ["memory-root"]
    assert "symbolic link" in plan.problems[0]


def test_a_folder_of_the_workspace_does_not_lead_out_of_it(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (root / "docs").symlink_to(tmp_path / "secrets")

    plan = planned(root, paths=["docs", str(root / "docs")], **NOTHING_BY_DEFAULT)

    assert plan.collections == ()
    assert len(plan.problems) == 2


def test_a_folder_elsewhere_may_be_behind_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    [collection] = planned(root, paths=["../link"], **NOTHING_BY_DEFAULT).collections

    assert collection.path == Path(os.path.realpath(tmp_path / "real"))


def test_a_pattern_that_is_not_understood_leaves_its_collection_out(root: Path) -> None:
    (root / "docs").mkdir()

    plan = planned(root, paths=[{"path": "docs", "pattern": "*.@(md|txt)"}], **NOTHING_BY_DEFAULT)

    assert plan.collections == ()
    assert "pattern" in plan.problems[0]


# --- patterns -----------------------------------------------------------------------------------------------


def test_a_pattern_covers() -> None:
    for pattern, path in [
        ("**/*.md", "a.md"),
        ("**/*.md", "a/b c/d.md"),
        ("{MEMORY,memory}.md", "memory.md"),
        ("docs/**", "docs/a/b.txt"),
        ("docs/**/x.md", "docs/x.md"),
        ("a.md, *.txt", "b.txt"),
        ("{a,{b,c}}/*.{md,txt}", "c/x.txt"),
        ("[a-c]?.md", "b1.md"),
        ("[!a-c]*.md", "d.md"),
        ("./*.md", "a.md"),
        ("a//b.md", "a/b.md"),
        ("**/*.md,!drafts", "drafts.md"),
        ("**/*.md,!draft*", "drafts/a.md"),
    ]:
        assert parse_pattern(pattern).covers(path), (pattern, path)


def test_a_pattern_does_not_cover() -> None:
    for pattern, path in [
        ("*.md", "a/b.md"),
        ("*.md", "a.MD"),
        ("*.md", "b.md\n"),
        ("{MEMORY,memory}.md", "Memory.md"),
        ("docs/**", "docs"),
        ("docs/**", "docs2/a.md"),
        ("[!a-c]*.md", "a.md"),
        ("**/*.md", ".hidden.md"),
        ("**/*.md", ".git/a.md"),
        ("**/*.md", "a/.b/c.md"),
        ("**/*.md", "x/node_modules/y/a.md"),
        ("**", "dist"),
        ("**/*.md", "a//b.md"),
        ("**/*.md", "../a.md"),
        ("**/*.md", "./a.md"),
        ("**/*.md", ""),
        ("**/*.md,!drafts", "drafts/a.md"),
        ("**/*.md,!drafts/**", "drafts/a/b.md"),
        ("**/*.md,!**/private", "x/private/a.md"),
        ("**/*.md,!private/**", "PRIVATE/a.md"),
    ]:
        assert not parse_pattern(pattern).covers(path), (pattern, path)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " , ",
        "!*.md",
        "*.@(md|txt)",
        "a|b",
        r"a\*.md",
        "'a'.md",
        "{a}.md",
        "{1..3}.md",
        "{a,b",
        "a,b}",
        "{!a,b}.md",
        "${a,b}.md",
        "[a",
        "[]a].md",
        "[[:alpha:]].md",
        "[a,b].md",
        "[^a].md",
        "/etc/*",
        "../*.md",
        "a/../../*.md",
        "{..,a}/*.md",
        ".ssh/*",
        "a**/*.md",
        "docs/",
        "a\0b",
        "x" * 501,
        "{a,b}" * 8,
        "{a,b}" * 90,
    ],
)
def test_a_doubtful_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_pattern(pattern)


def test_no_pattern_takes_long() -> None:
    """Tried one after the other, the ways in which these match would be more than there are atoms."""
    assert not parse_pattern("*a" * 100 + ".md").covers("a" * 250)
    assert not parse_pattern("**/a/" * 99 + "*.md").covers("a/" * 1000 + "b.txt")


# --- names and reading --------------------------------------------------------------------------------------


@pytest.fixture
def readable(root: Path, tmp_path: Path) -> tuple[Collection, ...]:
    """Return the memory files, a folder of the workspace and one elsewhere as collections."""
    (root / "docs").mkdir()
    (tmp_path / "wiki").mkdir()
    return planned(
        root,
        paths=[
            {"path": "docs", "pattern": "**/*.md,**/*.txt,!private"},
            {"path": str(tmp_path / "wiki")},
        ],
    ).collections


def by_name(collections: tuple[Collection, ...], name: str) -> Collection:
    return next(one for one in collections if one.name == name)


def test_a_file_of_the_workspace_has_the_name_that_the_builtin_index_gives_it(
    root: Path, readable: tuple[Collection, ...]
) -> None:
    assert canonical_path(by_name(readable, "memory-root"), "MEMORY.md", root) == "MEMORY.md"
    assert canonical_path(by_name(readable, "memory-dir"), "a b/ü.md", root) == "memory/a b/ü.md"
    assert canonical_path(by_name(readable, "docs"), "x.md", root) == "docs/x.md"


def test_a_file_elsewhere_is_named_by_its_collection(root: Path, readable: tuple[Collection, ...]) -> None:
    assert canonical_path(by_name(readable, "wiki"), "a/b.md", root) == "qmd/wiki/a/b.md"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("memory-root", "MEMORY.md"),
        ("memory-dir", "2026/a b [x].md"),
        ("docs", "notes.txt"),
        ("wiki", "日本/ö.md"),
    ],
)
def test_every_name_leads_back_to_its_file(
    root: Path, readable: tuple[Collection, ...], name: str, path: str
) -> None:
    collection = by_name(readable, name)
    file = write(collection.path / path)

    assert resolve(canonical_path(collection, path, root), readable, root) == file
    assert resolve(f"qmd/{name}/{path}", readable, root) == file


def test_a_file_that_is_not_there_is_named_all_the_same(root: Path, readable: tuple[Collection, ...]) -> None:
    assert resolve("memory/later.md", readable, root) == root / "memory" / "later.md"


def test_a_folder_of_the_workspace_called_qmd_hides_no_collection(root: Path, tmp_path: Path) -> None:
    (tmp_path / "wiki").mkdir()
    collections = planned(root, paths=[".", str(tmp_path / "wiki")]).collections
    elsewhere = write(tmp_path / "wiki" / "a.md")
    here = write(root / "qmd" / "wiki" / "b.md")

    assert resolve("qmd/wiki/a.md", collections, root) == Path(os.path.realpath(elsewhere))
    assert resolve("qmd/wiki/b.md", collections, root) == here


@pytest.mark.parametrize(
    "path",
    [
        "",
        " ",
        "memory/a\0.md",
        "memory/" + "x" * 256 + ".md",
        "memory/\ud800.md",
        "/etc/passwd",
        "~/.ssh/id_rsa",
        "../outside.md",
        "memory/../../outside.md",
        "memory/../secret.md",
        r"memory\..\..\outside.md",
        "qmd/wiki/../../outside.md",
        "qmd/wiki//etc/passwd",
        "qmd/wiki",
        "qmd/wiki/",
        "qmd/unknown/a.md",
        "secret.md",
        "README.txt",
        "memory/a.txt",
        "memory/.hidden.md",
        "memory/.git/a.md",
        "memory/node_modules/a.md",
        "docs/private/a.md",
        "docs/Private/a.md",
        "docs/a.py",
        "memory",
        "memory/folder.md",
    ],
)
def test_what_no_collection_covers_is_not_read(
    root: Path, tmp_path: Path, readable: tuple[Collection, ...], path: str
) -> None:
    for file in (
        *("secret.md", "README.txt", "memory/a.txt", "memory/.hidden.md", "memory/.git/a.md", "docs/a.py"),
        *("memory/node_modules/a.md", "docs/private/a.md", "memory/folder.md/x.md", "../outside.md"),
    ):
        write(root / file)

    with pytest.raises(MemoryPathError) as caught:
        resolve(path, readable, root)

    assert caught.value.allowed == (
        "{MEMORY,memory}.md",
        "memory/**/*.md",
        "bank/**/*.md",
        "docs/**/*.md,**/*.txt,!private",
        "qmd/wiki/**/*.md",
    )
    assert str(tmp_path / "wiki") not in str(caught.value)


@pytest.mark.parametrize("path", ["memory/link.md", "memory/folder/a.md", "memory/dangling.md", "MEMORY.md"])
def test_no_link_is_followed(root: Path, readable: tuple[Collection, ...], path: str) -> None:
    outside = write(root.parent / "outside" / "a.md")
    (root / "memory").mkdir()
    (root / "memory" / "link.md").symlink_to(outside)
    (root / "memory" / "folder").symlink_to(outside.parent)
    (root / "memory" / "dangling.md").symlink_to(root / "gone.md")
    (root / "MEMORY.md").symlink_to(outside)

    with pytest.raises(MemoryPathError, match="symbolic link"):
        resolve(path, readable, root)


def test_a_collection_whose_folder_became_a_link_is_not_read(
    root: Path, readable: tuple[Collection, ...]
) -> None:
    outside = write(root.parent / "outside" / "a.md")
    (root / "memory").symlink_to(outside.parent)

    with pytest.raises(MemoryPathError, match="symbolic link"):
        resolve("memory/a.md", readable, root)


def test_a_pipe_is_not_read(root: Path, readable: tuple[Collection, ...]) -> None:
    os.mkfifo(root / "MEMORY.md")

    with pytest.raises(MemoryPathError, match="not a regular file"):
        resolve("MEMORY.md", readable, root)
