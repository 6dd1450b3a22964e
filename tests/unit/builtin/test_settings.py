"""Settings of the builtin memory: old spellings, limits, and messages."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from composable_memory_adapters.builtin.settings import BuiltinSettings, filled_in


def parse(**options: object) -> BuiltinSettings:
    return BuiltinSettings.model_validate(options)


def test_the_defaults_are_valid() -> None:
    settings = parse()

    assert settings.sources == ("memory",)
    assert (settings.chunking.tokens, settings.chunking.overlap) == (400, 80)
    assert settings.query.hybrid.vector_weight is None


def test_both_spellings_are_read() -> None:
    camel = parse(extraPaths=["notes"], sync={"onSearchWaitMs": 5}, store={"vector": {"exactLimit": 3}})
    snake = parse(extra_paths=["notes"], sync={"on_search_wait_ms": 5}, store={"vector": {"exact_limit": 3}})

    assert camel == snake


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ValidationError, match="chunkSize"):
        parse(chunking={"chunkSize": 4})


def test_a_source_that_is_named_twice_counts_once() -> None:
    assert parse(sources=["memory", "sessions", "memory"]).sources == ("memory", "sessions")


def test_no_source_means_the_memory_files() -> None:
    assert parse(sources=[]).sources == ("memory",)


@pytest.mark.parametrize(("overlap", "held"), [(80, 9), (9, 9), (-4, 0), (0, 0)])
def test_the_overlap_is_held_below_the_size_of_a_chunk(overlap: int, held: int) -> None:
    assert parse(chunking={"tokens": 10, "overlap": overlap}).chunking.overlap == held


@pytest.mark.parametrize(
    ("vector", "text", "expected"),
    [
        (0.7, 0.3, (0.7, 0.3)),
        (1.0, 1.0, (0.5, 0.5)),
        (7, 3, (0.5, 0.5)),  # each is held in 0..1 first
        (-1, 0.5, (0.0, 1.0)),
        (0.4, None, (0.4, 0.6)),
        (None, 0.4, (0.6, 0.4)),
        (0, 0, (None, None)),
        (None, None, (None, None)),
    ],
)
def test_weights_are_scaled_to_sum_to_one(
    vector: float | None, text: float | None, expected: tuple[float | None, float | None]
) -> None:
    hybrid = parse(query={"hybrid": {"vectorWeight": vector, "textWeight": text}}).query.hybrid

    assert (hybrid.vector_weight, hybrid.text_weight) == pytest.approx(expected)


@pytest.mark.parametrize(
    "options",
    [
        {"chunking": {"tokens": 0}},
        {"query": {"minScore": 1.5}},
        {"query": {"maxResults": 10**30}},
        {"query": {"hybrid": {"temporalDecay": {"halfLifeDays": 10**400}}}},
        {"sync": {"intervalMinutes": 10**400}},
        {"query": {"hybrid": {"candidateMultiplier": 21}}},
        {"cache": {"maxEntries": 0}},
        {"store": {"path": "{home}/x.sqlite"}},
        {"store": {"path": "  "}},
    ],
)
def test_values_out_of_range_are_errors(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        parse(**options)


def test_an_unknown_token_in_the_path_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"unknown \{home\}; known are \{stateDir\}"):
        parse(store={"path": "{home}/x.sqlite"})


def test_extra_paths_are_trimmed_expanded_and_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")

    paths = parse(extraPaths=[" ~/notes ", "/home/someone/notes", "", "../team"]).extra_paths

    assert paths == (Path("/home/someone/notes"), Path("../team"))


def test_two_workspaces_have_two_indexes(tmp_path: Path) -> None:
    default = parse().store.path
    one, two = (filled_in(default, state_dir=tmp_path, agent_id="main", workspace_id=name) for name in "ab")

    assert one != two
    assert one.parent == tmp_path / "memory"
    assert one.name.startswith("main-")


def test_the_path_of_the_index_can_be_chosen(tmp_path: Path) -> None:
    def place(template: str) -> Path:
        return filled_in(template, state_dir=tmp_path, agent_id="a/b", workspace_id="a1b2")

    assert place("{agentId}.db") == tmp_path / "a_b.db"
    assert place("/var/index.db") == Path("/var/index.db")
    assert place("~/index.db") == Path.home() / "index.db"
