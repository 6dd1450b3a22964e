"""What `.gitignore` files leave out, compared with git itself."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from composable_memory.gitignore import GitIgnore

NAMES = ("a", "b", "ab", "a.log", "b.log", "build", "c d", "[x]", "#h", "!n", "a]")
PARTS = (
    *("a", "b", "ab", "*", "?", "**", "/", "[ab]", "[!a]", "[^b]", "[a-c]", "[]]", "[[:alpha:]]", "\\[x]"),
    *("*.log", "build", "\\#h", "!", "#", " ", "\\ "),
)
GIT = shutil.which("git")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def everything_in(root: Path) -> list[Path]:
    return [path for path in sorted(root.rglob("*")) if path.relative_to(root).parts[0] != ".git"]


def left_out(root: Path) -> set[str]:
    rules = GitIgnore(str(root))
    return {
        path.relative_to(root).as_posix()
        for path in everything_in(root)
        if rules.leaves_out(str(path), is_folder=path.is_dir())
    }


def ignored_by_git(root: Path) -> set[str]:
    assert GIT is not None
    paths = "\0".join(str(path.relative_to(root)) for path in everything_in(root))
    command = [GIT, "-C", str(root), "check-ignore", "-z", "--stdin", "--no-index"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, input=paths, capture_output=True, text=True, check=False, env=environ)
    return set(done.stdout.split("\0")) - {""}


@pytest.mark.thorough
@pytest.mark.skipif(GIT is None, reason="git is not installed")
def test_trees_with_random_patterns_are_read_as_git_reads_them(root: Path) -> None:
    assert GIT is not None
    chance = random.Random(7)
    for number in range(25):
        tree = root / str(number)
        subprocess.run([GIT, "init", "-q", str(tree)], check=True)
        for _ in range(25):
            path = tree.joinpath(*chance.choices(NAMES, k=chance.randint(1, 4)))
            if not any(one.is_file() for one in (path, *path.parents)) and not path.exists():
                write(path)
        folders = [tree, *(path for path in everything_in(tree) if path.is_dir())]
        for folder in {tree, *chance.sample(folders, 2)}:
            lines = ("".join(chance.choices(PARTS, k=chance.randint(1, 5))) for _ in range(5))
            write(folder / ".gitignore", "\n".join((*lines, f"!{chance.choice(NAMES)}", "")))
        write(tree / ".git/info/exclude", "ab\r\n")

        ignored = ignored_by_git(tree)
        assert left_out(tree) == ignored, number
        logs = GitIgnore(str(tree), {".log"})
        found = {
            str(one.relative_to(tree))
            for one in tree.rglob("*.log")
            if one.is_file() and logs.leaves_out(str(one))
        }
        assert found == {one for one in ignored if one.endswith(".log") and (tree / one).is_file()}, number


def test_of_a_folder_within_a_repository_the_rules_above_it_count(root: Path) -> None:
    write(root / ".git/info/exclude", "mine.md\n")
    write(root / ".gitignore", "*.tmp.md\n/docs/old\n/old\n")
    write(root / "docs/.gitignore", "\ufeffprivate/\n!kept.tmp.md\n")
    for path in ("mine.md", "a.tmp.md", "kept.tmp.md", "old/b.md", "x/private/c.md", "x/old/d.md"):
        write(root / "docs" / path)

    assert left_out(root / "docs") == {
        "mine.md",
        "a.tmp.md",
        "old",
        "old/b.md",
        "x/private",
        "x/private/c.md",
    }


def test_what_cannot_be_read_is_named_and_ignores_nothing(root: Path) -> None:
    write(root / "a.md")
    (root / ".gitignore").symlink_to(root / "a.md")
    write(root / "x/.gitignore", "#" * 2**20 + "\n*")
    rules = GitIgnore(str(root))

    assert not rules.leaves_out(str(root / "x/b.md"))
    assert set(rules.unreadable) == {str(root / ".gitignore"), str(root / "x/.gitignore")}


@pytest.mark.security
def test_no_pattern_takes_long(root: Path) -> None:
    patterns = (
        "*a" * 60 + "b",
        "**/a/" * 40 + "b",
        "[a-c]*" * 50 + "x",
        "**/*a*/" * 30 + "b",
        "a**" * 50 + "/b",
    )
    paths = ["a" * 250, "/".join("a" * 500), "/".join(["a" * 200] * 15)]
    write(root / ".gitignore", "\n".join(patterns))
    rules = GitIgnore(str(root))
    for path in paths:  # with patterns that go back it would take years
        assert not rules.leaves_out(f"{root}/{path}")
