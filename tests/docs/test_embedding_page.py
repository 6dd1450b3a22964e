"""The page on embedding providers names every key with its default, and its examples work."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic_core import to_jsonable_python

from composable_memory.config.layers import load_settings
from composable_memory.interfaces import EmbedderServices, EmbedderSpec
from composable_memory.registry import discover_backends
from composable_memory.runtime.embedder_choice import plan_embedder
from composable_memory.testing import FIXED_NOW
from composable_memory_adapters.embedders import AUTO, AUTO_REMOTE
from composable_memory_adapters.embedders.remote.settings import RemoteSettings
from composable_memory_ops_logs import OpsLog

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n# your own file\n(.+?)```", PAGE, re.DOTALL)
ROW = re.compile(r"^\| `([a-z_.]+)` \| (`[^|]*`|unset) \|", re.MULTILINE)
OURS = "composable_memory_adapters.embedders."


def providers() -> list[EmbedderSpec]:
    """Return our own providers."""
    found = discover_backends().embedders
    return [one.spec for one in found if one.spec is not None and OURS in one.origin]


def section(title: str) -> dict[str, str]:
    """Return the keys and defaults of the tables under a heading of the second or third level."""
    found = re.search(rf"^###? {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"the page has no section {title!r}"
    return dict(ROW.findall(found[1]))


def shared(name: str) -> dict[str, str]:
    """Return the keys and defaults of the table behind a mark."""
    table = PAGE.partition(f"<!-- keys: {name} -->\n")[2].partition("\n\n")[0]
    return dict(ROW.findall(table))


def defaults(spec: EmbedderSpec) -> dict[str, str]:
    return {key: shown(value) for key, value in flat(spec.settings().model_dump())}


def flat(values: dict[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def shown(value: object) -> str:
    if value is None:
        return "unset"
    is_text = isinstance(value, str) and value
    return f"`{value}`" if is_text else f"`{json.dumps(to_jsonable_python(value))}`"


@pytest.mark.parametrize("spec", providers(), ids=lambda spec: spec.id)
def test_every_key_of_a_provider_is_on_the_page_with_its_default(spec: EmbedderSpec) -> None:
    documented = section(spec.id)
    if issubclass(spec.settings, RemoteSettings):
        jobs = shared("jobs") if "batch" in spec.settings.model_fields else {}
        documented = shared("remote") | jobs | documented

    assert documented == defaults(spec)


def test_a_table_of_differences_has_nothing_else() -> None:
    remote = shared("remote")

    for spec in providers():
        if issubclass(spec.settings, RemoteSettings):
            assert not section(spec.id).items() & remote.items(), spec.id


def test_the_order_of_the_automatic_choice_is_that_of_the_page() -> None:
    rows = dict(re.findall(r"^\| `(auto[a-z-]*)`[^|]* \| (.+) \|$", PAGE, re.MULTILINE))
    named = {word: tuple(re.findall(r"`([a-z]+)`", text)) for word, text in rows.items()}

    assert named == {"auto": AUTO, "auto-remote": (*AUTO_REMOTE[: -len(AUTO)], "auto")}


def test_the_page_names_the_variables_that_hold_keys() -> None:
    for spec in providers():
        for variable in re.findall(r"[A-Z]+_API_KEY", str(lack(spec))):
            row = re.search(rf"^\| `{spec.id}` \| (.+) \|$", PAGE, re.MULTILINE)
            assert row, spec.id
            assert variable in row[1]


def lack(spec: EmbedderSpec) -> str | None:
    return spec.lacks(spec.settings(), services())


def services() -> EmbedderServices:
    return EmbedderServices(
        state_dir=Path("nowhere"), environ={}, ops_log=OpsLog(None), clock=lambda: FIXED_NOW
    )


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_leads_to_the_provider_that_it_names(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    loaded = load_settings(tmp_path, environ={"XDG_CONFIG_HOME": str(tmp_path)}, user_file=file)
    plan = plan_embedder(loaded, discover_backends(), services())

    assert loaded.notes == ()
    assert plan.first.asked == loaded.settings.memory.embedding.provider


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 4
