"""Whatever is ingested, replaced and forgotten, in whatever order: what holds follows from what was said."""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composable_memory.content import MemoryContentObject, MemoryTemporalMetadata
from composable_memory.interfaces import SupportsFacts
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory_adapters.extractors.grammar import EXCLUSIVE
from composable_memory_adapters.extractors.heuristic import read_by_rules
from tests.integration.conftest import graph_parts  # noqa: F401
from tests.integration.graphiti.conftest import _kept_running, shared_graph_dir  # noqa: F401

if TYPE_CHECKING:
    from composable_memory.facts import Fact

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = (
    *(f"{who} lives in {where}." for who in ("Ines", "Tom") for where in ("Oslo", "Bergen", "Lyon")),
    *(f"{who} works at {firm} Ltd." for who in ("Ines", "Tom") for firm in ("Harbour", "Quay")),
    *(f"Ines really likes {what} very much." for what in ("Erlang", "Haskell")),
)
SOURCES = ("a.md", "b.md")

Statement = tuple[str, str, str]
Said = tuple[str, str, int]
"""The id of a content, its text, and on which day it was observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that is done: contents come in, alone or as all of a source, or one is forgotten."""

    kind: Literal["ingest", "source", "forget"]
    name: str
    said: tuple[Said, ...] = ()


def saids(ids: st.SearchStrategy[str], *, most: int) -> st.SearchStrategy[tuple[Said, ...]]:
    one = st.tuples(ids, st.sampled_from(TEXTS), st.integers(0, 300))
    return st.lists(one, max_size=most, unique_by=lambda said: said[0]).map(tuple)


def of_source(path: str) -> st.SearchStrategy[Step]:
    ids = st.sampled_from([f"{path}#{number}" for number in range(3)])
    return st.builds(Step, kind=st.just("source"), name=st.just(path), said=saids(ids, most=3))


ALONE = st.sampled_from([f"m{number}" for number in range(4)])
STEPS = st.lists(
    st.builds(Step, kind=st.just("ingest"), name=st.just(""), said=saids(ALONE, most=2))
    | st.sampled_from(SOURCES).flatmap(of_source)
    | st.builds(Step, kind=st.just("forget"), name=ALONE | st.sampled_from(["a.md#0", "b.md#1"])),
    min_size=1,
    max_size=10,
)


@dataclass(slots=True)
class Model:
    """What a reader of it all would know: by content and text, on which day, and whether it still stands."""

    standing: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)
    forgotten: set[tuple[str, str]] = field(default_factory=set)

    def take(self, step: Step) -> None:
        for own_id, text, day in step.said:
            self._retire(lambda key, own_id=own_id, text=text: key[0] == own_id and key[1] != text)
            known = self.standing.get((own_id, text))
            if (own_id, text) not in self.forgotten:
                self.standing[own_id, text] = (known[0] if known else day, True)
        if step.kind == "source":
            held = {own_id for own_id, _, _ in step.said}
            self._retire(lambda key: key[0].startswith(step.name) and key[0] not in held)
        if step.kind == "forget":
            gone = [key for key in self.standing if key[0] == step.name]
            self.forgotten.update(gone)
            for key in gone:
                del self.standing[key]

    def statements(self) -> dict[Statement, list[tuple[int, bool]]]:
        found: defaultdict[Statement, list[tuple[int, bool]]] = defaultdict(list)
        for (_, text), told in self.standing.items():
            found[statement_of(text)].append(told)
        return found

    def _retire(self, which: object) -> None:
        for key, (day, _) in self.standing.items():
            if which(key):  # type: ignore[operator]
                self.standing[key] = (day, False)


def statement_of(text: str) -> Statement:
    (relation,) = read_by_rules(MemoryContentObject(id="x", kind="document", text=text)).relations
    return relation.source, relation.type, relation.target


def expected(known: dict[Statement, list[tuple[int, bool]]]) -> Iterator[tuple[Statement, bool]]:
    """Yield which statements hold now, leaving out what may be seen either way."""
    for statement, told in known.items():
        last = max(day for day, _ in told)
        living = max((day for day, stands in told if stands), default=None)
        rivals = [
            day
            for other, days in known.items()
            if other[:2] == statement[:2] and other != statement
            for day, _ in days
        ]
        if living is None or statement[1] not in EXCLUSIVE:
            yield statement, living is not None
        elif last not in rivals and (living == last or not any(living < day <= last for day in rivals)):
            yield statement, not any(day > last for day in rivals)


@pytest.mark.thorough
@pytest.mark.usefixtures("_kept_running")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_what_is_known_follows_from_what_was_said(
    steps: list[Step],
    shared_graph_dir: Path,  # noqa: F811
) -> None:
    asyncio.run(follow(steps, shared_graph_dir))


async def follow(steps: list[Step], graphs: Path) -> None:
    days = 300
    graphiti = {"enabled": True, "group": f"g{secrets.token_hex(8)}", "private": {"dir": str(graphs)}}
    config = {"graphiti": graphiti, "builtin": {"enabled": False}, "embedding": {"provider": "none"}}
    model = Model()
    with TemporaryDirectory() as folder:
        async with open_memory(
            folder,
            Path(folder, "state"),
            config,
            clock=lambda: BEGIN + timedelta(days=days),
            long_lived=False,
        ) as memory:
            for step in steps:
                days += 1
                await do(memory, step, model)
                model.take(step)
                await compare(memory.facts_of(), model, BEGIN + timedelta(days=days))


async def do(memory: Memory, step: Step, model: Model) -> None:
    contents = [
        MemoryContentObject(
            id=own_id,
            kind="document",
            text=text,
            temporal=MemoryTemporalMetadata(observed_at=BEGIN + timedelta(days=day)),
        )
        for own_id, text, day in step.said
    ]
    if step.kind == "forget":
        if any(own_id == step.name for own_id, _ in model.standing):
            await memory.facts_of().forget(step.name)
        return
    into = memory.ingest(contents) if step.kind == "ingest" else memory.ingest_source(step.name, contents)
    report = (await into)["graphiti"]
    assert report.ok, report


async def compare(facts: SupportsFacts, model: Model, now: datetime) -> None:
    found: defaultdict[Statement, list[Fact]] = defaultdict(list)
    for fact in await facts.facts(limit=1000):
        found[fact.source, fact.relation, fact.target].append(fact)
    known = model.statements()
    assert set(found) == set(known)
    assert {one: any(fact.is_current(now) for fact in found[one]) for one, _ in expected(known)} == dict(
        expected(known)
    )
