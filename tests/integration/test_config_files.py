"""Settings files as people write them: trusted and untrusted, sound and broken."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from composable_memory.config.layers import LoadedSettings, checked_settings, load_settings
from composable_memory.config.settings import Settings
from composable_memory.config.validation import known_keys
from composable_memory.errors import ConfigError
from composable_memory.registry import discover_backends
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.qmd.settings import QmdSettings

pytestmark = pytest.mark.security

SAMPLE_CONFIG = """\
memory:
  backend: qmd
  citations: always
  graphiti:
    enabled: true
    serverHost: localhost
    servicePort: 8001
  qmd:
    command: qmd
    includeDefaultMemory: true
    paths:
      - path: ~/projects/notes
        pattern: "**/*.md"
        name: notes
    update:
      interval: 5m
      onBoot: true
"""


class Files:
    """A workspace and a user's own file, both empty at first."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.own = folder / "home" / "composable-memory" / "config.yaml"
        self.own.parent.mkdir(parents=True)
        self.workspace.mkdir()

    def load(self, **variables: str) -> LoadedSettings:
        return load_settings(
            self.workspace, environ={"XDG_CONFIG_HOME": str(self.own.parent.parent), **variables}
        )

    def write(self, text: str | bytes, name: str = ".composable-memory.yaml") -> Path:
        """Write a file of the workspace."""
        return write(self.workspace / name, text)

    def refusal(self) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            self.load()
        return caught.value


def write(file: Path, text: str | bytes) -> Path:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def nested(key: str, value: str) -> str:
    """Return the YAML that gives the dotted `key` the `value`, in flow style."""
    for name in reversed(key.split(".")):
        value = f"{{{name}: {value}}}"
    return value


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_later_layers_win_and_every_value_knows_its_line(files: Files) -> None:
    write(files.own, "memory:\n  citations: never\n  query:\n    maxResults: 9\n    depth: 40\n")
    workspace = files.write("# notes\nmemory:\n  query:\n    depth: 50\n")
    loaded = files.load(COMPOSABLE_MEMORY__QUERY__MIN_SCORE="0.2")

    query = loaded.settings.memory.query
    assert (query.max_results, query.depth, query.min_score) == (9, 50, 0.2)
    assert {key: str(origin) for key, origin in loaded.origins.items()} == {
        "memory.citations": f"{files.own}:2",
        "memory.query.max_results": f"{files.own}:4",
        "memory.query.depth": f"{workspace}:4",
        "memory.query.min_score": "environment variable COMPOSABLE_MEMORY__QUERY__MIN_SCORE",
    }


def test_the_user_may_name_another_file(files: Files, tmp_path: Path) -> None:
    other = write(tmp_path / "other.yaml", "memory: {citations: never}")

    assert files.load(COMPOSABLE_MEMORY_CONFIG=str(other)).settings.memory.citations == "off"
    loaded = load_settings(files.workspace, environ={}, user_file=other)
    assert loaded.settings.memory.citations == "off"


