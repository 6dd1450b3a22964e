"""How layers are merged, where values are said to come from, and how secrets are kept."""

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from pydantic import SecretStr

from composable_memory.config.layers import (
    LoadedSettings,
    checked_settings,
    default_state_dir,
    describe,
    load_settings,
    user_config_path,
    validate_backend_options,
)
from composable_memory.config.settings import Settings, SettingsModel
from composable_memory.config.trees import Origin
from composable_memory.errors import ConfigError
from composable_memory.interfaces import BackendServices, BackendSpec, MemorySearchManager
from composable_memory.registry import discover_backends


class ServiceSettings(SettingsModel):
    server_host: str = "localhost"
    server_port: int = 8001
    api_key: SecretStr | None = None


def never_opened(
    settings: object, services: BackendServices
) -> AbstractAsyncContextManager[MemorySearchManager]:
    raise NotImplementedError


GRAPHITI = BackendSpec(id="graphiti", summary="a graph", settings=ServiceSettings, open=never_opened)
NOTES = BackendSpec(id="notes", summary="notes", settings=ServiceSettings, open=never_opened)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path


def load(workspace: Path, overrides: object = None, **variables: str) -> LoadedSettings:
    """Load settings where there are no files; `A__B` stands for `COMPOSABLE_MEMORY__A__B`."""
    environ = {f"COMPOSABLE_MEMORY__{name}": value for name, value in variables.items()}
    nowhere = {"XDG_CONFIG_HOME": str(workspace / "nowhere")}
    return load_settings(workspace, overrides=overrides, environ=nowhere | environ)  # type: ignore[arg-type]


def test_without_any_layer_everything_is_the_default(workspace: Path) -> None:
    assert load(workspace) == LoadedSettings(settings=checked_settings({}, discover_backends()))


@pytest.mark.parametrize("name", ["QUERY__MAX_RESULTS", "MEMORY__QUERY__MAX_RESULTS"])
def test_a_variable_sets_a_key_with_or_without_the_root(workspace: Path, name: str) -> None:
    loaded = load(workspace, **{name: "9"})

    assert loaded.settings.memory.query.max_results == 9
    assert (
        str(loaded.origins["memory.query.max_results"]) == f"environment variable COMPOSABLE_MEMORY__{name}"
    )


def test_a_key_that_two_variables_set_is_refused(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="set by COMPOSABLE_MEMORY__MEMORY__QUERY__DEPTH as well"):
        load(workspace, QUERY__DEPTH="9", MEMORY__QUERY__DEPTH="8")


def test_an_empty_variable_counts_as_not_set(workspace: Path) -> None:
    assert load(workspace, QUERY__MAX_RESULTS="") == load(workspace)


def test_a_variable_may_hold_a_list_or_a_mapping_in_json(workspace: Path) -> None:
    loaded = load(workspace, BUILTIN__EXTRA_PATHS='["a", "b"]', QUERY='{"maxResults": 3}')

    assert loaded.settings.memory.section("builtin").options == {"extra_paths": ["a", "b"]}
    assert loaded.settings.memory.query.max_results == 3


def test_a_variable_with_broken_json_is_refused_by_name(workspace: Path) -> None:
    with pytest.raises(ConfigError, match=r"environment variable COMPOSABLE_MEMORY__QUERY\): not valid JSON"):
        load(workspace, QUERY="{")


@pytest.mark.parametrize(
    ("key", "given"),
    [("BUILTIN__EXTRA_PATHS", '["docs", "~nobody-here/x"]'), ("BUILTIN__SESSIONS__FOLDER", "~nobody-here")],
)
def test_the_home_of_somebody_unknown_is_refused(workspace: Path, key: str, given: str) -> None:
    with pytest.raises(ConfigError, match="there is no home folder ~nobody-here") as caught:
        load(workspace, **{key: given})

    assert caught.value.origin == f"environment variable COMPOSABLE_MEMORY__{key}"


def test_a_file_of_settings_in_the_home_of_somebody_unknown_is_refused(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="COMPOSABLE_MEMORY_CONFIG: there is no home folder ~nobody-here"):
        load_settings(workspace, environ={"COMPOSABLE_MEMORY_CONFIG": "~nobody-here/x.yaml"})


