"""Team draft: what is shown, who has the credit, and that neither side is favoured."""

import random
import subprocess
import sys
from collections import Counter

from composable_memory.query.interleaving import Pick, seed_of, team_draft

DRAWS = 4000
FIVE_SIGMA = 5 * (DRAWS / 4) ** 0.5


def ranking(names: str) -> list[tuple[str]]:
    return [(name,) for name in names]


def shown(a: str, b: str, picks: list[Pick]) -> str:
    return "".join({"a": a, "b": b}[pick.team][pick.index] for pick in picks)


def marks(picks: list[Pick]) -> str:
    return "".join(pick.mark for pick in picks)


def test_equal_rankings_are_shown_as_they_are_and_count_for_neither() -> None:
    for seed in range(20):
        picks = team_draft(ranking("abcde"), ranking("abcde"), k=10, seed=seed)
        assert (shown("abcde", "abcde", picks), marks(picks)) == ("abcde", "-----")


def test_the_common_beginning_is_shared_and_the_rest_is_not() -> None:
    picks = team_draft(ranking("abcd"), ranking("abxy"), k=4, seed=3)
    assert marks(picks)[:2] == "--"
    assert sorted(marks(picks)[2:]) == ["a", "b"]


def test_every_pair_of_places_has_one_of_each_team() -> None:
    for seed in range(50):
        drawn = marks(team_draft(ranking("abcdef"), ranking("uvwxyz"), k=12, seed=seed))
        assert {frozenset(drawn[at : at + 2]) for at in range(0, 12, 2)} == {frozenset("ab")}


def test_results_with_a_key_in_common_are_shown_once() -> None:
    a = [("notes.md:1:9",), ("plan.md:1:2",)]
    b = [("other.md:4:5", "plan.md:1:2"), ("notes.md:1:9", "facts/7")]
    for seed in range(20):
        assert len(team_draft(a, b, k=10, seed=seed)) == 2


def test_when_one_ranking_ends_the_rest_of_the_other_follows() -> None:
    picks = team_draft(ranking("a"), ranking("uvwxyz"), k=10, seed=1)
    assert sorted(shown("a", "uvwxyz", picks)) == sorted("auvwxyz")
    assert marks(picks)[2:] == "bbbbb"


def test_no_ranking_gives_no_places() -> None:
    assert team_draft([], [], k=10, seed=1) == []
    assert team_draft(ranking("abc"), ranking("xyz"), k=0, seed=1) == []
    assert team_draft(ranking("abc"), ranking("xyz"), k=-1, seed=1) == []


def test_a_depth_beyond_all_measure_shows_what_there_is() -> None:
    assert len(team_draft(ranking("abc"), ranking("xyz"), k=10**12, seed=1)) == 6


def test_the_first_places_are_the_same_however_many_are_asked_for() -> None:
    long = team_draft(ranking("abcdefghij"), ranking("ecaxyzbuvw"), k=20, seed=9)
    for k in range(20):
        assert team_draft(ranking("abcdefghij"), ranking("ecaxyzbuvw"), k=k, seed=9) == long[:k]


def test_a_logged_draft_stays_what_it_was() -> None:
    seed = seed_of("4bf92f3577b34da6a3ce929d0e0e4736", "q1", "exp-1")
    assert seed == 26666251648947
    assert marks(team_draft(ranking("abcdefgh"), ranking("acbxyzhg"), k=10, seed=seed)) == "-ababbabaa"


def test_seeds_differ_by_each_of_the_three_names() -> None:
    seeds = {
        seed_of(*names) for names in (("t", "q", "e"), ("T", "q", "e"), ("t", "Q", "e"), ("t", "q", "E"))
    }
    assert len(seeds) == 4
    assert all(0 <= seed < 2**48 for seed in seeds)


def test_each_team_has_the_same_chance_of_each_place() -> None:
    a, b = "abcdefghijkl", "acebdzyfxgwv"
    by_place = [Counter[str]() for _ in range(10)]
    for seed in range(DRAWS):
        for counts, pick in zip(by_place, team_draft(ranking(a), ranking(b), k=10, seed=seed), strict=True):
            counts[pick.mark] += 1
    assert all(abs(counts["a"] - counts["b"]) <= 2 * FIVE_SIGMA for counts in by_place)
    assert by_place[0] == {"-": DRAWS}


def test_use_that_goes_by_the_place_alone_favours_neither() -> None:
    draw, wins = random.Random(5), Counter[str]()
    for seed in range(DRAWS):
        a, b = ("".join(draw.sample("abcdefghijklmnopqrst", 15)) for _ in range(2))
        picks = team_draft(ranking(a), ranking(b), k=10, seed=seed)
        used = [pick.mark for rank, pick in enumerate(picks, 1) if draw.random() < 1 / rank]
        credit = used.count("a") - used.count("b")
        wins["a" if credit > 0 else "b" if credit else "-"] += 1
    assert abs(wins["a"] - wins["b"]) <= 2 * FIVE_SIGMA
    assert wins["a"] > DRAWS / 5


def test_a_draft_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.path[:] = sys.argv[1:]; before = set(sys.modules);"
        "import composable_memory.query.interleaving;"
        "print(sorted({'numpy', 'pydantic', 'httpx', 'sqlite3'} & (set(sys.modules) - before)))"
    )
    ran = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
