"""`cmem trust`: what a workspace's settings file may say once its user has read it, and until then."""

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory.config.layers import LoadedSettings, load_settings
from composable_memory.config.settings_files import SettingsFile, consent_to, give_consent, read_settings_file
from composable_memory.errors import ConfigError
from composable_memory_ops_logs import utc_now
from tests.cli_page import assert_documented
from tests.integration.qmd.conftest import installed

pytestmark = pytest.mark.security

SEED_QMD = """\
memory:
  backend: qmd
  qmd:
    command: qmd
    includeDefaultMemory: true
    paths:
      - path: ~/projects/notes
        pattern: "**/*.md"
        name: notes
    sessions:
      enabled: true
      exportDir: ./session-exports
      retentionDays: 30
    update:
      interval: 5m
      debounceMs: 15000
      onBoot: true
      embedInterval: 60m
    limits:
      maxResults: 6
      maxSnippetChars: 700
      maxInjectedChars: 4000
      timeoutMs: 4000
"""
SEED_GRAPHITI = """\
memory:
  backend: builtin # "builtin" | "qmd"
  citations: auto # "auto" | "always" | "never"
  graphiti:
    enabled: true
    serverHost: localhost
    servicePort: 8001
    apiKey: optional-api-key
"""
OPENCLAW_JSON = """\
{
  // what OpenClaw itself reads
  agents: {
    defaults: {
      memorySearch: {
        provider: 'gemini',\t/* a provider
        that costs */ model: "gemini-embedding-001",
        chunking: { tokens: 300, overlap: 40, },
        query: { maxResults: 4, hybrid: { vectorWeight: 0.6, textWeight: 0.4, mmr: { lambda: 0.5 } } },
        sync: { watch: false, sessions: { deltaMessages: 9 } },
        extraPaths: ["docs", "http:\\/\\/x"],
        store: { path: "~/.openclaw/memory/{agentId}.sqlite" },
        remote: { apiKey: "${GEMINI_KEY}", batch: { enabled: true } },
      },
      compaction: { mode: "safeguard", reserveTokensFloor: 9000, memoryFlush: {
        enabled: false, softThresholdTokens: 5000, systemPrompt: "x" } },
    },
    list: [{ id: "main", memorySearch: { enabled: false } }],
  },
  channels: { "a:b": "// no comment" },
}
"""