def test_a_file_that_was_named_has_to_exist(files: Files, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        files.load(COMPOSABLE_MEMORY_CONFIG=str(tmp_path / "missing.yaml"))


def test_an_openclaw_file_is_read_as_it_is(files: Files) -> None:
    own = write(files.own.with_name("openclaw.yml"), "agents: {list: [1]}\n" + SAMPLE_CONFIG)
    memory = files.load(COMPOSABLE_MEMORY_CONFIG=str(own)).settings.memory

    assert (memory.backend, memory.citations, memory.section("qmd").enabled) == ("qmd", "on", True)
    assert memory.section("graphiti").options == {"server_host": "localhost", "service_port": 8001}
    assert memory.section("qmd").options == {
        "command": "qmd",
        "include_default_memory": True,
        "paths": [{"path": "~/projects/notes", "pattern": "**/*.md", "name": "notes"}],
        "update": {"interval": "5m", "on_boot": True},
    }


def test_an_openclaw_file_without_a_memory_block_says_nothing(files: Files) -> None:
    files.write("agents: !custom {x: 1}\n", "openclaw.yml")

    assert files.load().settings == checked_settings({}, discover_backends())


def test_our_own_file_comes_before_an_openclaw_file(files: Files) -> None:
    files.write("memory: {citations: never}")
    files.write("memory: {citations: always}", "openclaw.yml")

    assert files.load().settings.memory.citations == "off"


def test_a_workspace_file_that_the_user_names_is_trusted(files: Files) -> None:
    named = files.write(SAMPLE_CONFIG, "openclaw.yml")

    assert files.refusal().origin == f"{named}:2"
    assert files.load(COMPOSABLE_MEMORY_CONFIG=str(named)).settings.memory.backend == "qmd"


@pytest.mark.parametrize(
    "text",
    ["", "\n", "# only a remark\n", "---\n", "memory:\n", "memory: {}\n", "memory:\n  query:\n  qmd:\n"],
)
def test_a_file_that_says_nothing_changes_nothing(files: Files, text: str) -> None:
    write(files.own, text)
    files.write(text)

    assert files.load().settings == checked_settings({}, discover_backends())


def test_a_section_whose_keys_are_commented_out_leaves_the_layers_below(files: Files) -> None:
    write(files.own, "memory: {query: {depth: 40}}")
    files.write("memory:\n  query:\n    # depth: 50\n")

    assert files.load().settings.memory.query.depth == 40


def test_a_byte_order_mark_is_no_part_of_the_text(files: Files) -> None:
    write(files.own, b"\xef\xbb\xbfmemory: {citations: never}\r\n")

    assert files.load().settings.memory.citations == "off"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("on", "on"),
        ("No", "No"),
        ("true", True),
        ("~", None),
        ("12", 12),
        ("-3", -3),
        ("0012", "0012"),
        ("1:30", "1:30"),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("2024-01-02", "2024-01-02"),
        (".inf", ".inf"),
        ("9" * 30, "9" * 30),
        ("5m", "5m"),
        ("!!str 12", "12"),
        ("'12'", "12"),
    ],
)
def test_plain_words_mean_what_they_look_like(files: Files, text: str, read: object) -> None:
    write(files.own, f"memory: {{graphiti: {{x: {text}}}}}")

    value = files.load().settings.memory.section("graphiti").options["x"]
    assert (value, type(value)) == (read, type(read))


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (b"memory:\n  citations: [\n", 3, "not valid YAML"),
        (b"memory:\n\tquery: 1\n", 2, "not valid YAML"),
        (b"memory: {a: 1}\n---\nmemory: {}\n", 2, "expected a single document|but found another document"),
        (b"- memory\n", 1, "expected keys and values"),
        (b"\n\ntext\n", 3, "expected keys and values"),
        (b"memory: []\n", 1, "expected keys and values"),
        (b"memory:\n  query: 3\n", 2, "expected keys and values"),
        (b"memory:\n  query:\n    depth: 1\n    depth: 2\n", 4, "set twice"),
        (b"memory:\n  query:\n    maxResults: 1\n    max_results: 2\n", 4, "set twice"),
        (b"memory: {}\nmemory: {}\n", 2, "set twice"),
        (b"\nquery: {depth: 3}\n", 2, "under `memory:`"),
        (b"memory:\n  qmd: {a: &a [1], b: *a}\n", 2, "aliases are not supported"),
        (b"memory: &m\n  qmd: *m\n", 2, "aliases are not supported"),
        (b"memory:\n  qmd: !!python/object:os.system {}\n", 2, "cannot be read as"),
        (b"memory:\n  qmd: {a: !!int x}\n", 2, "cannot be read as"),
        (b"memory:\n  qmd: {a: !!bool x}\n", 2, "cannot be read as"),
        (b"memory:\n  qmd: {a: !!int [1]}\n", 2, "cannot be read as"),
        (b"memory:\n  qmd: {a: !!seq x}\n", 2, "cannot be read as"),
        (b"memory:\n  qmd: !!map x\n", 2, "cannot be read as"),
        (b"memory:\n  qmd: {a: !!set {x}}\n", 2, "cannot be read as"),
        (b"memory:\n  ? [a, b]\n  : 1\n", 2, "unknown key"),
        (b'memory:\n  "\\e[2J": 1\n', 2, r"'\\x1b\[2J' is no key"),
        (b"memory:\n  " + b"a" * 1000 + b": 1\n", 2, "is no key"),
        (b"memory:\n  # caf\xe9\n", 2, "not text in UTF-8"),
        (b"memory: " + b"[" * 100_000, 1, "too many values"),
        (b"memory:\n" + b"  - x\n" * 20_000, 2, "too many values"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(files: Files, text: bytes, line: int, problem: str) -> None:
    write(files.own, text)

    with pytest.raises(ConfigError, match=problem) as caught:
        files.load()
    assert caught.value.origin == f"{files.own}:{line}"


def test_control_characters_are_refused(files: Files) -> None:
    write(files.own, "memory: \x01\n")

    assert "not valid YAML" in str(files.refusal())


def test_a_file_of_more_than_a_mebibyte_is_refused(files: Files) -> None:
    write(files.own, "#" * (2**20 + 1))

    assert "larger than 1048576 bytes" in str(files.refusal())


def test_a_removed_setting_is_named_with_what_to_do(files: Files) -> None:
    write(files.own, nested("memory.feedback.shadow_queries", "5"))

    refusal = files.refusal()
    assert (refusal.key, refusal.nearest) == ("memory.feedback.shadow_queries", None)
    assert "delete" in str(refusal)


def test_a_removed_value_is_named_with_those_that_are_left(files: Files) -> None:
    write(files.own, nested("memory.feedback.advisor", "both"))

    refusal = files.refusal()
    assert refusal.key == "memory.feedback.advisor"
    assert "removed; choose statistical, or llm" in str(refusal)


def test_what_is_no_file_is_refused_without_waiting_for_it(files: Files) -> None:
    os.mkfifo(files.workspace / ".composable-memory.yaml")

    assert "not a regular file" in str(files.refusal())


def test_a_file_that_cannot_be_opened_is_refused_by_name(files: Files) -> None:
    loop = files.workspace / ".composable-memory.yaml"
    loop.symlink_to(loop)

    assert files.refusal().origin == str(loop)


def test_a_workspace_that_is_not_there_says_nothing(files: Files) -> None:
    files.workspace.rmdir()

    assert files.load().settings == checked_settings({}, discover_backends())


def test_an_unknown_key_is_named_with_file_line_and_suggestion(files: Files) -> None:
    write(files.own, "memory:\n  query:\n    maxResult: 3\n")

    assert str(files.refusal()) == (
        f"setting memory.query.max_result (from {files.own}:3): unknown key;"
        " did you mean 'memory.query.max_results'?"
    )


def test_a_secret_in_the_users_file_is_taken_with_a_note(files: Files) -> None:
    write(files.own, "memory:\n  graphiti:\n    apiKey: sesame\n")
    loaded = files.load()

    assert loaded.settings.memory.section("graphiti").options == {"api_key": SecretStr("sesame")}
    key = "memory.graphiti.api_key"
    assert loaded.notes == (
        f"{key} ({files.own}:3) is a secret in a file; {key}_env can name a variable instead",
    )
    assert "sesame" not in repr(loaded)


def test_a_secret_may_be_named_in_the_users_file(files: Files) -> None:
    write(files.own, "memory:\n  graphiti:\n    apiKeyEnv: MY_KEY\n")
    loaded = files.load(MY_KEY="sesame")

    assert loaded.settings.memory.section("graphiti").options == {"api_key": SecretStr("sesame")}
    assert str(loaded.origins["memory.graphiti.api_key"]) == f"{files.own}:3, environment variable MY_KEY"
    assert loaded.notes == ()


WORKSPACE_MAY_SET = {
    "memory.backend": "builtin",
    "memory.fallback": "none",
    "memory.citations": "never",
    "memory.query.max_results": "9",
    "memory.query.show_weak": "true",
    "memory.query.min_score": "0.1",
    "memory.query.fusion": "rrf",
    "memory.query.dedup": "exact",
    "memory.query.depth": "30",
    "memory.query.timeout_ms": "100",
    "memory.query.rrf_k": "10",
    "memory.embedding.provider": "none",
    "memory.builtin.enabled": "false",
    "memory.builtin.weight": "0.5",
    "memory.builtin.timeout_ms": "100",
    "memory.builtin.calibration": "rank",
    "memory.builtin.condition": "[entities, times]",
    "memory.builtin.sources": "[memory]",
    "memory.builtin.scope": "folder",
    "memory.builtin.extra_paths": "[docs, ./more/../docs, .]",
    "memory.builtin.chunking.tokens": "200",
    "memory.builtin.chunking.overlap": "20",
    "memory.builtin.query.max_results": "9",
    "memory.builtin.query.min_score": "0.1",
    "memory.builtin.query.hybrid.enabled": "false",
    "memory.builtin.query.hybrid.vector_weight": "0.5",
    "memory.builtin.query.hybrid.text_weight": "0.5",
    "memory.builtin.query.hybrid.candidate_multiplier": "3",
    "memory.builtin.query.rerank": "late-interaction",
    "memory.graphiti.enabled": "false",
    "memory.graphiti.weight": "0.5",
    "memory.qmd.enabled": "false",
    "memory.qmd.weight": "0.5",
    "memory.qmd.search_mode": "search",
    "memory.qmd.rerank": "false",
    "memory.qmd.include_default_memory": "false",
    "memory.qmd.paths": "[docs, {path: ./more, pattern: '2026-*/**/*.md', name: more}]",
    "memory.qmd.limits.max_results": "3",
    "memory.qmd.limits.timeout_ms": "900",
    "memory.qmd.sessions.enabled": "false",
    "memory.backends.notes.enabled": "false",
    "memory.backends.notes.weight": "0.5",
    "memory.feedback.enabled": "false",
    "memory.feedback.auto_apply": "false",
    "memory.feedback.window_days": "7",
}


@pytest.mark.parametrize(("key", "value"), WORKSPACE_MAY_SET.items())
def test_a_workspace_may_set_what_does_no_harm(files: Files, key: str, value: str) -> None:
    file = files.write(nested(key, value))

    assert str(files.load().origins[key]) == f"{file}:1"


HARMLESS_SECTIONS = (
    "memory.builtin.query.",
    "memory.builtin.sync.",
    "memory.builtin.cache.",
    "memory.qmd.limits.",
)
OTHERS = (
    "memory.graphiti.server_host",
    "memory.graphiti.base_url",
    "memory.graphiti.api_key",
    "memory.graphiti.api_key_env",
    "memory.embedding.providers.openai.api_key_env",
    "memory.embedding.providers.openai.base_url",
    "memory.embedding.providers.openai.headers",
    "memory.embedding.providers.local.model_path",
    "memory.embedding.providers.local.hub_url",
    "memory.embedding.providers.local.n_ctx",
    "memory.backends.notes.command",
    "memory.backends.notes.deeper.enabled",
    "memory.builtin.store.vector.extension_path",
    "memory.builtin.command",
)
REFUSED = [
    key.replace("<id>", "notes")
    for key in (
        *known_keys(Settings),
        *known_keys(BuiltinSettings, "memory.builtin"),
        *known_keys(QmdSettings, "memory.qmd"),
        *OTHERS,
    )
    if key.replace("<id>", "notes") not in WORKSPACE_MAY_SET
    and not key.startswith((*HARMLESS_SECTIONS, "memory.qmd.paths."))
]


def test_a_section_of_a_workspace_that_is_no_section_is_told_its_shape(files: Files) -> None:
    files.write("memory: {query: 5}")

    assert "expected keys and values" in str(files.refusal())


def test_a_misspelt_section_of_a_workspace_is_told_before_consent_is_asked_for(files: Files) -> None:
    files.write("memory: {qurey: {max_results: 3}}")

    assert files.refusal().nearest == "memory.query"


def test_a_workspace_may_set_nothing_else(files: Files) -> None:
    for key in REFUSED:
        file = files.write("\n" + nested(key, "1"))
        error = files.refusal()

        assert (error.key, error.origin) == (key, f"{file}:2")
        assert f"`cmem trust {files.workspace}`" in str(error), key
        assert f"set it in {files.own}" in str(error), key


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory.backend", "qmd"),
        ("memory.backend", "notes"),
        ("memory.fallback", "graphiti"),
        ("memory.embedding.provider", "openai"),
        ("memory.embedding.provider", "auto-remote"),
        ("memory.graphiti.enabled", "true"),
        ("memory.graphiti.enabled", "'yes'"),
        ("memory.builtin.query.rerank", "a-service"),
        ("memory.qmd.enabled", "1"),
        ("memory.qmd.search_mode", "query"),
        ("memory.qmd.search_mode", "vsearch"),
        ("memory.qmd.rerank", "true"),
        ("memory.qmd.sessions.enabled", "true"),
        ("memory.backends.notes.enabled", "true"),
        ("memory.feedback.enabled", "true"),
        ("memory.feedback.auto_apply", "true"),
        ("memory.feedback.auto_apply", "'on'"),
    ],
)
def test_a_workspace_may_not_turn_on_what_leaves_the_machine(files: Files, key: str, value: str) -> None:
    files.write(nested(key, value))

    assert files.refusal().key == key
    assert "a workspace may only say" in str(files.refusal())


