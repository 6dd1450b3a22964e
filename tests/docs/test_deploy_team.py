"""The files of `deploy/` for a team start commands that there are, with settings that there are."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from composable_memory.cli import app
from composable_memory.cli.command_group import all_commands
from composable_memory.config.layers import load_settings
from composable_memory_adapters.postgres.settings import PostgresSettings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "deploy" / "team.compose.yaml").read_text(encoding="utf-8"))
MANIFESTS = [*yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8"))]
HEAD = (ROOT / "deploy" / "kubernetes.yaml").read_text(encoding="utf-8").partition("apiVersion")[0]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
PREFIX = "COMPOSABLE_MEMORY__"


def containers() -> Iterator[Mapping[str, Any]]:
    """Yield what each container of Kubernetes is told."""
    for one in MANIFESTS:
        template = one.get("spec", {}).get("template")
        if template:
            yield from template["spec"]["containers"]


def started() -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield each of our command lines with its environment."""
    for service in COMPOSE["services"].values():
        if service["image"].startswith("composable-memory"):
            yield service["command"], service["environment"]
    for one in containers():
        if one["image"].startswith("composable-memory"):
            yield one["args"], {each["name"]: each.get("value", "a secret") for each in one["env"]}


def test_every_command_is_one_with_these_options() -> None:
    commands = all_commands(app)
    lines = [*started()]
    assert sorted(words[0] for words, _ in lines) == ["logs", "postgres", "postgres", "watch", "watch"]
    for words, environment in lines:
        command = commands[words[0]]
        rest = words[1:]
        while hasattr(command, "commands"):
            command, rest = command.commands[rest[0]], rest[1:]
        known = {name for one in command.params for name in one.opts}
        assert {word for word in rest if word.startswith("-")} <= known, words
        if "--url-env" in rest:
            assert rest[rest.index("--url-env") + 1] in environment


def test_every_variable_is_a_setting_or_where_the_server_is(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("{}", encoding="utf-8")
    for _, environment in started():
        ours = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
        loaded = load_settings(tmp_path, environ=ours | {"COMPOSABLE_MEMORY_CONFIG": str(config)})
        others = environment.keys() - ours.keys()
        default = PostgresSettings.model_fields["url_env"].default
        assert others <= {"OWNER_URL", default, "OTEL_EXPORTER_OTLP_ENDPOINT"}
        if ours:
            assert default in environment
            assert loaded.settings.memory.backend == "postgres"


def test_what_is_referred_to_is_there() -> None:
    services, configs = COMPOSE["services"], COMPOSE["configs"]
    for service in services.values():
        assert {one["source"] for one in service.get("configs", ())} <= configs.keys()
        assert set(service.get("depends_on", ())) <= services.keys()
        hosts = re.findall(r"(?:@|http://)([a-z]+)[:/]", str(service.get("environment", "")))
        assert set(hosts) <= services.keys()
    assert yaml.safe_load(configs["collector"]["content"])["service"]["pipelines"]
    names = {(one["kind"], one["metadata"]["name"]) for one in MANIFESTS}
    assert len(names) == len(MANIFESTS) == 5
    for one in MANIFESTS:
        spec = one.get("spec", {})
        if "template" in spec and "selector" in spec:
            assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    for container in containers():
        for each in container.get("env", ()):
            if "valueFrom" in each:
                secret = each["valueFrom"]["secretKeyRef"]
                assert secret["name"] == "team-memory"
                assert f"--from-literal={secret['key']}=" in HEAD


@pytest.mark.parametrize("name", ["team.compose.yaml", "kubernetes.yaml"])
def test_no_file_holds_a_password(name: str) -> None:
    text = (ROOT / "deploy" / name).read_text(encoding="utf-8")
    for password in re.findall(r"postgresql://\w+:([^@]+)@", text):
        assert password == "…" or password.startswith("${")