def test_a_key_that_begins_like_a_home_is_none(workspace: Path) -> None:
    assert load(workspace, EMBEDDING__PROVIDERS__OPENAI__API_KEY="~nobody-here").settings


@pytest.mark.parametrize("name", ["QERY__DEPTH", "QUERY__", "QUERY____DEPTH", ""])
def test_a_variable_for_an_unknown_key_is_refused(workspace: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="unknown key") as caught:
        load(workspace, **{name: "9"})

    assert caught.value.origin == f"environment variable COMPOSABLE_MEMORY__{name}"


def test_the_caller_wins_over_the_environment(workspace: Path) -> None:
    loaded = load(workspace, {"query": {"maxResults": 5}}, QUERY__MAX_RESULTS="9", QUERY__DEPTH="50")

    query = loaded.settings.memory.query
    assert (query.max_results, query.depth) == (5, 50)
    assert str(loaded.origins["memory.query.max_results"]) == "the caller"


def test_the_caller_may_give_the_root_key_or_settings(workspace: Path) -> None:
    below: dict[str, object] = {"query": {"max_results": 5}}
    settings = Settings.model_validate({"memory": below})

    assert load(workspace, {"memory": below}) == load(workspace, below) == load(workspace, settings)


def test_settings_of_the_caller_leave_unset_keys_to_the_layers_below(workspace: Path) -> None:
    loaded = load(workspace, Settings.model_validate({"memory": {"citations": "off"}}), QUERY__DEPTH="50")

    assert loaded.settings.memory.query.depth == 50


def test_overrides_without_keys_are_refused(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="expected keys and values"):
        load(workspace, {"memory": 3})


def test_a_mapping_is_merged_and_a_list_replaced(workspace: Path) -> None:
    loaded = load(
        workspace,
        {"builtin": {"extra_paths": ["c"]}},
        BUILTIN__EXTRA_PATHS='["a", "b"]',
        BUILTIN__CHUNKING__TOKENS="200",
    )

    section = loaded.settings.memory.section("builtin")
    assert section.options == {
        "extra_paths": ["c"],
        "chunking": {"tokens": "200"},
    }


def test_keys_that_are_no_names_stay_as_they_are(workspace: Path) -> None:
    headers = {"X-Team": "a", "x-shift": "b", "UPPER": "c"}
    loaded = load(workspace, {"embedding": {"providers": {"mine": {"headers": headers, "baseURL": "u"}}}})

    options = loaded.settings.memory.embedding.providers["mine"]
    assert options.keys() == {"headers", "base_url"}
    assert options["headers"].keys() == headers.keys()  # type: ignore[attr-defined]


def test_what_a_foreign_memory_is_sent_stays_as_it_is_written(workspace: Path, tmp_path: Path) -> None:
    text = """
memory:
  backends:
    away:
      kind: http
      timeoutMs: 5
      body: {containerTag: ann, filters: [{userId: ann}]}
      headersEnv: {X-TYPESENSE-API-KEY: MY_KEY, Authorization: Bearer MY_TOKEN}
      env: {MEM0_API_KEY: MY_KEY, someToken: MY_TOKEN}
"""
    (tmp_path / "own.yaml").write_text(text, encoding="utf-8")
    loaded = load_settings(workspace, environ={}, user_file=tmp_path / "own.yaml")
    given = {
        "body": {"containerTag": "ann", "filters": [{"userId": "ann"}]},
        "headers_env": {"X-TYPESENSE-API-KEY": "MY_KEY", "Authorization": "Bearer MY_TOKEN"},
        "env": {"MEM0_API_KEY": "MY_KEY", "someToken": "MY_TOKEN"},
    }
    options = loaded.settings.memory.section("away").options
    assert {name: options[name] for name in given} == given
    called = load(workspace, {"backends": {"away": {"kind": "http", **given}}})
    assert {name: called.settings.memory.section("away").options[name] for name in given} == given


def test_a_secret_from_the_environment_is_kept_and_not_shown(workspace: Path) -> None:
    loaded = load(workspace, GRAPHITI__API_KEY="sesame", EMBEDDING__PROVIDERS__MINE__TOKEN="[sesame")

    assert loaded.settings.memory.section("graphiti").options == {"api_key": SecretStr("sesame")}
    assert loaded.settings.memory.embedding.providers == {"mine": {"token": SecretStr("[sesame")}}
    assert "sesame" not in repr(loaded)
    assert "sesame" not in repr(describe(loaded))
    assert loaded.notes == ()


