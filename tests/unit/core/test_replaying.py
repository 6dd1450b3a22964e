"""Ranking logged queries again: as they were, as they might have been, and what cannot be."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Dedup, Fusion
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import ActiveWeights, LiveWeights, MergePolicy
from composable_memory.query.replay import Replayer, can_be_ranked, is_reproduced
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing.in_memory import FIXED_NOW, FakeBackend
from composable_memory.types import MemorySearchResult, Origin, SearchOptions
from composable_memory_feedback.experiments import Experiment
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import SNIPPET_PREVIEW_CHARS, OpsEvent, OpsLog
from composable_memory_ops_logs.line_format import sealed, to_line


class Told(FakeBackend):
    """Finds what it was told to, whatever is asked."""

    def __init__(self, *results: MemorySearchResult) -> None:
        super().__init__("told")
        self.results = results

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        return list(self.results[: options.max_results if options else None])


def hit(path: str, score: float, snippet: str = "", *, start: int = 1, end: int = 2) -> MemorySearchResult:
    return MemorySearchResult(
        path=path, start_line=start, end_line=end, score=score, snippet=snippet or f"{path} {start} alone"
    )


def piece(score: float, start_char: int) -> MemorySearchResult:
    snippet = f"piece {start_char} of words like number{start_char}"
    return replace(hit("long.md", score, snippet, end=1), start_char=start_char)


NOTES = (hit("a.md", 0.9), hit("b.md", 0.7), hit("c.md", 0.2))
GRAPH = (hit("b.md", 0.95), hit("d.md", 0.6))


async def ask(
    folder: Path,
    lists: Mapping[str, Sequence[MemorySearchResult]],
    *,
    weights: WeightTable | LiveWeights | None = None,
    policy: MergePolicy | None = None,
    max_results: int = 6,
) -> LoggedQuery:
    """Put a question to backends that find `lists`, and read it back from the log in `folder`."""
    entries = [
        ComposableBackendEntry(id=one, manager=Told(*found), calibration=Calibration.IDENTITY)
        for one, found in lists.items()
    ]
    async with OpsLog(folder) as ops_log:
        manager = ComposableMemoryManager(entries, ops_log=ops_log, weights=weights, policy=policy)
        await manager.query("which port", max_results=max_results)
        await manager.close()
    logged = await asyncio.to_thread(read_queries, folder)
    assert logged.incomplete == {}
    return logged.queries[-1]


def keys(hits: Sequence[RankedHit]) -> list[str]:
    return [one.path for one in hits]


def ranked(query: LoggedQuery, **changes: object) -> Sequence[RankedHit]:
    return Replayer()(query, replace(query.policy, **cast("dict[str, Any]", changes)))


def comparing(a: Mapping[str, float], b: Mapping[str, float]) -> LiveWeights:
    """Return weights of which an experiment compares two tables."""
    tables = [WeightTable.fixed(one) for one in (a, b)]
    live = LiveWeights(tables[0])
    experiment = Experiment(id="e1", a=tables[0], b=tables[1], started_at=FIXED_NOW)
    live.put(ActiveWeights(table=tables[0], experiment=experiment))
    return live


# --- as it was ----------------------------------------------------------------------------------------------


async def test_with_its_own_policy_a_query_is_ranked_as_it_was(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": NOTES, "graph": GRAPH})

    assert is_reproduced(query)
    assert tuple(ranked(query)) == query.shown
    assert [(one.key, one.others) for one in query.shown[:2]] == [
        ("b.md:1:2", ("b.md:1:2",)),
        ("a.md:1:2", ()),
    ]
    # As one that a store kept, which says nothing of the lines of the log.
    assert not is_reproduced(replace(query, written=None))


async def test_whole_numbers_for_scores_and_weights_are_reproduced(tmp_path: Path) -> None:
    query = await ask(
        tmp_path,
        {"notes": [hit("a.md", 1)], "graph": [hit("b.md", 0)]},
        weights=WeightTable.fixed({"notes": 1}),
    )

    assert is_reproduced(query)


async def test_pieces_of_one_line_are_told_apart_as_they_were(tmp_path: Path) -> None:
    one, other, third = piece(0.9, 0), piece(0.8, 1280), piece(0.7, 2560)
    query = await ask(tmp_path, {"notes": [one, other], "qmd": [other, third]})

    assert keys(query.shown) == ["long.md"] * 3
    assert [len(one.others) for one in query.shown] == [0, 1, 0]
    assert is_reproduced(query)


async def test_texts_that_differ_only_beyond_the_preview_are_told_apart(tmp_path: Path) -> None:
    beginning = " ".join(f"word{number}" for number in range(30))
    assert len(beginning) > SNIPPET_PREVIEW_CHARS
    ends = [" ".join(f"{end}{number}" for number in range(30)) for end in ("one", "other", "one")]
    found = [hit(f"{place}.md", 0.9 - place / 10, f"{beginning} {end}") for place, end in enumerate(ends)]

    query = await ask(tmp_path, {"notes": found})

    assert keys(query.shown) == ["0.md", "1.md"]
    assert query.near == {(0, 2)}
    assert is_reproduced(query)
    assert keys(ranked(query, dedup="exact")) == ["0.md", "1.md", "2.md"]


async def test_of_many_queries_only_so_many_are_kept_at_hand(tmp_path: Path) -> None:
    queries = [await ask(tmp_path / str(number), {"notes": NOTES}) for number in range(3)]
    replayer = Replayer(keeps=2)

    assert all(map(replayer.reproduces, queries))
    assert len(replayer._prepared) == 2


async def test_a_list_of_several_tiers_is_reproduced(tmp_path: Path) -> None:
    notes = [hit(f"n{place}.md", 0.9 - place / 50) for place in range(20)]
    graph = [hit(f"g{place}.md", 0.5 - place / 50) for place in range(5)]

    query = await ask(tmp_path, {"notes": notes, "graph": graph}, policy=MergePolicy(depth=2), max_results=15)

    assert (len(query.shown), query.policy.depth, query.lists[0].depth) == (15, 2, 16)
    assert is_reproduced(query)


async def test_answers_that_were_written_before_the_last_one_came_are_reproduced(tmp_path: Path) -> None:
    async with OpsLog(tmp_path) as ops_log:
        answered = asyncio.Event()

        class Late(Told):
            async def search(
                self, query: str, options: SearchOptions | None = None
            ) -> list[MemorySearchResult]:
                await answered.wait()
                await ops_log.flush()
                return await super().search(query, options)

        def listen(event: OpsEvent) -> None:
            if event.backend == "notes":
                answered.set()

        ops_log.subscribe(listen)
        entries = [
            ComposableBackendEntry(id=one, manager=manager)
            for one, manager in (("graph", Late(*GRAPH)), ("notes", Told(*NOTES)))
        ]
        response = await ComposableMemoryManager(entries, ops_log=ops_log).query("which port")
    logged = await asyncio.to_thread(read_queries, tmp_path)

    (query,) = logged.queries
    assert is_reproduced(query)
    assert [one.key for one in query.shown] == [one.key for one in response.results]


async def test_a_list_that_an_experiment_drew_is_reproduced(tmp_path: Path) -> None:
    live = comparing({"notes": 1.0, "graph": 0.2}, {"notes": 0.2, "graph": 1.0})

    query = await ask(tmp_path, {"notes": NOTES, "graph": GRAPH}, weights=live)

    assert query.experiment is not None
    assert len(query.experiment.teams) == len(query.shown)
    assert is_reproduced(query)


async def test_credit_for_the_other_side_is_not_the_same_list(tmp_path: Path) -> None:
    live = comparing({"notes": 1.0, "graph": 0.0}, {"notes": 0.0, "graph": 1.0})
    query = await ask(tmp_path, {"notes": NOTES[:1], "graph": GRAPH[1:]}, weights=live)
    assert query.experiment is not None

    changed = replace(query.experiment, teams=query.experiment.teams[::-1])

    assert is_reproduced(query)
    assert not is_reproduced(replace(query, experiment=changed))


async def test_another_seed_is_another_list(tmp_path: Path) -> None:
    live = comparing({"notes": 1.0, "graph": 0.0}, {"notes": 0.0, "graph": 1.0})
    query = await ask(tmp_path, {"notes": NOTES[:1], "graph": GRAPH[1:]}, weights=live)
    experiment = query.experiment
    assert experiment is not None

    others = [replace(query, experiment=replace(experiment, seed=seed)) for seed in range(20)]

    assert {is_reproduced(one) for one in others} == {True, False}


# --- what is not as it was ----------------------------------------------------------------------------------


def test_a_changed_row_of_the_log_is_noticed(tmp_path: Path) -> None:
    asyncio.run(ask(tmp_path, {"notes": NOTES, "graph": GRAPH}))
    (path,) = tmp_path.glob("*.jsonl")
    *others, line = path.read_bytes().splitlines(keepends=True)

    def changed(change: Callable[[dict[str, Any]], object]) -> LoggedQuery:
        wire = orjson.loads(line)
        for name in ("at", "crc32"):
            wire.pop(name, None)
        change(wire["detail"])
        path.write_bytes(b"".join([*others, sealed(to_line(wire))]))
        return read_queries(tmp_path).queries[-1]

    def score(detail: dict[str, Any]) -> None:
        detail["shown"][0][1] -= 2**-53

    changes: Sequence[Callable[[dict[str, Any]], object]] = (
        score,
        lambda detail: detail["shown"][0].__setitem__(3, []),
        lambda detail: detail["shown"][0].append(1e-300),
        lambda detail: detail["shown"].pop(),
        lambda detail: detail["shown"].reverse(),
        lambda detail: detail["ruledOut"].clear(),
        lambda detail: detail["ruledOut"][0].__setitem__(2, 0),
        lambda detail: detail["ruledOut"][0].__setitem__(0, 99),
        lambda detail: detail["reasons"][0].__setitem__(0, "overlap"),
        lambda detail: detail["reasons"][0].__setitem__(1, "put below "),
    )

    assert is_reproduced(changed(lambda _: None))
    assert not any(is_reproduced(changed(change)) for change in changes)


async def test_a_changed_candidate_is_noticed(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": NOTES, "graph": GRAPH})
    notes, graph = query.lists
    found = notes.candidates

    other_score = replace(notes, candidates=(found[0]._replace(score=0.91), *found[1:]))
    other_lines = replace(notes, candidates=(found[0]._replace(end_line=3), *found[1:]))

    assert not is_reproduced(replace(query, lists=(other_score, graph)))
    assert not is_reproduced(replace(query, lists=(other_lines, graph)))
    assert not is_reproduced(replace(query, lists=(graph, notes), near=frozenset({(0, 1)})))


async def test_a_way_of_ranking_that_is_not_known_cannot_be_ranked(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": NOTES})
    strange = [
        replace(query, policy=replace(query.policy, fusion="learned")),
        replace(query, policy=replace(query.policy, dedup="by-meaning")),
        replace(query, lists=(replace(query.lists[0], calibration="z-score"),)),
    ]

    assert can_be_ranked(query)
    assert not any(map(can_be_ranked, strange))


# --- as it might have been ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fusion", list(Fusion))
async def test_another_policy_gives_what_it_would_have_given_then(tmp_path: Path, fusion: Fusion) -> None:
    lists = {"notes": NOTES, "graph": GRAPH}
    weights = {"notes": 0.3, "graph": 1.0}
    logged = await ask(tmp_path / "then", lists)
    live = await ask(
        tmp_path / "now",
        lists,
        weights=WeightTable.fixed(weights),
        policy=MergePolicy(fusion=fusion, dedup=Dedup.EXACT, rrf_k=3),
    )

    replayed = ranked(logged, weights=weights, fusion=fusion.value, dedup="exact", rrf_k=3)

    assert tuple(replayed) == live.shown


async def test_a_backend_that_is_dropped_is_as_one_that_found_nothing(tmp_path: Path) -> None:
    fact = MemorySearchResult(
        path="graph/1", start_line=0, end_line=0, score=0.8, snippet="a fact alone",
        origin=Origin(path="a.md", start_line=1, end_line=1),
    )  # fmt: skip
    logged = await ask(tmp_path / "then", {"notes": NOTES, "graph": [fact, *GRAPH]})
    live = await ask(tmp_path / "now", {"notes": NOTES, "graph": []})

    assert logged.shown[0].score > 0.9
    assert tuple(ranked(logged, dropped=frozenset({"graph"}))) == live.shown


async def test_a_backend_without_a_weight_has_weight_one(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": NOTES, "graph": GRAPH})

    assert tuple(ranked(query, weights={})) == query.shown


async def test_a_backend_that_weighs_nothing_puts_nothing_up(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": NOTES, "graph": GRAPH})

    assert keys(ranked(query, weights={"graph": 0.0})) == ["a.md", "b.md", "c.md"]


async def test_fewer_results_are_the_first_and_a_minimum_cuts(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": NOTES, "graph": GRAPH})

    assert tuple(ranked(query, max_results=2)) == query.shown[:2]
    assert "c.md" not in keys(ranked(query, min_score=0.5))


async def test_scores_are_calibrated_as_a_policy_says(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": NOTES})

    by_place = ranked(query, calibration="rank")

    assert [one.score for one in by_place] == [8 / (8 + place) for place in range(len(NOTES))]
    assert [one.score for one in by_place] != [one.score for one in query.shown]


async def test_many_policies_on_many_queries_do_not_mix(tmp_path: Path) -> None:
    one = await ask(tmp_path / "one", {"notes": NOTES, "graph": GRAPH})
    other = await ask(tmp_path / "other", {"notes": NOTES[1:], "graph": GRAPH})
    ranker = Replayer()

    for query in (one, other, one):
        ranker(query, replace(query.policy, weights={"notes": 0.0}))
        assert tuple(ranker(query, query.policy)) == query.shown


# --- what the log does not tell -----------------------------------------------------------------------------

SECRETS = ("ghp_abcdef0000000000000000000000001234", "ghp_abcdef9999999999999999999999991234")


async def test_a_secret_in_a_text_is_masked_and_the_ranking_is_still_reproduced(tmp_path: Path) -> None:
    found = [
        hit("a.md", 0.9, f"token={SECRETS[0]}"),
        hit("b.md", 0.8, f"the old one was {SECRETS[1]} I think"),
    ]

    query = await ask(tmp_path, {"notes": found})

    assert [one.snippet_preview for one in query.lists[0].candidates] == [
        "token=ghp_ab…1234",
        "the old one was ghp_ab…1234 I think",
    ]
    assert is_reproduced(query)


async def test_paths_that_are_the_same_once_masked_are_not_said_to_be_reproduced(tmp_path: Path) -> None:
    found = [hit(f"keys/{secret}", 0.9 - place / 10) for place, secret in enumerate(SECRETS)]

    query = await ask(tmp_path, {"notes": found})

    assert [one.path for one in query.shown] == ["keys/ghp_ab…1234"] * 2
    assert not is_reproduced(query)
    assert len(ranked(query)) == 1


async def test_a_path_that_cannot_be_written_as_it_is_makes_no_error(tmp_path: Path) -> None:
    query = await ask(tmp_path, {"notes": [hit("a\ud800.md", 0.9), hit("a?.md", 0.8)]})

    assert [one.path for one in query.shown] == ["a?.md"]
    assert is_reproduced(query)
