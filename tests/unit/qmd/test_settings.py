"""What the settings of the QMD memory accept, what they assume, and what they say about what is wrong."""

import pytest
from pydantic import ValidationError

from composable_memory.config.validation import check
from composable_memory.errors import ConfigError
from composable_memory_adapters.qmd.settings import (
    DIRECT_ONLY,
    CollectionSettings,
    QmdSettings,
    seconds,
)


def settings(**options: object) -> QmdSettings:
    return QmdSettings.model_validate(options)


def problem(**options: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check(QmdSettings, options, key="memory.qmd")
    return caught.value


# --- durations ---


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("30s", 30.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("500ms", 0.5),
        ("2d", 172_800.0),
        ("1.5h", 5400.0),
        (" 5 M ", 300.0),
        ("5", 300.0),
        (5, 300.0),
        (0.5, 30.0),
        (0, 0.0),
        ("0", 0.0),
        ("0s", 0.0),
    ],
)
def test_a_duration_is_a_number_with_a_unit_or_a_bare_number_of_minutes(
    written: object, expected: float
) -> None:
    assert settings(update={"interval": written}).update.interval == pytest.approx(expected)


@pytest.mark.parametrize("written", ["0s", "5m", "1h", "30h", "0.5s", "1h30m", 7])
def test_a_duration_that_is_written_out_is_read_as_the_same(written: object) -> None:
    first = settings(update={"interval": written})
    again = settings(**first.model_dump())

    assert again.update.interval == first.update.interval


@pytest.mark.parametrize(
    "written",
    [
        *("", "soon", "5x", "m5", "5m!", "-5m", "1h and 5m", "5,5m", True, -5),
        pytest.param("1" * 100_000 + "x", id="so long that it must be read once"),
    ],
)
def test_what_is_no_duration_is_refused_with_an_example(written: object) -> None:
    assert "30s, 5m or 1h30m" in str(problem(update={"interval": written}))


@pytest.mark.parametrize("written", [None, [5], {"m": 5}])
def test_what_cannot_be_a_duration_is_refused(written: object) -> None:
    assert problem(update={"interval": written}).key == "memory.qmd.update.interval"


def test_what_is_neither_text_nor_number_is_left_for_the_type_to_refuse() -> None:
    assert (seconds(None), seconds([5])) == (None, [5])


def test_durations_that_nobody_wrote_count_seconds() -> None:
    assert (settings().update.interval, settings().update.embed_interval) == (300.0, 3600.0)
    assert (settings(update={}).update.interval, settings(update=None).update.interval) == (300.0, 300.0)
    assert settings(update={"on_boot": False}).update.embed_interval == 3600.0


# --- paths ---


def test_a_path_may_be_a_bare_text() -> None:
    assert settings(paths=["~/notes", {"path": "docs", "name": "papers"}]).paths == (
        CollectionSettings(path="~/notes"),
        CollectionSettings(path="docs", name="papers"),
    )


@pytest.mark.parametrize("blank", ["", "  ", {"path": ""}, {"path": " \t"}, {}])
def test_a_blank_path_is_left_out(blank: object) -> None:
    assert settings(paths=[blank, "docs"]).paths == (CollectionSettings(path="docs"),)


def test_paths_that_are_all_commented_out_are_none() -> None:
    assert settings(paths=None).paths == ()


def test_paths_that_are_no_list_are_refused() -> None:
    assert problem(paths="docs").key == "memory.qmd.paths"


def test_a_path_means_the_markdown_in_it_unless_it_says_otherwise() -> None:
    given, unset = settings(paths=[{"path": "docs", "pattern": "*.txt"}, "docs"]).paths

    assert (given.pattern, unset.pattern) == ("*.txt", "**/*.md")


@pytest.mark.parametrize("entry", [{"path": "docs", "name": ""}, {"path": "docs", "pattern": ""}, 5, None])
def test_a_path_without_a_name_or_a_pattern_that_it_speaks_of_is_refused(entry: object) -> None:
    assert problem(paths=[entry]).key.startswith("memory.qmd.paths.0")


# --- keys ---


def test_keys_may_be_written_in_either_case() -> None:
    written = {
        "searchMode": "query",
        "includeDefaultMemory": False,
        "sessions": {"exportDir": "exported", "retentionDays": 30},
        "update": {"onBoot": False, "debounceMs": 1, "waitForBootSync": True, "embedInterval": "2h"},
        "limits": {"maxResults": 6, "maxSnippetChars": 100, "maxInjectedChars": 4000, "timeoutMs": 4000},
        "daemon": {"startTimeoutMs": 1000},
        "mcporter": {"serverName": "notes", "startDaemon": False},
        "scope": {"default": "deny", "rules": [{"action": "allow", "match": {"chatType": "direct"}}]},
    }
    meant = {
        "search_mode": "query",
        "include_default_memory": False,
        "sessions": {"export_dir": "exported", "retention_days": 30},
        "update": {"on_boot": False, "debounce_ms": 1, "wait_for_boot_sync": True, "embed_interval": "2h"},
        "limits": {
            "max_results": 6,
            "max_snippet_chars": 100,
            "max_injected_chars": 4000,
            "timeout_ms": 4000,
        },
        "daemon": {"start_timeout_ms": 1000},
        "mcporter": {"server_name": "notes", "start_daemon": False},
        "scope": {"default": "deny", "rules": [{"action": "allow", "match": {"chat_type": "direct"}}]},
    }

    assert settings(**written) == settings(**meant) != settings()