class Place:
    """A workspace, a state folder, and the command line on them; nothing is set by the user."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.state = folder / "workspace", folder / "state"
        self.workspace.mkdir()
        (self.workspace / "MEMORY.md").write_text("The boiler is serviced in May.\n", encoding="utf-8")
        self.environ = {
            "XDG_CONFIG_HOME": str(folder / "config"),
            "COMPOSABLE_MEMORY_STATE_DIR": str(self.state),
            "COMPOSABLE_MEMORY_CONFIG": "",
        }

    def write(self, text: str, name: str = "openclaw.yml") -> Path:
        file = self.workspace / name
        file.write_text(text, encoding="utf-8")
        return file

    def read(self, name: str = "openclaw.yml") -> SettingsFile:
        file = read_settings_file(self.workspace / name)
        assert file is not None
        return file

    def load(self, **variables: str) -> LoadedSettings:
        return load_settings(self.workspace, environ={**self.environ, **variables})

    def refusal(self) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load()
        return str(caught.value)

    def cmem(self, *args: str, answer: str | None = None) -> Result:
        return CliRunner().invoke(app, args, input=answer, env=self.environ)

    def trust(self, *args: str) -> Result:
        return self.cmem("trust", str(self.workspace), *args)

    def status(self) -> dict[str, object]:
        document: dict[str, object] = json.loads(self.trust("--json").stdout)
        assert_documented(["trust"], document)
        return document


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("seed", [SEED_QMD, SEED_GRAPHITI])
def test_an_example_of_the_seeds_works_where_it_lies_once_it_is_trusted(place: Place, seed: str) -> None:
    place.write(seed)
    assert f"`cmem trust {place.workspace}`" in place.refusal()

    shown = place.trust("--yes")
    memory = place.load().settings.memory

    assert shown.exit_code == 0
    if seed is SEED_QMD:
        assert (memory.backend, memory.primary, memory.fallback_id) == ("qmd", "qmd", "builtin")
        assert memory.section("qmd").options["command"] == "qmd"
    else:
        assert {id_ for id_, one in memory.sections.items() if one.enabled} == {"builtin", "graphiti"}
        assert memory.section("graphiti").options["server_host"] == "localhost"
    assert place.cmem("config", "show", "--workspace", str(place.workspace)).exit_code == 0


@pytest.mark.needs("qmd")
def test_the_seeds_example_of_qmd_asks_the_real_one(place: Place, tmp_path: Path) -> None:
    programs = Path(shlex.split(installed("qmd"))[0]).parent
    place.environ |= {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path), "CI": "true"}
    (tmp_path / "projects" / "notes").mkdir(parents=True)
    (tmp_path / "projects" / "notes" / "radio.md").write_text("The radio is green.\n", encoding="utf-8")
    place.write(SEED_QMD)
    place.trust("--yes")
    at = ("--workspace", str(place.workspace), "--json")

    assert place.cmem("index", *at).exit_code == 0
    found = json.loads(place.cmem("search", "radio", *at).stdout)
    assert [one["path"] for one in found["results"]] == ["qmd/notes/radio.md"]
    assert found["degraded"] == []


def test_a_trusted_workspace_is_searched_and_says_which_of_its_backends_cannot_be(place: Place) -> None:
    place.write(SEED_QMD.replace("command: qmd", "command: no-such-qmd"))
    search = ("search", "when is the boiler serviced?", "--workspace", str(place.workspace), "--json")
    assert place.cmem(*search).exit_code == 1

    place.trust("--yes")
    found = json.loads(place.cmem(*search).stdout)

    assert [one["path"] for one in found["results"]] == ["MEMORY.md"]
    assert "qmd" in {one["backendId"] for one in found["degraded"]}


def test_all_that_a_file_asks_for_is_shown_with_its_line_and_no_secret(place: Place) -> None:
    file = place.write(SEED_GRAPHITI)
    status = place.status()

    assert (status["file"], status["trusted"]) == (str(file), False)
    asks = status["asks"]
    assert isinstance(asks, list)
    assert {(one["key"], one["line"]) for one in asks} == {
        ("memory.graphiti.enabled", 5),
        ("memory.graphiti.server_host", 6),
        ("memory.graphiti.service_port", 7),
        ("memory.graphiti.api_key", 8),
    }
    assert "optional-api-key" not in place.trust("--json").output + place.trust("--yes").output


def test_the_variables_whose_values_a_server_would_get_are_shown(place: Place) -> None:
    given = {
        "memory.notes.env.TOKEN": "OPENAI_API_KEY",
        "memory.notes.env.api_key": "AWS_SECRET_ACCESS_KEY",
        "memory.wiki.headers_env.Authorization": "Bearer GITHUB_TOKEN",
        "memory.wiki.api_key_env": "WIKI_PASSWORD",
        "memory.mail.headers.Authorization_env": "MAIL_TOKEN",
        "memory.wiki.headers.Authorization": "Bearer dGhlIGtleSBvZiB0aGUgd2lraQ",
        "memory.notes.arguments.env.TOKEN": "hunter22",
    }
    place.write(
        "memory:\n"
        "  notes: {command: [server, --in=$HOME_TOKEN], arguments: {env: {TOKEN: hunter22}},\n"
        "    env: {TOKEN: OPENAI_API_KEY, api_key: AWS_SECRET_ACCESS_KEY}}\n"
        "  wiki: {headersEnv: {Authorization: Bearer GITHUB_TOKEN}, apiKeyEnv: WIKI_PASSWORD,\n"
        "    headers: {Authorization: Bearer dGhlIGtleSBvZiB0aGUgd2lraQ}}\n"
        "  mail: {headers: {Authorization_env: MAIL_TOKEN}}\n"
    )
    asks = place.status()["asks"]
    assert isinstance(asks, list)
    shown = {one["key"]: one["value"] for one in asks}

    assert shown.pop("memory.notes.command") == ["server", "--in=$HOME_TOKEN"]
    secrets = {"memory.wiki.headers.Authorization", "memory.notes.arguments.env.TOKEN"}
    assert {key for key, value in shown.items() if value != given[key]} == secrets
    assert shown.keys() == given.keys()
    assert "OPENAI_API_KEY" in place.trust("--revoke").stdout


def test_nothing_is_trusted_without_a_yes(place: Place) -> None:
    place.write(SEED_GRAPHITI)

    for answer in ("n\n", "\n", ""):
        assert place.cmem("trust", str(place.workspace), answer=answer).exit_code == 1
        assert place.status()["trusted"] is False
    assert place.cmem("trust", str(place.workspace), answer="y\n").exit_code == 0
    assert place.status()["trusted"] is True


def test_a_file_that_changed_after_consent_is_not_trusted_and_told(place: Place) -> None:
    file = place.write(SEED_GRAPHITI)
    place.trust("--yes")
    pulled = SEED_GRAPHITI.replace("localhost", "elsewhere.example")
    file.write_text(pulled, encoding="utf-8")

    assert "the file changed since you trusted it" in place.refusal()
    assert "changedSince" in place.status()
    file.write_text(SEED_GRAPHITI, encoding="utf-8")
    assert place.load().settings.memory.section("graphiti").enabled


def test_consent_is_for_what_was_read_and_not_for_what_is_there_by_then(place: Place) -> None:
    place.write(SEED_GRAPHITI)
    read = place.read()
    place.write(SEED_GRAPHITI.replace("localhost", "elsewhere.example"))
    place.state.mkdir()
    give_consent(read, place.state, now=utc_now())

    assert "`cmem trust" in place.refusal()


def test_consent_ends_where_it_is_revoked(place: Place) -> None:
    file = place.write(SEED_GRAPHITI)
    place.trust("--yes")

    revoked = place.trust("--revoke", "--json")
    assert (json.loads(revoked.stdout)["revoked"], revoked.exit_code) == ([file.name], 0)
    assert place.status()["trusted"] is False
    again = place.trust("--revoke", "--json")
    assert (json.loads(again.stdout)["revoked"], again.exit_code) == ([], 1)
    assert str(place.workspace) in again.stderr


def test_a_copy_of_a_trusted_workspace_is_not_trusted_and_a_moved_one_is(
    place: Place, tmp_path: Path
) -> None:
    file = place.write(SEED_GRAPHITI)
    place.trust("--yes")
    place.workspace.rename(tmp_path / "moved")
    place.workspace.mkdir()
    file.write_text(SEED_GRAPHITI, encoding="utf-8")

    assert place.status()["trusted"] is False
    place.workspace = tmp_path / "moved"
    assert place.status()["trusted"] is True


def test_a_link_is_trusted_for_what_it_leads_to(place: Place, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.yml"
    target.write_text(SEED_GRAPHITI, encoding="utf-8")
    (place.workspace / "openclaw.yml").symlink_to(target)
    place.trust("--yes")
    assert place.status()["trusted"] is True

    target.write_text(SEED_GRAPHITI + "# changed\n", encoding="utf-8")
    assert place.status()["trusted"] is False


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["openclaw.yml", "."])
def test_what_another_user_owns_is_not_trusted(place: Place, name: str) -> None:
    place.write(SEED_GRAPHITI)
    place.trust("--yes")
    os.chown(place.workspace / name, 12345, -1)

    assert place.status()["trusted"] is False
    refused = place.trust("--yes")
    assert (refused.exit_code, "belongs to another user" in refused.stderr) == (1, True)


def test_consent_that_a_workspace_brings_along_does_not_count(place: Place) -> None:
    place.write(SEED_GRAPHITI)
    inside = place.workspace / "state"
    inside.mkdir()

    with pytest.raises(ConfigError, match="could send consent"):
        give_consent(place.read(), inside, now=utc_now())
    give_consent(place.read(), place.workspace.parent, now=utc_now())
    (place.workspace.parent / "trusted").rename(inside / "trusted")
    assert consent_to(place.read(), inside) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"path": 3, "device": 1, "inode": 1, "birth": 1}'])
def test_a_consent_that_cannot_be_read_is_none(place: Place, text: str) -> None:
    place.write(SEED_GRAPHITI)
    place.trust("--yes")
    (record,) = (place.state / "trusted").iterdir()
    assert record.stat().st_mode & 0o077 == 0
    record.write_text(text, encoding="utf-8")

    assert place.status()["trusted"] is False


def test_what_is_harmless_needs_no_consent(place: Place) -> None:
    place.write("memory: {citations: never}")

    assert (place.status()["trusted"], place.trust().exit_code) == (True, 0)
    assert not (place.state / "trusted").exists()


def test_what_nobody_could_use_is_not_trusted(place: Place) -> None:
    place.write("memory:\n  graphiti: {enabled: true}\n  qurey: {depth: 3}\n")
    refused = place.trust("--yes")

    assert (refused.exit_code, "did you mean 'memory.query'" in refused.stderr) == (1, True)
    assert place.status()["trusted"] is False


def test_the_first_file_counts_and_the_others_are_named(place: Place) -> None:
    files = [
        place.write("memory: {citations: never}", name)
        for name in (
            ".composable-memory.yml",
            "composable-memory.yaml",
            "composable-memory.yml",
            "openclaw.yaml",
        )
    ]
    loaded = place.load()

    assert str(loaded.origins["memory.citations"]) == f"{files[0]}:1"
    assert [str(file) in note for file, note in zip(files[1:], loaded.notes, strict=True)] == [True] * 3
    for command in ("index", "status"):
        assert str(files[1]) in place.cmem(command, "--workspace", str(place.workspace)).stderr


def test_a_backend_that_is_only_listed_is_on_once_the_file_is_trusted(place: Place) -> None:
    place.write("memory: {backends: {graphiti: {weight: 2}}}")
    before = place.load()
    assert not before.settings.memory.section("graphiti").enabled
    assert "`cmem trust" in before.notes[0]

    place.trust("--yes")
    after = place.load()
    assert after.settings.memory.section("graphiti").enabled
    assert after.notes == ()


# --- what OpenClaw says beside `memory` ---------------------------------------------------------------------


def test_what_openclaw_says_elsewhere_is_read_or_named(place: Place) -> None:
    file = place.write(OPENCLAW_JSON, "openclaw.json")
    place.trust("--yes")
    loaded = place.load(GEMINI_KEY="secret")
    memory, builtin = loaded.settings.memory, loaded.settings.memory.section("builtin").options

    assert (memory.embedding.provider, memory.embedding.model) == ("gemini", "gemini-embedding-001")
    assert memory.query.max_results == 4
    assert builtin["chunking"] == {"tokens": 300, "overlap": 40}
    assert builtin["sync"] == {"watch": False, "sessions": {"delta_messages": 9}}
    assert builtin["query"] == {"hybrid": {"vector_weight": 0.6, "text_weight": 0.4, "mmr": {"lambda": 0.5}}}
    assert builtin["extra_paths"] == ["docs", "http://x"]
    flush = memory.hooks.flush
    assert (flush.enabled, flush.soft_threshold_tokens, flush.reserve_tokens) == (False, 5000, 9000)
    assert "secret" not in repr(memory)
    assert str(loaded.origins["memory.query.max_results"]) == f"{file}:9"
    assert [note.split(" ")[0] for note in loaded.notes] == [
        "agents.defaults.memory_search.store.path",
        "agents.defaults.memory_search.remote.batch.enabled",
        "agents.defaults.compaction.memory_flush.system_prompt",
        "agents.list.*.memory_search.enabled",
    ]


def test_what_openclaw_asks_for_elsewhere_waits_for_consent_and_does_not_stop_the_memory(
    place: Place,
) -> None:
    place.write(OPENCLAW_JSON, "openclaw.json")
    loaded = place.load(GEMINI_KEY="secret")

    assert loaded.settings.memory.embedding.provider == "auto"
    assert loaded.settings.memory.embedding.providers == {}
    assert loaded.settings.memory.query.max_results == 4
    ignored = {note.split(" ")[0] for note in loaded.notes if "`cmem trust" in note}
    assert not loaded.settings.memory.hooks.flush.enabled  # off is harmless
    assert ignored == {
        "memory.hooks.flush.soft_threshold_tokens",
        "memory.hooks.flush.reserve_tokens",
        "memory.embedding.provider",
        "memory.embedding.model",
        "memory.embedding.providers.gemini.api_key_env",
    }


def test_other_files_that_openclaw_would_include_are_named(place: Place) -> None:
    agents = '{"$include": "./agents.json5", "defaults": {"memorySearch": false}}'
    place.write(f'{{"$include": ["./base.json5"], "agents": {agents}}}', "openclaw.json")
    named = [note.split(" ")[0] for note in place.load().notes]

    assert named == ["agents.defaults.memory_search", "$include", "agents.$include"]


def test_what_stands_under_memory_comes_before_what_openclaw_says_elsewhere(place: Place) -> None:
    place.write(
        "agents: {defaults: {memorySearch: {query: {maxResults: 3, minScore: 0.2}}}}\n"
        "memory: {query: {maxResults: 5}, search: {chunking: {tokens: 200}}}\n"
    )
    memory = place.load().settings.memory

    assert (memory.query.max_results, memory.query.min_score) == (5, 0.2)
    assert memory.section("builtin").options == {"chunking": {"tokens": 200}}


Damage = Callable[[str], str]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-3],
        lambda text: text.replace("tokens: 300", "tokens: *x"),
        lambda text: f"[{text}]",
    ],
)
def test_a_broken_file_of_openclaw_is_refused_by_name(place: Place, damage: Damage) -> None:
    file = place.write(damage(OPENCLAW_JSON), "openclaw.json")

    assert str(file) in place.refusal()
