"""How evenly Citus spreads workspaces over servers, on paper: no server is asked.

    python -m benchmarks.cluster_simulation --workspaces 1000 --zipf 0.8

The sizes of the workspaces are those of Zipf: the second has 1 / 2^0.8 of the passages of the first, and so
on. Each is hashed to one of the shards, as `create_distributed_table` does, and the shards go to the nodes in
turn. Printed is the load of the fullest node as a multiple of the mean, the median and the worst of 50 draws
of the hash:

- as hashed; with the largest workspaces isolated, each a shard of its own on the node that has least
- after one node is lost, the fullest, whose shards go one by one to whichever node has least
- when a fifth of all questions are to one workspace of middling size, which no shard can split
"""

import argparse
import random
from collections.abc import Callable, Sequence
from statistics import median

SHARDS = 32
DRAWS = 50
ISOLATED = 10
HOT_SHARE = 0.2
NODES = (2, 4, 8, 16)

Place = tuple[int, float]
"""The node of a shard, and its load."""


def zipf(count: int, exponent: float) -> list[float]:
    """Return the sizes of workspaces, largest first, as shares of all."""
    sizes = [1 / rank**exponent for rank in range(1, count + 1)]
    return [size / sum(sizes) for size in sizes]


def hashed(sizes: Sequence[float], nodes: int, draw: random.Random, *, isolated: int = 0) -> list[Place]:
    """Return the shards of some workspaces, the first of them isolated."""
    loads = [0.0] * SHARDS
    for size in sizes[isolated:]:
        loads[draw.randrange(SHARDS)] += size
    shards = [(number % nodes, load) for number, load in enumerate(loads)]
    return placed(shards, sizes[:isolated], range(nodes))


def placed(shards: Sequence[Place], loads: Sequence[float], nodes: Sequence[int]) -> list[Place]:
    """Return shards with more of them, the largest first on the node that has least."""
    found, filled = [*shards], dict.fromkeys(nodes, 0.0)
    for node, load in shards:
        filled[node] += load
    for load in sorted(loads, reverse=True):
        node = min(filled, key=lambda one: filled[one])
        filled[node] += load
        found.append((node, load))
    return found


def fullest(shards: Sequence[Place], nodes: int) -> tuple[int, float]:
    """Return the fullest node, and its load as a multiple of the mean of so many."""
    filled = [0.0] * nodes
    for node, load in shards:
        filled[node] += load
    worst = max(range(nodes), key=lambda one: filled[one])
    return worst, filled[worst] * nodes / sum(filled)


def without_fullest(shards: Sequence[Place], nodes: int) -> float:
    """Return the load of the fullest node after one was lost, as a multiple of the mean of all before."""
    lost, _ = fullest(shards, nodes)
    rest = [one for one in shards if one[0] != lost]
    left = [node for node in range(nodes) if node != lost]
    moved = placed(rest, [load for node, load in shards if node == lost], left)
    return fullest(moved, nodes)[1]


def with_hot(sizes: Sequence[float]) -> list[float]:
    """Return shares of the questions where a workspace of middling size is asked far more than it has."""
    hot = len(sizes) // 2
    return [HOT_SHARE if place == hot else size * (1 - HOT_SHARE) for place, size in enumerate(sizes)]


def hot_first(sizes: Sequence[float]) -> list[float]:
    """Return the same with the hot one at the place that is isolated first."""
    return sorted(with_hot(sizes), reverse=True)


def row(sizes: Sequence[float], nodes: int) -> list[str]:
    """Return the cells of a number of nodes."""

    def drawn(measure: Callable[[random.Random], float]) -> str:
        found = [measure(random.Random(seed)) for seed in range(DRAWS)]
        return f"{median(found):.2f} / {max(found):.2f}"

    return [
        str(nodes),
        drawn(lambda draw: fullest(hashed(sizes, nodes, draw), nodes)[1]),
        drawn(lambda draw: fullest(hashed(sizes, nodes, draw, isolated=ISOLATED), nodes)[1]),
        drawn(lambda draw: without_fullest(hashed(sizes, nodes, draw, isolated=ISOLATED), nodes)),
        drawn(lambda draw: fullest(hashed(with_hot(sizes), nodes, draw), nodes)[1]),
        drawn(lambda draw: fullest(hashed(hot_first(sizes), nodes, draw, isolated=ISOLATED), nodes)[1]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workspaces", type=int, default=1_000)
    parser.add_argument("--zipf", type=float, default=0.8, help="the exponent: 0 for equal sizes")
    arguments = parser.parse_args()
    sizes = zipf(arguments.workspaces, arguments.zipf)
    columns = [
        "nodes",
        "as hashed",
        f"{ISOLATED} largest isolated",
        "then a node lost",
        "one hot",
        "hot isolated",
    ]
    large = sum(sizes[:ISOLATED])
    print(f"The largest workspace has {sizes[0]:.1%} of all, the {ISOLATED} largest {large:.1%}.\n")
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for nodes in NODES:
        print(f"| {' | '.join(row(sizes, nodes))} |")


if __name__ == "__main__":
    main()