@pytest.mark.parametrize(
    ("options", "key", "nearest"),
    [
        ({"comand": "qmd"}, "memory.qmd.comand", "memory.qmd.command"),
        ({"update": {"intervall": "5m"}}, "memory.qmd.update.intervall", "memory.qmd.update.interval"),
        ({"limits": {"max_result": 3}}, "memory.qmd.limits.max_result", "memory.qmd.limits.max_results"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(
    options: dict[str, object], key: str, nearest: str
) -> None:
    refused = problem(**options)

    assert refused.key == key
    assert nearest in str(refused)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"command": ""}, "command"),
        ({"search_mode": "fuzzy"}, "search_mode"),
        ({"limits": {"max_results": 0}}, "limits.max_results"),
        ({"limits": {"max_snippet_chars": 701}}, "limits.max_snippet_chars"),
        ({"limits": {"max_injected_chars": 1}}, "limits.max_injected_chars"),
        ({"limits": {"timeout_ms": 49}}, "limits.timeout_ms"),
        ({"sessions": {"retention_days": 0}}, "sessions.retention_days"),
        ({"daemon": {"start_timeout_ms": 99}}, "daemon.start_timeout_ms"),
        ({"update": {"debounce_ms": -1}}, "update.debounce_ms"),
        ({"models": {"embed": ""}}, "models.embed"),
        ({"scope": {"rules": [{"action": "maybe"}]}}, "scope.rules.0.action"),
        ({"scope": {"rules": [{"match": {}}]}}, "scope.rules.0.action"),
    ],
)
def test_a_value_out_of_range_is_refused(options: dict[str, object], key: str) -> None:
    assert problem(**options).key == f"memory.qmd.{key}"


# --- what the documents write ---

DOCUMENTED: dict[str, object] = {
    "command": "qmd",
    "includeDefaultMemory": True,
    "paths": [{"path": "~/projects/notes", "pattern": "**/*.md", "name": "notes"}],
    "sessions": {"enabled": True, "exportDir": "./session-exports", "retentionDays": 30},
    "update": {"interval": "5m", "debounceMs": 15000, "onBoot": True, "embedInterval": "60m"},
    "limits": {"maxResults": 6, "maxSnippetChars": 700, "maxInjectedChars": 4000, "timeoutMs": 4000},
}


def test_what_the_documents_write_is_understood() -> None:
    written = settings(**DOCUMENTED)

    assert written.paths == (CollectionSettings(path="~/projects/notes", pattern="**/*.md", name="notes"),)
    assert (written.sessions.retention_days, str(written.sessions.export_dir)) == (30, "session-exports")
    assert (written.update.interval, written.update.embed_interval) == (300.0, 3600.0)
    assert (written.limits.max_results, written.limits.max_injected_chars) == (6, 4000)


def test_what_nobody_wrote_is_as_the_documents_have_it_but_for_an_answers_limits_and_embedding() -> None:
    written, unsaid = settings(**DOCUMENTED), settings()

    assert unsaid.update == written.update
    assert (unsaid.limits.max_snippet_chars, unsaid.limits.timeout_ms) == (700, 4000)
    assert (unsaid.limits.max_results, unsaid.limits.max_injected_chars) == (None, None)
    assert unsaid.update.embed_timeout_ms == 30 * 60 * 1000


# --- what is assumed ---


def test_without_a_word_it_searches_the_memory_files_by_words_beside_a_daemon() -> None:
    assumed = settings()

    assert (assumed.command, assumed.search_mode, assumed.include_default_memory) == ("qmd", "search", True)
    assert (assumed.paths, assumed.sessions.enabled) == ((), False)
    assert (assumed.daemon.enabled, assumed.mcporter.enabled) == (True, False)
    assert (assumed.update.on_boot, assumed.update.wait_for_boot_sync) == (True, False)
    assert (assumed.limits.max_results, assumed.limits.timeout_ms) == (None, 4000)


def test_without_a_word_groups_and_channels_do_not_search() -> None:
    assert settings().scope == DIRECT_ONLY
    assert (DIRECT_ONLY.default, [rule.action for rule in DIRECT_ONLY.rules]) == ("deny", ["allow"])


def test_a_scope_of_its_own_allows_what_it_does_not_name() -> None:
    assert settings(scope={}).scope.default == "allow"


@pytest.mark.parametrize(("mode", "expected"), [("search", False), ("vsearch", True), ("query", True)])
def test_all_but_the_search_by_words_uses_vectors(mode: str, expected: bool) -> None:
    assert settings(search_mode=mode).uses_vectors is expected


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        settings().command = "other"