@pytest.mark.parametrize(
    "entry",
    [
        "/etc",
        "..",
        "../other",
        "a/../../b",
        "'~'",
        "~/notes",
        "' /etc'",
        "'\\t../x'",
        "link",
        "link/x",
        "'a\\0b'",
        "~nobody-here/x",
    ],
)
def test_paths_of_a_workspace_stay_inside_it(files: Files, entry: str, tmp_path: Path) -> None:
    (files.workspace / "link").symlink_to(tmp_path)
    files.write(nested("memory.builtin.extraPaths", f"[docs, {entry.replace(chr(39), chr(34))}]"))

    assert "is outside the workspace" in str(files.refusal())


@pytest.mark.parametrize("entry", ["{path: /etc}", "[/etc]", "3"])
def test_paths_of_a_workspace_are_texts(files: Files, entry: str) -> None:
    files.write(nested("memory.builtin.extra_paths", f"[{entry}]"))

    assert "is not a path" in str(files.refusal())


def test_a_single_path_of_a_workspace_is_checked_like_a_list(files: Files) -> None:
    files.write(nested("memory.builtin.extra_paths", "/etc"))

    assert "is outside the workspace" in str(files.refusal())


@pytest.mark.parametrize("entry", ["/etc", "../other", "~", "link"])
@pytest.mark.parametrize("shape", ["{}", "[docs, {}]", "[{{path: {}}}]"])
def test_collections_of_a_workspace_stay_inside_it(
    files: Files, entry: str, shape: str, tmp_path: Path
) -> None:
    (files.workspace / "link").symlink_to(tmp_path)
    files.write(nested("memory.qmd.paths", shape.format(f'"{entry}"')))

    assert files.refusal().key == "memory.qmd.paths"
    assert "is outside the workspace" in str(files.refusal())


