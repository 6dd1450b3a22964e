"""The contracts of the stores below a memory: vectors, and graphs of entities."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from math import dist, hypot, isfinite
from struct import pack
from typing import ClassVar

import pytest

from composable_memory.content import GraphEdge, GraphNode, GraphQuery, VectorQuery, VectorRecord
from composable_memory.errors import DimensionMismatch
from composable_memory.interfaces import (
    GraphAdapter,
    SupportsDelete,
    SupportsHealth,
    SupportsIds,
    SupportsPackedVectors,
    VectorAdapter,
)
from composable_memory.testing.contracts.opening import Opener, blocking_forbidden, opened, to_override


class VectorContract:
    """What a vector store must do.

    `dimensions` is the length of its vectors. `supports` lists the optional Protocols that it promises:
    `SupportsDelete`, `SupportsHealth`, `SupportsIds` and `SupportsPackedVectors`. `tolerance` is how far a
    score may be from the cosine.
    """

    dimensions: ClassVar[int] = 16
    supports: ClassVar[frozenset[type]] = frozenset()
    tolerance: ClassVar[float] = 1e-3

    @pytest.fixture
    def open_vectors(self) -> Opener[VectorAdapter]:
        """Return a function that opens an empty store for vectors of `dimensions`; override this."""
        raise to_override(self, "open_vectors", "an empty store")

    async def test_an_empty_store_has_no_matches(self, open_vectors: Opener[VectorAdapter]) -> None:
        """Querying before anything was stored works, and so does storing nothing."""
        async with opened(open_vectors) as store:
            before = await store.query(VectorQuery(vector=self._vectors(1)[0], top_k=3))
            await store.upsert([])
            after = await store.query(VectorQuery(vector=self._vectors(1)[0], top_k=3))

            assert before.matches == after.matches == ()

    async def test_the_nearest_come_first(self, open_vectors: Opener[VectorAdapter]) -> None:
        """Order and scores are those of the cosine, whatever the lengths of the vectors."""
        records, query = self._records(40), self._vectors(41)[40]
        async with opened(open_vectors) as store:
            await store.upsert(records)
            matches = (await store.query(VectorQuery(vector=query, top_k=10))).matches

            expected = sorted(((cosine(query, r.values), r.id) for r in records), reverse=True)[:10]
            assert [match.id for match in matches] == [id_ for _, id_ in expected]
            assert [match.score for match in matches] == pytest.approx(
                [score for score, _ in expected], abs=self.tolerance
            )

    async def test_a_stored_vector_is_nearest_to_itself(self, open_vectors: Opener[VectorAdapter]) -> None:
        """Its own score is 1, that of its opposite -1."""
        (record,) = self._records(1)
        opposite = VectorRecord(id="opposite", values=[-value for value in record.values])
        async with opened(open_vectors) as store:
            await store.upsert([opposite, record])
            first, last = (await store.query(VectorQuery(vector=record.values, top_k=2))).matches

            assert (first.id, last.id) == (record.id, "opposite")
            assert (first.score, last.score) == pytest.approx((1.0, -1.0), abs=self.tolerance)

    async def test_no_more_than_asked_for_and_no_more_than_there_is(
        self, open_vectors: Opener[VectorAdapter]
    ) -> None:
        """`top_k` bounds the answer, and a shorter answer is the beginning of a longer one."""
        query = self._vectors(1)[0]
        async with opened(open_vectors) as store:
            await store.upsert(self._records(5))
            everything = (await store.query(VectorQuery(vector=query, top_k=100))).matches
            some = (await store.query(VectorQuery(vector=query, top_k=2))).matches

            assert len(everything) == 5
            assert [match.id for match in some] == [match.id for match in everything[:2]]

    async def test_upserting_twice_changes_nothing(self, open_vectors: Opener[VectorAdapter]) -> None:
        """A record that is stored again is still there only once."""
        records, query = self._records(5), self._vectors(1)[0]
        async with opened(open_vectors) as store:
            await store.upsert(records)
            once = await store.query(VectorQuery(vector=query, top_k=10))
            await store.upsert(records)

            assert await store.query(VectorQuery(vector=query, top_k=10)) == once

    async def test_a_record_with_a_known_id_replaces_the_old_one(
        self, open_vectors: Opener[VectorAdapter]
    ) -> None:
        """The new values and metadata replace the old ones."""
        old, other = self._records(2)
        new = VectorRecord(id=old.id, values=[-value for value in old.values], metadata={"version": 2})
        async with opened(open_vectors) as store:
            await store.upsert([old, other])
            await store.upsert([new])
            matches = (await store.query(VectorQuery(vector=new.values, top_k=10))).matches

            assert [match.id for match in matches].count(old.id) == 1
            assert (matches[0].id, matches[0].metadata) == (old.id, {"version": 2})
            assert matches[0].score == pytest.approx(1.0, abs=self.tolerance)

    async def test_metadata_and_ids_come_back_as_they_were(self, open_vectors: Opener[VectorAdapter]) -> None:
        """Any text is an id, any JSON is metadata."""
        (vector,) = self._vectors(1)
        record = VectorRecord(
            id="memory/旅行.md:1:5 '\"%",
            values=vector,
            metadata={"path": "ü", "n": 1, "deep": {"list": [1, None]}},
        )
        async with opened(open_vectors) as store:
            await store.upsert([record])
            (match,) = (await store.query(VectorQuery(vector=vector, top_k=1))).matches

            assert (match.id, match.metadata) == (record.id, record.metadata)

    async def test_a_filter_keeps_what_equals_every_value(self, open_vectors: Opener[VectorAdapter]) -> None:
        """Records that differ from the filter, or lack its key, never match, however near they are."""
        records = [
            replace(record, metadata={"kind": "even" if n % 2 == 0 else "odd", "half": n < 10})
            for n, record in enumerate(self._records(20))
        ]
        bare = VectorRecord(id="bare", values=records[1].values)
        async with opened(open_vectors) as store:
            await store.upsert([*records, bare])
            asked = VectorQuery(vector=records[1].values, top_k=50, filter={"kind": "even", "half": True})
            matches = (await store.query(asked)).matches

            assert {match.id for match in matches} == {records[n].id for n in range(0, 10, 2)}

    async def test_a_vector_of_another_length_is_refused(self, open_vectors: Opener[VectorAdapter]) -> None:
        """It raises `DimensionMismatch`, and what was stored before is still found."""
        record, wrong = self._records(2)
        async with opened(open_vectors) as store:
            await store.upsert([record])
            with pytest.raises(DimensionMismatch):
                await store.upsert([replace(wrong, values=[*wrong.values, 1.0])])
            with pytest.raises(DimensionMismatch):
                await store.query(VectorQuery(vector=[*record.values, 1.0], top_k=1))
            (match,) = (await store.query(VectorQuery(vector=record.values, top_k=5))).matches

            assert match.id == record.id

    async def test_zero_vectors_are_survived(self, open_vectors: Opener[VectorAdapter]) -> None:
        """A zero vector has no direction: scores stay finite and in range."""
        zero = [0.0] * self.dimensions
        async with opened(open_vectors) as store:
            await store.upsert([*self._records(3), VectorRecord(id="zero", values=zero)])
            answers = [
                await store.query(VectorQuery(vector=vector, top_k=10))
                for vector in (zero, self._vectors(1)[0])
            ]

            assert all(
                isfinite(match.score) and -1.001 <= match.score <= 1.001
                for answer in answers
                for match in answer.matches
            )

    async def test_concurrent_use_is_fine(self, open_vectors: Opener[VectorAdapter]) -> None:
        """Concurrent reads and writes all succeed, and everything is there at the end."""
        records, query = self._records(30), VectorQuery(vector=self._vectors(1)[0], top_k=100)
        async with opened(open_vectors) as store:
            await asyncio.gather(
                *(store.upsert(records[n : n + 5]) for n in range(0, 30, 5)),
                *(store.query(query) for _ in range(5)),
            )

            assert len((await store.query(query)).matches) == 30

    async def test_the_event_loop_is_not_blocked(self, open_vectors: Opener[VectorAdapter]) -> None:
        """Neither storing nor querying reads files or waits for locks on the loop."""
        with blocking_forbidden():
            async with opened(open_vectors) as store:
                await store.upsert(self._records(3))
                await store.query(VectorQuery(vector=self._vectors(1)[0], top_k=3))

    async def test_further_promises_are_kept(self, open_vectors: Opener[VectorAdapter]) -> None:
        """The store satisfies the Protocols that it lists, and its health, if any, is good."""
        async with opened(open_vectors) as store:
            assert isinstance(store, VectorAdapter)
            for protocol in (SupportsDelete, SupportsHealth, SupportsIds, SupportsPackedVectors):
                assert isinstance(store, protocol) == (protocol in self.supports), protocol
            if isinstance(store, SupportsHealth):
                assert (await store.health()).ok

    async def test_deleted_records_are_gone(self, open_vectors: Opener[VectorAdapter]) -> None:
        """If deleting is promised, the given records go, the others stay, unknown ids are ignored."""
        records, query = self._records(4), VectorQuery(vector=self._vectors(1)[0], top_k=10)
        async with opened(open_vectors) as store:
            if not isinstance(store, SupportsDelete):
                pytest.skip("the store does not promise to delete")
            await store.upsert(records)
            await store.delete([records[0].id, records[2].id, "never stored"])
            left = {match.id for match in (await store.query(query)).matches}

            assert left == {records[1].id, records[3].id}

    async def test_the_ids_of_all_records_are_listed(self, open_vectors: Opener[VectorAdapter]) -> None:
        """If listing is promised, numbers and other texts come back unchanged, without deleted ones."""
        ids = ["7", "007", "+7", "٧", "seven", "12345678901234567890"]
        vectors = self._vectors(len(ids))
        records = [VectorRecord(id=id_, values=values) for id_, values in zip(ids, vectors, strict=True)]
        async with opened(open_vectors) as store:
            if not isinstance(store, SupportsIds):
                pytest.skip("the store does not promise to list its records")
            before = await store.ids()
            await store.upsert(records)
            if isinstance(store, SupportsDelete):
                await store.delete(["+7", "8"])
                ids.remove("+7")
            (match,) = (await store.query(VectorQuery(vector=vectors[0], top_k=1))).matches

            assert (list(before), sorted(await store.ids())) == ([], sorted(ids))
            assert (match.id, match.metadata) == ("7", {})

    async def test_packed_vectors_are_found_like_records(self, open_vectors: Opener[VectorAdapter]) -> None:
        """If packed vectors are promised, they replace records with the same id."""
        old, *others = self._records(4)
        units = [[value / hypot(*one.values) for value in one.values] for one in others]
        packed = b"".join(pack(f"<{self.dimensions}f", *unit) for unit in units)
        ids = [old.id, "1", "two"]
        async with opened(open_vectors) as store:
            if not isinstance(store, SupportsPackedVectors):
                pytest.skip("the store does not promise to take packed vectors")
            await store.upsert([old])
            with pytest.raises(DimensionMismatch):
                await store.upsert_packed(ids, packed[:-4])
            await store.upsert_packed(ids, packed)
            await store.upsert_packed([], b"")
            answers = [await store.query(VectorQuery(vector=unit, top_k=9)) for unit in units]

            assert [answer.matches[0].id for answer in answers] == ids
            assert {len(answer.matches) for answer in answers} == {3}
            assert all(match.metadata == {} for answer in answers for match in answer.matches)

    def _vectors(self, count: int) -> list[list[float]]:
        numbers = random.Random(20260302)  # noqa: S311 - not for secrets
        return [[numbers.gauss(0.0, 1.0 + n) for _ in range(self.dimensions)] for n in range(count)]

    def _records(self, count: int) -> list[VectorRecord]:
        return [
            VectorRecord(id=f"record-{n:03}", values=vector, metadata={"n": n})
            for n, vector in enumerate(self._vectors(count))
        ]


class GraphContract:
    """What a store of entities and relations must do; `supports` is as in `VectorContract`."""

    supports: ClassVar[frozenset[type]] = frozenset()

    nodes: ClassVar[Sequence[GraphNode]] = (
        GraphNode(id="ingrid", label="Ingrid", properties={"text": "keeps the keys of the boat"}),
        GraphNode(id="boat", label="Boat", properties={"text": "a green hull and a leaking pump"}),
        GraphNode(id="tide", label="Tide", properties={"text": "high water at noon"}),
    )
    edges: ClassVar[Sequence[GraphEdge]] = (
        GraphEdge(id="keeps", source_id="ingrid", target_id="boat", type="KEEPS"),
    )

    @pytest.fixture
    def open_graph(self) -> Opener[GraphAdapter]:
        """Return a function that opens an empty graph; override this."""
        raise to_override(self, "open_graph", "an empty graph")

    async def test_an_empty_graph_answers_nothing(self, open_graph: Opener[GraphAdapter]) -> None:
        """Querying before anything was stored works, and so does storing nothing."""
        async with opened(open_graph) as graph:
            await graph.upsert_nodes([])
            await graph.upsert_edges([])
            result = await graph.query(GraphQuery(text="ingrid"))

            assert (result.nodes, result.edges) == ((), ())

    async def test_text_finds_the_nodes_that_speak_of_it(self, open_graph: Opener[GraphAdapter]) -> None:
        """A word of a label or property is enough."""
        async with opened(open_graph) as graph:
            await self._fill(graph)

            for text, expected in (("ingrid", "ingrid"), ("leaking pump", "boat")):
                assert (await graph.query(GraphQuery(text=text))).nodes[0].id == expected

    async def test_named_entities_come_with_their_relations(self, open_graph: Opener[GraphAdapter]) -> None:
        """Querying by id returns the node and its edges."""
        async with opened(open_graph) as graph:
            await self._fill(graph)
            result = await graph.query(GraphQuery(entity_ids=("ingrid",)))

            assert "ingrid" in [node.id for node in result.nodes]
            assert [edge.id for edge in result.edges] == ["keeps"]

    async def test_a_limit_bounds_nodes_and_edges(self, open_graph: Opener[GraphAdapter]) -> None:
        """No more than `limit` of either."""
        async with opened(open_graph) as graph:
            await self._fill(graph)
            result = await graph.query(GraphQuery(entity_ids=("ingrid", "boat", "tide"), limit=1))

            assert len(result.nodes) == 1
            assert len(result.edges) <= 1

    async def test_upserting_twice_changes_nothing(self, open_graph: Opener[GraphAdapter]) -> None:
        """The same nodes and edges are still there only once."""
        asked = GraphQuery(entity_ids=("ingrid", "boat"))
        async with opened(open_graph) as graph:
            await self._fill(graph)
            once = await graph.query(asked)
            await self._fill(graph)

            assert await graph.query(asked) == once

    async def test_a_node_with_a_known_id_replaces_the_old_one(
        self, open_graph: Opener[GraphAdapter]
    ) -> None:
        """The new label and properties replace the old ones."""
        renamed = replace(self.nodes[0], label="Ingrid Berg")
        async with opened(open_graph) as graph:
            await self._fill(graph)
            await graph.upsert_nodes([renamed])
            result = await graph.query(GraphQuery(entity_ids=("ingrid",)))

            assert [node for node in result.nodes if node.id == "ingrid"] == [renamed]

    async def test_further_promises_are_kept(self, open_graph: Opener[GraphAdapter]) -> None:
        """The graph satisfies the Protocols that it lists."""
        async with opened(open_graph) as graph:
            assert isinstance(graph, GraphAdapter)
            assert isinstance(graph, SupportsHealth) == (SupportsHealth in self.supports)

    async def _fill(self, graph: GraphAdapter) -> None:
        await graph.upsert_nodes(self.nodes)
        await graph.upsert_edges(self.edges)


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine similarity of two non-zero vectors."""
    unit_left, unit_right = ([value / hypot(*vector) for value in vector] for vector in (left, right))
    return 1.0 - dist(unit_left, unit_right) ** 2 / 2.0
