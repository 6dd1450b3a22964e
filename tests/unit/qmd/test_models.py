"""Which models QMD would use, and which of them are on this machine."""

from pathlib import Path

import pytest

from composable_memory_adapters.qmd.home import prepare_home
from composable_memory_adapters.qmd.models import describe_models, missing_models
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import Home

ALL = ("embed", "generate", "rerank")


@pytest.fixture
def home(state_dir: Path, tmp_path: Path) -> Home:
    environ = {"HOME": str(tmp_path / "home"), "PATH": "", "QMD_RERANK_MODEL": "of-environment.gguf"}
    return prepare_home(
        QmdSettings(), state_dir=state_dir, agent_id="main", workspace_id="notes", environ=environ
    )


def settings(**models: str) -> QmdSettings:
    return QmdSettings.model_validate({"models": models})


def put(home: Home, *names: str, start: bytes = b"GGUF") -> None:
    for name in names:
        (home.models_dir / name).write_bytes(start + b"\0" * 8)


def test_without_models_all_that_are_needed_are_missing(home: Home) -> None:
    assert missing_models(home, settings(), needed=("embed",)) == ("embed",)
    assert missing_models(home, settings(), needed=ALL) == ALL


def test_qmds_own_choice_is_found_as_it_names_the_files(home: Home) -> None:
    put(
        home,
        "hf_ggml-org_embeddinggemma-300M-Q8_0.gguf",
        "hf_tobil_qmd-query-expansion-1.7B-q4_k_m.gguf",
    )

    assert missing_models(home, settings(), needed=ALL) == ("rerank",)


@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("hf:user/Model-GGUF/model-q4.gguf", "hf_user_model-q4.gguf"),
        ("hf:user/Model-GGUF/other.gguf", "hf_user_Model-GGUF_other.gguf"),
        ("hf:user/model/model-q4.gguf", "hf_user_model_model-q4.gguf"),
        ("hf:user/Model-GGUF/q4/model-q4.gguf", "hf_user_q4_model-q4.gguf"),
        ("hf:user/Model-GGUF/a/b/model-q4.gguf", "hf_user_a__b_model-q4.gguf"),
        ("hf:user/Model-GGUF/model-q4/model-q4.gguf", "hf_user_model-q4.gguf"),
        ("hf:user/Model-GGUF/model-q4.gguf#main", "hf_user_model-q4.gguf"),
        ("hf:user/Model-GGUF/model-q4.gguf#dev", "hf_user_Model-GGUF_dev_model-q4.gguf"),
        ("hf:user/Model-GGUF:q8_0", "hf_user_Model.Q8_0.gguf"),
        ("hf:user/Model-GGUF", "hf_user_Model.Q4_K_M.gguf"),
        ("hf:user/Model-GGUF:latest", "hf_user_Model.gguf"),
        ("hf:user/Model-GGUF:q8_0", "hf_user_Model.Q8_0-00001-of-00001.gguf"),
        ("huggingface:user/Model-GGUF/model-q4.gguf", "hf_user_model-q4.gguf"),
        ("hf.co/user/Model-GGUF/model-q4.gguf", "hf_user_model-q4.gguf"),
        ("https://huggingface.co/user/Model-GGUF/resolve/main/model-q4.gguf", "hf_user_model-q4.gguf"),
        ("https://huggingface.co/user/Model-GGUF/blob/dev/a/m.gguf?x", "hf_user_Model-GGUF_dev_a_m.gguf"),
        ("https://example.org/files/my%20model.gguf?download=true", "my model.gguf"),
        ("own.gguf", "own.gguf"),
    ],
)
def test_a_model_is_found_where_the_library_keeps_it(home: Home, address: str, file: str) -> None:
    chosen = settings(embed=address)
    assert missing_models(home, chosen, needed=("embed",)) == ("embed",)

    put(home, file)

    assert missing_models(home, chosen, needed=("embed",)) == ()


def test_a_model_in_parts_is_there_when_all_parts_are(home: Home) -> None:
    chosen = settings(embed="hf:user/Model-GGUF/model-00001-of-00002.gguf")
    put(home, "hf_user_model-00001-of-00002.gguf")
    assert missing_models(home, chosen, needed=("embed",)) == ("embed",)

    put(home, "hf_user_model-00002-of-00002.gguf")

    assert missing_models(home, chosen, needed=("embed",)) == ()


def test_a_page_in_the_place_of_a_model_is_none(home: Home) -> None:
    put(home, "own.gguf", start=b"<!doctype html>")

    assert missing_models(home, settings(embed="own.gguf"), needed=("embed",)) == ("embed",)


def test_a_path_is_taken_as_it_is(home: Home, tmp_path: Path) -> None:
    (Path.home() / "m.gguf").write_bytes(b"GGUF")

    assert missing_models(home, settings(embed="~/m.gguf"), needed=("embed",)) == ()
    assert missing_models(home, settings(embed=str(tmp_path / "gone.gguf")), needed=("embed",)) == ("embed",)


def test_settings_come_before_qmds_configuration_and_that_before_the_environment(home: Home) -> None:
    home.config_file.write_text("models: {embed: of-configuration.gguf, generate: of-configuration.gguf}\n")
    put(home, "of-settings.gguf")

    described = describe_models(home, settings(embed="of-settings.gguf"))

    assert described == (
        {"role": "embed", "name": "of-settings.gguf", "file": str(home.models_dir / "of-settings.gguf")},
        {"role": "generate", "name": "of-configuration.gguf", "file": None},
        {"role": "rerank", "name": "of-environment.gguf", "file": None},
    )