@pytest.mark.parametrize(
    "pattern",
    ["../**/*.md", "**/..*/*.md", "/etc/*.md", "{a,/etc/*}.md", "a.md,/etc/b.md", "**/*", "!x.md", "3"],
)
def test_a_pattern_of_a_workspace_names_markdown_files_inside(files: Files, pattern: str) -> None:
    files.write(nested("memory.qmd.paths", f"[{{path: docs, pattern: {pattern!r}}}]"))

    assert "may match files other than Markdown there" in str(files.refusal())


@pytest.mark.parametrize("entry", ["[3]", "[[docs]]", "[{name: x}]"])
def test_collections_of_a_workspace_are_folders(files: Files, entry: str) -> None:
    files.write(nested("memory.qmd.paths", entry))

    assert "is not a" in str(files.refusal())


def test_a_weight_from_the_workspace_does_not_turn_a_backend_on(files: Files) -> None:
    files.write("memory: {backends: {notes: {weight: 2}, graphiti: {weight: 2}}}")

    memory = files.load().settings.memory
    assert not memory.backends["notes"].enabled
    assert (memory.section("graphiti").enabled, memory.section("graphiti").weight) == (False, 2)


def test_a_workspace_may_name_the_builtin_index_among_the_backends(files: Files) -> None:
    write(files.own, "memory: {backend: qmd}")
    files.write("memory: {backends: {builtin: {weight: 2}}}")

    memory = files.load().settings.memory
    assert (memory.section("builtin").enabled, memory.fallback_id) == (True, None)


