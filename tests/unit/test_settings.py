"""What the settings models accept, what they assume, and what they say about what is wrong."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from composable_memory.config.layers import checked_settings
from composable_memory.config.settings import (
    BackendSection,
    MemorySettings,
    QuerySettings,
    Settings,
    SettingsModel,
)
from composable_memory.config.trees import Origin, tree_of
from composable_memory.config.validation import check, is_secret, known_keys
from composable_memory.errors import ConfigError
from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Dedup, Fusion
from composable_memory.registry import discover_backends


def memory(**data: object) -> MemorySettings:
    return Settings.model_validate({"memory": data}).memory


def problem(data: Mapping[str, object], line: int = 1) -> ConfigError:
    origin = Origin(layer="user", file=Path("a.yaml"), line=line)
    with pytest.raises(ConfigError) as caught:
        checked_settings(tree_of(data, origin), discover_backends())
    return caught.value


def test_keys_may_be_written_in_either_case() -> None:
    assert memory(query={"maxResults": 3}) == memory(query={"max_results": 3})


@pytest.mark.parametrize(
    ("written", "meant"),
    [("always", "on"), ("never", "off"), (True, "on"), (False, "off"), ("on", "on"), ("auto", "auto")],
)
def test_citations_have_two_spellings(written: object, meant: str) -> None:
    assert memory(citations=written).citations == meant


@pytest.mark.parametrize("written", ["sometimes", 1, ["on"], {}])
def test_other_words_for_citations_are_refused(written: object) -> None:
    assert "should be 'auto', 'on' or 'off'" in str(problem({"citations": written}))


@pytest.mark.parametrize("empty", [None, {}])
def test_an_empty_section_has_its_defaults(empty: object) -> None:
    assert memory(query=empty, builtin=empty, backends=empty) == MemorySettings()


def test_only_builtin_is_on_by_default() -> None:
    enabled = {id_: section.enabled for id_, section in MemorySettings().sections.items()}

    assert enabled == {"builtin": True}


def test_a_section_with_other_keys_leaves_builtin_on() -> None:
    assert memory(builtin={"weight": 2}).section("builtin").enabled


@pytest.mark.parametrize("section", [{}, None, {"command": "qmd"}])
def test_the_primary_is_on(section: object) -> None:
    assert memory(backend="qmd", qmd=section).section("qmd").enabled


def test_a_primary_from_elsewhere_is_on_without_a_section() -> None:
    assert memory(backend="notes").backends["notes"].enabled


def test_the_primary_may_be_turned_off_and_then_another_one_reads_files() -> None:
    settings = memory(backend="qmd", qmd={"enabled": False})

    assert not settings.section("qmd").enabled
    assert settings.primary == "builtin"


@pytest.mark.parametrize("backend", ["qmd", "graphiti", "notes"])
def test_the_builtin_index_stands_in_for_another_primary(backend: str) -> None:
    settings = memory(backend=backend)

    assert (settings.section("builtin").enabled, settings.fallback_id) == (False, "builtin")
    assert [id_ for id_, section in settings.sections.items() if section.enabled] == [backend]


@pytest.mark.parametrize(
    ("said", "asked", "stand_in"),
    [
        ({}, False, "builtin"),
        ({"builtin": None}, False, "builtin"),
        ({"builtin": {"weight": 2}}, False, "builtin"),
        ({"builtin": {"enabled": True}}, True, None),
        ({"builtin": {"enabled": "true"}, "fallback": "builtin"}, True, None),
        ({"builtin": {"enabled": False}}, False, None),
        ({"builtin": {"enabled": "no"}, "fallback": "builtin"}, False, "builtin"),
        ({"fallback": "none"}, False, None),
        ({"fallback": "none", "builtin": {"enabled": True}}, True, None),
        ({"qmd": {"enabled": False}}, True, None),
        ({"qmd": {"enabled": "off"}, "fallback": "builtin"}, True, None),
    ],
)
def test_what_the_builtin_index_does_beside_another_primary(
    said: dict[str, object], asked: bool, stand_in: str | None
) -> None:
    settings = memory(backend="qmd", **said)

    assert (settings.section("builtin").enabled, settings.fallback_id) == (asked, stand_in)


@pytest.mark.parametrize("said", [{}, {"backend": "builtin"}, {"graphiti": {"enabled": True}}])
def test_nobody_stands_in_for_the_builtin_index(said: dict[str, object]) -> None:
    settings = memory(**said)

    assert (settings.section("builtin").enabled, settings.fallback_id) == (True, None)


def test_without_any_backend_nobody_reads_files() -> None:
    assert memory(builtin={"enabled": False}).primary is None


def test_a_backend_keeps_the_keys_that_only_it_knows() -> None:
    said = {"enabled": True, "weight": 0.8, "server_host": "localhost"}
    section = memory(graphiti=said).section("graphiti")

    assert section.options == {"server_host": "localhost"}
    assert (section.enabled, section.weight) == (True, 0.8)


@pytest.mark.parametrize(
    "wrong", [{"backends": 3}, {"backend": "notes", "backends": 3}, {"backends": {"a": 3}}]
)
def test_sections_that_are_no_mappings_are_refused(wrong: dict[str, object]) -> None:
    assert problem(wrong).key in {"memory.backends", "memory.backends.a"}


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ({"query": 5}, "expected keys and values; it is 5"),
        ({"query": {"max_results": []}}, "Input should be a valid integer"),
        ({"embedding": {"providers": "x"}}, "expected keys and values; it is 'x'"),
    ],
)
def test_a_wrong_shape_is_named_in_the_words_of_a_file(data: dict[str, object], shape: str) -> None:
    assert shape in str(problem(data))


def test_a_text_where_a_list_belongs_is_told_so() -> None:
    class Wants(SettingsModel):
        paths: tuple[str, ...] = ()

    with pytest.raises(ConfigError, match="expected a list; it is 'docs'"):
        check(Wants, {"paths": "docs"})


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "a b", "x" * 65, "a\n"])
def test_an_agent_id_is_safe_in_a_file_name(name: str) -> None:
    assert problem({"agent_id": name}).key == "memory.agent_id"


@pytest.mark.parametrize(
    "query",
    [
        {"max_results": 0},
        {"max_results": 1001},
        {"min_score": -0.1},
        {"min_score": 1.1},
        {"min_score": float("nan")},
        {"depth": 0},
        {"timeout_ms": 0},
        {"rrf_k": 0},
        {"fusion": "best"},
        {"dedup": "all"},
    ],
)
def test_a_value_out_of_range_is_refused_with_its_key(query: dict[str, object]) -> None:
    assert problem({"query": query}).key == f"memory.query.{next(iter(query))}"


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf")])
def test_a_weight_is_finite_and_not_negative(weight: float) -> None:
    assert problem({"builtin": {"weight": weight}}).key == "memory.builtin.weight"


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        QuerySettings().max_results = 3


@pytest.mark.parametrize("said", [{}, {"builtin": {"enabled": False}}, {"fallback": "none"}])
@pytest.mark.parametrize("only_set", [True, False])
def test_settings_survive_being_written_and_read(said: dict[str, object], only_set: bool) -> None:
    settings = Settings.model_validate({"memory": {"backend": "qmd", "qmd": {"command": "qmd"}, **said}})
    again = Settings.model_validate(settings.model_dump(exclude_unset=only_set))

    assert (again, again.memory.fallback_id) == (settings, settings.memory.fallback_id)


@pytest.mark.parametrize("condition", [["weather"], "times", {}])
def test_a_condition_is_a_list_of_what_a_query_may_name(condition: object) -> None:
    assert problem({"qmd": {"condition": condition}}).key.startswith("memory.qmd.condition")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"query": {"max_result": 3}}, "memory.query.max_results"),
        ({"max_results": 3}, "memory.query.max_results"),
        ({"graphitti": {}}, "memory.graphiti"),
        ({"ops_logs": {"enabled": True}}, "memory.ops_log"),
    ],
)
def test_an_unknown_key_is_answered_with_the_nearest_known_one(
    written: dict[str, object], meant: str
) -> None:
    error = problem(written)

    assert error.nearest == meant
    assert f"unknown key; did you mean {meant!r}?" in str(error)


def test_an_unknown_key_that_resembles_nothing_gets_no_suggestion() -> None:
    assert problem({"zzz": 1}).nearest is None


def test_an_error_names_the_origin_of_the_value_or_of_the_list_that_holds_it() -> None:
    class Listing(SettingsModel):
        sizes: tuple[int, ...] = ()

    with pytest.raises(ConfigError, match=r"setting sizes\.1 \(from a\.yaml:7\)"):
        check(Listing, {"sizes": [1, "x"]}, origins={"sizes": "a.yaml:7"})


def test_an_unknown_section_has_the_origin_of_its_first_value() -> None:
    error = problem({"graphitti": {"enabled": True}}, line=3)

    assert error.origin == "a.yaml:3"


def test_an_error_names_the_other_wrong_keys() -> None:
    error = problem({"query": {"max_results": 0, "depth": 0}})

    assert "(also wrong: memory.query.depth)" in str(error)


def test_an_error_shows_the_value_unless_it_is_a_secret() -> None:
    class Service(SettingsModel):
        port: int = 1
        api_key: int = 1

    with pytest.raises(ConfigError, match="it is 'abc'"):
        check(Service, {"port": "abc"})
    with pytest.raises(ConfigError) as caught:
        check(Service, {"api_key": "sesame"})
    assert "sesame" not in str(caught.value)


def test_an_error_does_not_show_the_password_in_an_address() -> None:
    class Service(SettingsModel):
        port: int = 1

    with pytest.raises(ConfigError, match=r"redis://me:\*\*\*@host"):
        check(Service, {"port": "redis://me:sesame@host"})


@pytest.mark.parametrize(
    "name", ["api_key", "apiKey", "openai_api_key", "token", "access_token", "password", "Authorization"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["tokens", "max_tokens", "key", "keyword", "tokenizer", "password_file"])
def test_other_names_are_no_secrets(name: str) -> None:
    assert not is_secret(name)


def test_known_keys_lead_through_mappings() -> None:
    keys = known_keys(Settings)

    assert {"memory.query.depth", "memory.backends.<id>.weight", "memory.embedding.providers"} <= set(keys)
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("model", "name", "kinds"),
    [
        (QuerySettings, "fusion", Fusion),
        (QuerySettings, "dedup", Dedup),
        (BackendSection, "calibration", Calibration),
    ],
)
def test_the_words_for_merging_are_those_of_the_merge(
    model: type[SettingsModel], name: str, kinds: type[StrEnum]
) -> None:
    assert set(get_args(model.model_fields[name].annotation)) == set(kinds)


def test_every_backend_section_starts_with_the_weight_one() -> None:
    assert BackendSection().weight == 1.0