@pytest.mark.parametrize(
    "options",
    [
        {"token": "sesame"},
        {"servers": [{"url": "u", "password": "sesame"}]},
        {"headers": {"X-Auth": "sesame"}},
        {"headers": {"more": {"X-Auth": "sesame"}}},
        {"servers": [{"headers": {"X-Auth": "sesame"}}]},
        {"password": {"value": "sesame"}},
        {"password": ["sesame"]},
    ],
)
def test_secrets_are_hidden_wherever_they_stand(workspace: Path, options: dict[str, object]) -> None:
    loaded = load(workspace, {"embedding": {"providers": {"mine": options}}})

    assert "SecretStr" in repr(loaded)
    assert "sesame" not in repr(loaded)


def test_a_password_in_an_address_is_not_shown(workspace: Path) -> None:
    loaded = load(workspace, {"graphiti": {"url": "redis://me:sesame@host"}})

    rows = {row.key: row.value for row in describe(loaded)}

    assert rows["memory.graphiti.url"] == "redis://me:***@host"


def test_a_secret_number_is_kept_as_text(workspace: Path) -> None:
    loaded = load(workspace, {"embedding": {"providers": {"mine": {"token": 5}}}})

    assert loaded.settings.memory.embedding.providers == {"mine": {"token": SecretStr("5")}}


def test_a_value_replaces_a_mapping(workspace: Path) -> None:
    loaded = load(workspace, {"graphiti": {"update": False}}, GRAPHITI__UPDATE__INTERVAL="5m")

    assert loaded.settings.memory.section("graphiti").options == {"update": False}


def test_an_env_key_names_the_variable_that_holds_the_secret(workspace: Path) -> None:
    environ = {"MY_KEY": "sesame", "XDG_CONFIG_HOME": str(workspace)}
    loaded = load_settings(workspace, overrides={"graphiti": {"apiKeyEnv": "MY_KEY"}}, environ=environ)

    assert loaded.settings.memory.section("graphiti").options == {"api_key": SecretStr("sesame")}
    assert loaded.origins["memory.graphiti.api_key"] == Origin(layer="override", variable="MY_KEY")


def test_an_env_key_whose_variable_is_not_set_leaves_a_note(workspace: Path) -> None:
    loaded = load(workspace, {"graphiti": {"api_key_env": "MY_KEY"}})

    assert loaded.settings.memory.section("graphiti").options == {}
    (note,) = loaded.notes
    assert [fact for fact in ("memory.graphiti.api_key_env", "caller", "MY_KEY") if fact not in note] == []


def test_a_secret_that_is_given_twice_is_refused(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="api_key is set as well"):
        load(workspace, {"graphiti": {"api_key": "a", "api_key_env": "B"}})


def test_env_keys_for_what_is_no_secret_are_left_to_the_backend(workspace: Path) -> None:
    loaded = load(workspace, {"graphiti": {"server_env": "HOME"}})

    assert loaded.settings.memory.section("graphiti").options == {"server_env": "HOME"}


def test_a_disabled_primary_leaves_a_note(workspace: Path) -> None:
    loaded = load(workspace, {"backend": "qmd", "qmd": {"enabled": False}})

    (note,) = loaded.notes
    assert [fact for fact in ("memory.backend", "caller", "'qmd'", "disabled") if fact not in note] == []


@pytest.mark.parametrize("named", [{}, None, {"weight": 2}])
def test_a_section_under_backends_counts_as_enabled(workspace: Path, named: object) -> None:
    memory = load(workspace, {"backends": {"qmd": named, "notes": named}}).settings.memory

    assert (memory.section("qmd").enabled, memory.backends["notes"].enabled) == (True, True)


