"""The folders and the environment that QMD gets, and the list of collections that it is handed."""

import os
import stat
from pathlib import Path

import pytest

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.qmd.home import (
    prepare_home,
    read_config,
    write_collections,
)
from composable_memory_adapters.qmd.settings import ModelSettings, QmdSettings
from composable_memory_adapters.qmd.types import Collection, Home

NO_MODELS = ModelSettings()
PLAIN = QmdSettings()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a home folder and nothing else."""
    return {"HOME": str(tmp_path / "home"), "PATH": "/nowhere"}


@pytest.fixture
def home(state_dir: Path, environ: dict[str, str]) -> Home:
    return prepare_home(PLAIN, state_dir=state_dir, agent_id="main", workspace_id="notes", environ=environ)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- folders ------------------------------------------------------------------------------------------------


def test_its_folders_are_below_the_state_of_the_agent_and_closed_to_others(state_dir: Path) -> None:
    root = state_dir / "agents" / "main" / "qmd-notes"
    root.mkdir(parents=True, mode=0o755)

    home = prepare_home(PLAIN, state_dir=state_dir, agent_id="main", workspace_id="notes")

    assert home.root == root
    assert mode_of(root) == 0o700
    assert home.config_file.parent.is_dir()
    assert home.index_file.parent.is_dir()


def test_a_folder_for_transcripts_is_made_only_where_they_are_exported_to_it(state_dir: Path) -> None:
    for exporting, agent in ((False, "a"), (True, "b")):
        settings = QmdSettings.model_validate({"sessions": {"enabled": exporting}})

        home = prepare_home(settings, state_dir=state_dir, agent_id=agent, workspace_id="notes")

        assert (home.root / "sessions").exists() is exporting


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(BackendUnavailable, match=r"file/agents.*another state folder"):
        prepare_home(PLAIN, state_dir=tmp_path / "file", agent_id="main", workspace_id="notes")


def test_models_are_those_of_the_user(home: Home, tmp_path: Path) -> None:
    assert home.models_dir.resolve() == tmp_path / "home" / ".cache" / "qmd" / "models"
    assert home.models_dir.is_dir()


def test_models_are_where_the_user_keeps_caches(state_dir: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "caches")}

    home = prepare_home(PLAIN, state_dir=state_dir, agent_id="main", workspace_id="notes", environ=environ)

    assert home.models_dir.resolve() == tmp_path / "caches" / "qmd" / "models"


def test_models_that_are_there_stay(home: Home, state_dir: Path, environ: dict[str, str]) -> None:
    home.models_dir.unlink()
    home.models_dir.mkdir()
    (home.models_dir / "own.gguf").write_text("GGUF")

    prepare_home(PLAIN, state_dir=state_dir, agent_id="main", workspace_id="notes", environ=environ)

    assert [file.name for file in home.models_dir.iterdir()] == ["own.gguf"]
    assert not home.models_dir.is_symlink()


def test_a_cache_that_cannot_be_written_is_done_without(state_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    environ = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "file")}

    home = prepare_home(PLAIN, state_dir=state_dir, agent_id="main", workspace_id="notes", environ=environ)

    assert not os.path.lexists(home.models_dir)


# --- environment --------------------------------------------------------------------------------------------


def test_qmd_looks_only_into_its_own_folders(home: Home) -> None:
    assert home.environ["QMD_CONFIG_DIR"] == str(home.config_file.parent)
    assert home.environ["INDEX_PATH"] == str(home.index_file)
    assert Path(home.environ["XDG_CACHE_HOME"], "qmd", "models") == home.models_dir


def test_qmd_gets_of_the_environment_what_it_needs_and_no_more(
    state_dir: Path, environ: dict[str, str]
) -> None:
    wanted = {"LC_ALL": "C.UTF-8", "CI": "true", "CUDA_VISIBLE_DEVICES": "0", "QMD_FORCE_CPU": "1"}
    unwanted = {
        "OPENAI_API_KEY": "secret",
        "INDEX_PATH": "/elsewhere",
        "QMD_CONFIG_DIR": "/elsewhere",
        "QMD_HOST": "0.0.0.0",
        "QMD_ALLOWED_HOSTS": "*",
        "PWD": "/elsewhere",
        "NODE_CHANNEL_FD": "3",
    }

    home = prepare_home(
        PLAIN,
        state_dir=state_dir,
        agent_id="main",
        workspace_id="notes",
        environ={**environ, **wanted, **unwanted},
    )

    assert wanted.items() <= home.environ.items()
    assert not unwanted.items() & home.environ.items()


def test_a_node_that_is_new_enough_comes_first(state_dir: Path, tmp_path: Path) -> None:
    node = tmp_path / "bin" / "node"
    node.parent.mkdir()
    node.write_text("#!/bin/sh\necho v24.1.0\n")
    node.chmod(0o755)
    path = f"/usr/nothing:{node.parent}:/bin"

    home = prepare_home(
        PLAIN, state_dir=state_dir, agent_id="main", workspace_id="notes", environ={"PATH": path}
    )

    assert home.environ["PATH"] == f"{node.parent}:{path}"


# --- the list of collections --------------------------------------------------------------------------------


def collection(name: str, path: str, pattern: str = "**/*.md") -> Collection:
    return Collection(name=name, path=Path(path), pattern=pattern)


def test_collections_are_written_down_once(home: Home) -> None:
    planned = [collection("a", "/notes/[x] y: #ü"), collection("2024", "/b", "{A,b}.md")]

    assert write_collections(home, planned, NO_MODELS)
    written = home.config_file.stat()
    assert not write_collections(home, planned, NO_MODELS)

    assert home.config_file.stat().st_mtime_ns == written.st_mtime_ns
    assert home.config_file.stat().st_ino == written.st_ino
    assert read_config(home.config_file) == {
        "collections": {
            "a": {"path": "/notes/[x] y: #ü", "pattern": "**/*.md"},
            "2024": {"path": "/b", "pattern": "{A,b}.md"},
        }
    }


def test_what_others_added_stays(home: Home) -> None:
    write_collections(home, [collection("a", "/a"), collection("b", "/b")], NO_MODELS)
    home.config_file.write_text("""