def test_a_workspace_may_not_say_under_backends_what_it_may_not_say_elsewhere(files: Files) -> None:
    file = files.write("memory:\n  backends:\n    qmd:\n      command: rm\n")
    error = files.refusal()

    assert (error.key, error.origin) == ("memory.qmd.command", f"{file}:4")


def test_a_workspace_turns_off_what_the_user_turned_on(files: Files) -> None:
    write(files.own, "memory: {backend: qmd, graphiti: {enabled: true}}")
    files.write("memory: {qmd: {enabled: false}, graphiti: {enabled: false}}")

    memory = files.load().settings.memory
    assert [id_ for id_, section in memory.sections.items() if section.enabled] == ["builtin"]


LISTED = """\
memory:
  backends:
    builtin:
      weight: 1
    qmd: {}
    graphiti:
"""


def test_all_backends_may_be_named_in_one_place(files: Files) -> None:
    write(files.own, LISTED)
    loaded = files.load()

    memory = loaded.settings.memory
    assert {id_ for id_, section in memory.sections.items() if section.enabled} == {
        "builtin",
        "graphiti",
        "qmd",
    }
    assert {key: origin.line for key, origin in loaded.origins.items()} == {
        "memory.builtin.enabled": 4,
        "memory.builtin.weight": 4,
        "memory.qmd.enabled": 5,
        "memory.graphiti.enabled": 6,
    }