def test_naming_a_section_gives_way_to_what_is_said_of_it_anywhere(workspace: Path) -> None:
    told = {"qmd": {"enabled": False}, "backends": {"qmd": {"weight": 2}, "notes": {"enabled": False}}}
    memory = load(workspace, told, BACKENDS__GRAPHITI__WEIGHT="2", GRAPHITI__ENABLED="false").settings.memory
    assert {id_ for id_, one in memory.sections.items() if one.enabled} == {"builtin"}

    lower = load(workspace, {"backends": {"qmd": {"weight": 2}}}, QMD__ENABLED="false").settings.memory
    assert (lower.section("qmd").enabled, lower.section("qmd").weight) == (False, 2)


def test_sections_in_both_places_are_joined(workspace: Path) -> None:
    told = {"qmd": {"limits": {"max_results": 3}}, "backends": {"qmd": {"limits": {"timeout_ms": 9}}}}

    assert load(workspace, told).settings.memory.section("qmd").options == {
        "limits": {"max_results": 3, "timeout_ms": 9}
    }


def test_of_variables_for_both_places_of_a_key_none_wins(workspace: Path) -> None:
    with pytest.raises(ConfigError, match=r"also set as memory\.backends\.qmd\.weight \(environment var"):
        load(workspace, QMD__WEIGHT="1", BACKENDS__QMD__WEIGHT="1")


@pytest.mark.parametrize("value", [3, "qmd", ["qmd"]])
def test_a_section_under_backends_that_is_none_is_refused_under_its_own_key(
    workspace: Path, value: object
) -> None:
    with pytest.raises(
        ConfigError, match=r"setting memory\.qmd \(from the caller\): expected keys and values"
    ):
        load(workspace, {"backends": {"qmd": value}})


def test_settings_of_the_caller_may_name_backends_too(workspace: Path) -> None:
    settings = Settings.model_validate({"memory": {"backends": {"notes": {}}}})

    assert load(workspace, settings).settings.memory.backends["notes"].enabled


def test_what_a_primary_implies_is_said_to_come_from_where_it_was_named(workspace: Path) -> None:
    rows = {row.key: row for row in describe(load(workspace, BACKEND="qmd"))}

    shown = {key: (rows[key].value, rows[key].origin.variable) for key in IMPLIED}
    assert shown == {
        "memory.qmd.enabled": (True, "COMPOSABLE_MEMORY__BACKEND"),
        "memory.builtin.enabled": (False, "COMPOSABLE_MEMORY__BACKEND"),
        "memory.fallback": ("builtin", None),
    }


def test_what_is_said_comes_from_where_it_is_said(workspace: Path) -> None:
    loaded = load(workspace, {"builtin": {"enabled": True}}, BACKEND="qmd", QMD__ENABLED="true")

    origins = [loaded.origins.get(key) for key in IMPLIED]
    assert [str(origin) for origin in origins] == [
        "environment variable COMPOSABLE_MEMORY__QMD__ENABLED", "the caller", "None"
    ]  # fmt: skip


IMPLIED = ("memory.qmd.enabled", "memory.builtin.enabled", "memory.fallback")


def test_the_description_has_every_key_once_with_value_and_origin(workspace: Path) -> None:
    rows = {row.key: row for row in describe(load(workspace, GRAPHITI__SERVER_HOST="h", QUERY__DEPTH="50"))}

    assert (rows["memory.query.depth"].value, rows["memory.query.depth"].origin.layer) == (50, "environment")
    assert (rows["memory.citations"].value, str(rows["memory.citations"].origin)) == ("auto", "default")
    assert rows["memory.graphiti.server_host"].value == "h"


def test_the_description_shows_the_defaults_of_backends_that_were_checked(workspace: Path) -> None:
    loaded = load(workspace, GRAPHITI__SERVER_PORT="9", GRAPHITI__API_KEY="sesame")
    options = validate_backend_options(loaded.settings.memory, GRAPHITI, loaded.origins)

    rows = {row.key.rpartition(".")[2]: row for row in describe(loaded, {"graphiti": options})}
    assert (rows["server_port"].value, rows["server_port"].origin.layer) == (9, "environment")
    assert (rows["server_host"].value, rows["server_host"].origin.layer) == ("localhost", "default")
    assert rows["api_key"].value == "**********"