global_context: no
collections:
  a:
    path: /a
    pattern: "**/*.md"
    context: {"": "yes", "/x": 12:30:00, y: 2026-01-01}
    includeByDefault: false
  b: {path: /b, pattern: "**/*.md"}
  theirs: {path: /theirs}
models: {embed: theirs.gguf}
""")

    assert write_collections(home, [collection("a", "/moved"), collection("c", "/c")], NO_MODELS)

    assert read_config(home.config_file) == {
        "global_context": "no",
        "collections": {
            "a": {
                "path": "/moved",
                "pattern": "**/*.md",
                "context": {"": "yes", "/x": "12:30:00", "y": "2026-01-01"},
                "includeByDefault": False,
            },
            "theirs": {"path": "/theirs"},
            "c": {"path": "/c", "pattern": "**/*.md"},
        },
        "models": {"embed": "theirs.gguf"},
    }


def test_a_collection_that_is_no_longer_named_goes_even_after_a_restart(
    home: Home, state_dir: Path, environ: dict[str, str]
) -> None:
    write_collections(home, [collection("a", "/a")], NO_MODELS)
    again = prepare_home(PLAIN, state_dir=state_dir, agent_id="main", workspace_id="notes", environ=environ)

    write_collections(again, [], NO_MODELS)

    assert read_config(home.config_file) == {"collections": {}}


def test_a_collection_that_somebody_adds_later_under_an_old_name_stays(home: Home) -> None:
    write_collections(home, [collection("a", "/a")], NO_MODELS)
    write_collections(home, [], NO_MODELS)
    home.config_file.write_text("collections: {a: {path: /theirs}}\n")

    assert not write_collections(home, [], NO_MODELS)


def test_who_lost_the_note_of_what_is_ours_removes_nothing(home: Home) -> None:
    write_collections(home, [collection("a", "/a")], NO_MODELS)
    for file in home.config_file.parent.glob("*.json"):
        file.write_text("[damaged")

    write_collections(home, [collection("b", "/b")], NO_MODELS)

    collections = read_config(home.config_file)["collections"]
    assert isinstance(collections, dict)
    assert set(collections) == {"a", "b"}


def test_models_that_the_settings_name_are_written_and_given_up(home: Home) -> None:
    home.config_file.write_text("models: {embed: old.gguf, rerank: theirs.gguf}\n")

    write_collections(home, [], ModelSettings(embed="~/m.gguf", generate="hf:a/b/c.gguf"))
    named = read_config(home.config_file)["models"]
    write_collections(home, [], NO_MODELS)

    assert named == {
        "embed": str(Path.home() / "m.gguf"),
        "generate": "hf:a/b/c.gguf",
        "rerank": "theirs.gguf",
    }
    assert read_config(home.config_file)["models"] == {"rerank": "theirs.gguf"}


@pytest.mark.parametrize(
    "text",
    ["a: [", "- a\n- b\n", "collections: [a]\n", "collections: {}\nmodels: 3\n", "\x00", "[" * 5000],
    ids=["broken", "a list", "no collections", "no models", "NUL", "deep"],
)
def test_a_list_that_cannot_be_read_is_named_and_left_alone(home: Home, text: str) -> None:
    home.config_file.write_text(text)

    with pytest.raises(BackendUnavailable, match=r"index\.yml.*repair that file"):
        write_collections(home, [collection("a", "/a")], NO_MODELS)

    assert home.config_file.read_text() == text


def test_a_failed_write_leaves_the_list_and_nothing_else(home: Home) -> None:
    home.config_file.mkdir()
    (home.config_file / "x").touch()

    with pytest.raises(BackendUnavailable):
        write_collections(home, [collection("a", "/a")], NO_MODELS)

    assert [file.name for file in home.config_file.parent.iterdir()] == ["index.yml"]