def test_an_unknown_key_under_backends_is_named_where_it_belongs(files: Files) -> None:
    write(files.own, "memory:\n  backends:\n    builtin:\n      calibratoin: max\n")
    loaded = files.load()

    assert loaded.settings.memory.section("builtin").options == {"calibratoin": "max"}
    assert str(loaded.origins["memory.builtin.calibratoin"]) == f"{files.own}:4"


def test_a_key_in_both_places_of_a_section_is_refused_with_both_lines(files: Files) -> None:
    write(
        files.own,
        "memory:\n  qmd:\n    limits: {timeout_ms: 9}\n  backends:\n    qmd: {limits: {timeoutMs: 8}}\n",
    )
    error = files.refusal()

    assert (error.key, error.origin) == ("memory.qmd.limits.timeout_ms", f"{files.own}:3")
    assert f"also set as memory.backends.qmd.limits.timeout_ms ({files.own}:5)" in str(error)


YAML_TOKENS = (
    "!!seq !!map !!str !!int !!float !!bool !!null !!set !!omap !!binary !!timestamp ! !x &a *a << ? : - | > "
    "[ ] { } , x 1 'y' query: {query: {backend: \n \n- \n? ... ---"
).split(" ")

yaml_like = st.one_of(
    st.binary(max_size=200),
    st.text(alphabet="memoryquery:{}[]&*!-?|>#'\"\n\t ,.0%@\\", max_size=200).map(str.encode),
    st.lists(st.sampled_from(YAML_TOKENS), max_size=12).map(
        lambda words: f"memory: {' '.join(words)}".encode()
    ),
    st.text(max_size=100).map(lambda text: f"memory: {text}".encode("utf-8", "surrogatepass")),
)


@given(text=yaml_like)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_settings_or_a_config_error(files: Files, text: bytes) -> None:
    files.write(text)
    try:
        loaded = files.load()
    except ConfigError as error:
        assert str(files.workspace) in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert isinstance(loaded.settings, Settings)
