"""The configuration page says what the models say, and its examples work."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_core import to_jsonable_python

from composable_memory.config.layers import load_settings
from composable_memory.config.settings import BackendSection, Settings
from composable_memory.config.validation import check, known_keys
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.graphiti import GraphitiSettings
from composable_memory_adapters.qmd.settings import CollectionSettings, QmdSettings, ScopeRule

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "configuration.md", *sorted((DOCS / "settings").glob("*.md")))
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
ROW = re.compile(r"^\| `((?:memory|<section>)\.[^`]+)` \| .+? \| (.+?) \| .+ \|$", re.MULTILINE)
EXAMPLES = re.findall(r"```yaml\n# ([^\n]+)\n(.+?)```", PAGE, re.DOTALL)
VARIABLES = re.findall(r"```sh\n(.+?)```", PAGE, re.DOTALL)
OTHER_SECTION = re.compile(
    r"memory\.(?:graphiti|qmd|backends\.<id>)\.(?=(?:enabled|weight|timeout_ms|calibration|condition)$)"
)
SHARED_KEY = re.compile(r"memory\.builtin\.(?=(?:weight|timeout_ms|calibration|condition)$)")
LISTED = {
    "memory.qmd.paths[]": CollectionSettings(path="x"),
    "memory.qmd.scope.rules[]": ScopeRule(action="allow"),
}
"""Lists of models, with what an entry is that says as little as it may."""
COMBINATION = re.compile(r"^\| (`(?:backend|graphiti).+?) \| (.+?) \| (builtin|qmd|none) \|$", re.MULTILINE)


def defaults() -> dict[str, str]:
    """Return the default of every key of the models; keys that all backends share stand under `<section>`."""
    keys = [
        *known_keys(Settings),
        *known_keys(BuiltinSettings, "memory.builtin"),
        *(key for name in ("graphiti", "qmd") for key in known_keys(BackendSection, f"memory.{name}")),
        *known_keys(GraphitiSettings, "memory.graphiti"),
        *(key.replace(".<id>", "[]") for key in known_keys(QmdSettings, "memory.qmd")),
    ]
    values = dict(flat(Settings().model_dump()))
    models = {"builtin": BuiltinSettings(), "graphiti": GraphitiSettings(), "qmd": QmdSettings()}
    for name in models.keys() - {"builtin"}:
        values |= flat(BackendSection().model_dump(), f"memory.{name}")
    for name, model in models.items():
        values |= flat(model.model_dump(), f"memory.{name}")
    for key, entry in LISTED.items():
        values |= flat(entry.model_dump(), key)
        values |= {f"{key}.{name}": REQUIRED for name in entry.model_fields_set}
    return {
        SHARED_KEY.sub("<section>.", OTHER_SECTION.sub("<section>.", key)): shown(values[key])
        for key in keys
        if "<id>" not in key
    }


def flat(value: object, key: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from flat(item, f"{key}.{name.rstrip('_')}".lstrip("."))
    else:
        yield key, value


REQUIRED = object()


def shown(value: object) -> str:
    if value is REQUIRED:
        return "required"
    if value is None:
        return "unset"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(to_jsonable_python(value))}`"


def test_every_key_is_on_the_page_once_with_its_default_and_there_are_no_others() -> None:
    rows = ROW.findall(PAGE)

    assert dict(rows) == defaults()
    assert len(rows) == len(defaults())


@pytest.mark.parametrize(("said", "asked", "stand_in"), COMBINATION.findall(PAGE))
def test_what_is_said_of_backends_leads_to_who_is_asked(
    said: str, asked: str, stand_in: str, tmp_path: Path
) -> None:
    lines = re.findall("`([^`]+)`", said)
    file = tmp_path / "config.yaml"
    file.write_text("memory:\n" + "".join(f"  {line}\n" for line in lines), encoding="utf-8")
    memory = load_settings(tmp_path, environ={}, user_file=file).settings.memory

    assert ", ".join(sorted(id_ for id_, one in memory.sections.items() if one.enabled)) == asked
    assert (memory.fallback_id or "none") == stand_in


def test_every_section_for_other_backends_has_the_shared_keys() -> None:
    shared = {OTHER_SECTION.sub("", key) for key in known_keys(Settings) if OTHER_SECTION.match(key)}

    assert shared == {key.removeprefix("<section>.") for key in defaults() if key.startswith("<section>.")}


@pytest.mark.parametrize(("place", "text"), EXAMPLES)
def test_an_example_file_is_read_without_a_complaint(place: str, text: str, tmp_path: Path) -> None:
    own = place == "your own file"
    file = tmp_path / ("config.yaml" if own else place)
    file.write_text(text, encoding="utf-8")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "nowhere"), "GRAPHITI_KEY": "secret"}
    loaded = load_settings(tmp_path, environ=environ, user_file=file if own else None)

    check(BuiltinSettings, loaded.settings.memory.section("builtin").options)
    check(GraphitiSettings, loaded.settings.memory.section("graphiti").options)
    check(QmdSettings, loaded.settings.memory.section("qmd").options)
    assert {origin.file for origin in loaded.origins.values()} == {file}
    assert loaded.notes == ()


@pytest.mark.parametrize("text", VARIABLES)
def test_the_example_variables_set_keys(text: str, tmp_path: Path) -> None:
    environ = dict(line.split("=", 1) for line in shlex.split(text))
    loaded = load_settings(tmp_path, environ={**environ, "XDG_CONFIG_HOME": str(tmp_path)})

    check(BuiltinSettings, loaded.settings.memory.section("builtin").options)
    check(GraphitiSettings, loaded.settings.memory.section("graphiti").options)
    assert {origin.variable for origin in loaded.origins.values()} == environ.keys()


def test_the_page_has_examples_of_each_kind() -> None:
    assert {place for place, _ in EXAMPLES} == {"your own file", ".composable-memory.yaml"}
    assert len(VARIABLES) == 1
    assert len(COMBINATION.findall(PAGE)) > 8