def test_the_keys_of_a_backend_are_checked_by_its_own_model(workspace: Path) -> None:
    loaded = load(workspace, GRAPHITI__SERVER_PORT="9", GRAPHITI__API_KEY="sesame", GRAPHITI__WEIGHT="2")

    assert validate_backend_options(loaded.settings.memory, GRAPHITI) == ServiceSettings(
        server_port=9, api_key=SecretStr("sesame")
    )


def test_an_unknown_key_of_a_backend_is_refused_with_origin_and_suggestion(workspace: Path) -> None:
    loaded = load(workspace, BACKENDS__NOTES__SERVER_HOTS="h")

    with pytest.raises(ConfigError) as caught:
        validate_backend_options(loaded.settings.memory, NOTES, loaded.origins)

    facts = (
        "memory.backends.notes.server_hots",
        "COMPOSABLE_MEMORY__BACKENDS__NOTES__SERVER_HOTS",
        "'memory.backends.notes.server_host'?",
    )
    assert [fact for fact in facts if fact not in str(caught.value)] == []


def test_a_misspelt_shared_key_is_recognised() -> None:
    memory = Settings.model_validate({"memory": {"graphiti": {"wieght": 2}}}).memory

    with pytest.raises(ConfigError, match=r"did you mean 'memory\.graphiti\.weight'"):
        validate_backend_options(memory, GRAPHITI)


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin(layer="default"), "default"),
        (Origin(layer="override"), "the caller"),
        (Origin(layer="user", file=Path("c.yaml"), line=3), "c.yaml:3"),
        (Origin(layer="environment", variable="V"), "environment variable V"),
        (Origin(layer="user", file=Path("c.yaml"), line=3, variable="V"), "c.yaml:3, environment variable V"),
    ],
)
def test_an_origin_reads_well(origin: Origin, text: str) -> None:
    assert str(origin) == text


def test_paths_follow_the_variables(tmp_path: Path) -> None:
    base = {"XDG_CONFIG_HOME": str(tmp_path / "c"), "XDG_STATE_HOME": str(tmp_path / "s")}
    named = {"COMPOSABLE_MEMORY_CONFIG": "/c.yaml", "COMPOSABLE_MEMORY_STATE_DIR": "/state"}

    assert user_config_path(base) == tmp_path / "c" / "composable-memory" / "config.yaml"
    assert default_state_dir(base) == tmp_path / "s" / "composable-memory"
    assert (user_config_path(base | named), default_state_dir(base | named)) == (
        Path("/c.yaml"),
        Path("/state"),
    )


def test_paths_have_a_place_without_variables_and_relative_ones_are_ignored() -> None:
    relative = {"XDG_CONFIG_HOME": "here", "XDG_STATE_HOME": "here"}

    assert user_config_path(relative) == user_config_path({})
    assert user_config_path({}).is_absolute()
    assert user_config_path({}).name == "config.yaml"
    assert default_state_dir(relative) == default_state_dir({})
    assert default_state_dir({}).name == "composable-memory"


def test_the_users_own_file_may_say_more_of_single_folders(workspace: Path, tmp_path: Path) -> None:
    own, link = tmp_path / "own.yaml", tmp_path / "link.env"
    link.symlink_to(workspace)
    other = tmp_path / "other"
    other.mkdir()
    said = {"memory": {"query": {"maxResults": 3, "minScore": 0.5}}}
    here = {"query": {"maxResults": 4}, "backends": {"wiki": {"kind": "http"}}}
    elsewhere = {"query": {"maxResults": 5}}
    own.write_text(
        json.dumps(
            {**said, "workspaces": {str(link): here, str(other): elsewhere, "~nobody-here": elsewhere}}
        )
    )
    loaded = load_settings(workspace, environ={}, user_file=own)
    query = loaded.settings.memory.query
    assert (query.max_results, query.min_score) == (4, 0.5)
    assert loaded.settings.memory.backends["wiki"].enabled
    assert load_settings(other, environ={}, user_file=own).settings.memory.query.max_results == 5

    own.write_text(json.dumps({"workspaces": {"notes": here}}))
    with pytest.raises(ConfigError, match=r"own\.yaml:1"):
        load_settings(workspace, environ={}, user_file=own)
    (workspace / ".composable-memory.yaml").write_text(json.dumps({"workspaces": {str(workspace): here}}))
    with pytest.raises(ConfigError, match="workspaces"):
        load_settings(workspace, environ={})
