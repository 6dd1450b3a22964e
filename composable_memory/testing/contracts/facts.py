"""The contracts of memories that ingest contents, and of memories that keep facts."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from composable_memory.content import (
    IngestReport,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
)
from composable_memory.errors import (
    BackendError,
    BackendRejected,
    BackendUnavailable,
    UnsupportedOperation,
)
from composable_memory.facts import Fact
from composable_memory.interfaces import MemorySearchManager, SupportsFacts, SupportsIngest
from composable_memory.testing.contracts.opening import BackendSuite, OpenBackend, cancel_after, opened
from composable_memory.types import MemorySearchResult, SearchOptions

FIRST_DAY = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
SOURCE = "memory/lighthouse.md"
QUERY = "lighthouse keeper Bosun parrot"


def _content(number: int, text: str) -> MemoryContentObject:
    return MemoryContentObject(
        id=f"{SOURCE}#{number}",
        kind="document",
        text=text,
        provenance=MemoryProvenance(source="note", source_id=SOURCE, citations=(f"{SOURCE}#L{number}",)),
        temporal=MemoryTemporalMetadata(observed_at=FIRST_DAY + timedelta(days=number)),
    )


CONTENTS = (
    _content(1, "Torvald the lighthouse keeper owns a parrot called Bosun."),
    _content(2, "Torvald works at Lindholm Harbour since 2026-03-03."),
    _content(3, "Torvald lives in Lindholm."),
)


class IngestContract(BackendSuite):
    """What a memory with `Capability.INGEST` must do."""

    async def test_what_was_ingested_is_found(self, open_backend: OpenBackend) -> None:
        """After `ingest`, a search finds it, with its origin."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            found = await _found(memory)

            assert any("Bosun" in hit.snippet for hit in found)
            assert SOURCE in {hit.origin.path if hit.origin else hit.path for hit in found}

    async def test_every_content_is_counted_once(self, open_backend: OpenBackend) -> None:
        """Stored, known, pending and failed add up; one without words has failed, with a reason."""
        async with opened(open_backend) as memory:
            blank = MemoryContentObject(id="blank", kind="message", text=" \n")
            report = await _taking(memory).ingest([*CONTENTS, blank])

            assert report.stored + report.known + report.pending + report.failed == len(CONTENTS) + 1
            assert report.failed == 1
            assert report.problems

    async def test_ingesting_twice_changes_nothing(self, open_backend: OpenBackend) -> None:
        """The second time everything is known, and the answers stay the same."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            before = await _found(memory)
            again = await _taking(memory).ingest(CONTENTS)

            assert (again.known, again.stored, again.failed) == (len(CONTENTS), 0, 0)
            assert await _found(memory) == before

    async def test_ingesting_at_once_is_as_in_turn(self, open_backend: OpenBackend) -> None:
        """Five concurrent calls with the same contents store them once."""
        async with opened(open_backend) as memory:
            await asyncio.gather(*(_stored(memory, CONTENTS) for _ in range(5)))
            hits = await _found(memory)

            assert len({(hit.snippet, hit.path) for hit in hits}) == len(hits)
            assert sum("parrot called Bosun" in hit.snippet for hit in hits) == 1

    async def test_nothing_to_ingest_is_fine(self, open_backend: OpenBackend) -> None:
        """No contents, no counts."""
        async with opened(open_backend) as memory:
            report = await _taking(memory).ingest([])

            assert report.ok
            assert report.stored == 0

    async def test_a_cancelled_ingest_can_be_repeated(self, open_backend: OpenBackend) -> None:
        """Wherever it is cancelled, nothing is lost or duplicated."""
        async with opened(open_backend) as memory:
            for turns in (0, 1, 3, 9, 27, 81):
                await cancel_after(turns, _taking(memory).ingest(CONTENTS))
            await _stored(memory, CONTENTS)

            assert sum("parrot called Bosun" in hit.snippet for hit in await _found(memory)) == 1

    async def test_a_closed_memory_takes_nothing(self, open_backend: OpenBackend) -> None:
        """`ingest` and `ingest_source` are closed like all other calls."""
        async with opened(open_backend) as memory:
            await memory.close()
            with pytest.raises(BackendUnavailable):
                await _taking(memory).ingest(CONTENTS)
            with pytest.raises(BackendUnavailable):
                await _taking(memory).ingest_source(SOURCE, CONTENTS)


class FactsContract(BackendSuite):
    """What a memory with `Capability.FACTS` must do, if it ingests contents too.

    `knows_entities` is false for one that cannot name the entities of its facts.
    """

    knows_entities: ClassVar[bool] = True

    async def test_facts_are_listed(self, open_backend: OpenBackend) -> None:
        """Each has a text and its episode; no more are returned than asked for."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            facts = await _keeping(memory).facts(limit=100)
            two = await _keeping(memory).facts(limit=2)

            assert any("Bosun" in fact.text for fact in facts)
            assert all(fact.id and fact.text and fact.episodes for fact in facts)
            assert [fact.id for fact in two] == [fact.id for fact in facts[:2]]

    async def test_a_time_line_is_in_order(self, open_backend: OpenBackend) -> None:
        """The facts about one entity, by the day from which they hold; the case of its name is ignored."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            facts = await _keeping(memory).timeline("torvald")

            assert facts
            began = [fact.valid_at.date() for fact in facts if fact.valid_at]
            assert began == sorted(began)

    async def test_facts_may_be_asked_for_as_of_a_time(self, open_backend: OpenBackend) -> None:
        """What began later did not hold then."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            moment = FIRST_DAY + timedelta(days=1, hours=1)
            then = await _keeping(memory).facts(about="Torvald", as_of=moment)

            assert all(fact.holds_at(moment) for fact in then)
            assert not any("Harbour" in fact.text for fact in then)

    async def test_entities_are_found_by_their_names(self, open_backend: OpenBackend) -> None:
        """A part of the name is enough, and the facts about it are counted; or the memory refuses."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            if not self.knows_entities:
                with pytest.raises(UnsupportedOperation):
                    await _keeping(memory).entities(named="torv")
                return
            found = {one.name: one for one in await _keeping(memory).entities(named="torv")}

            assert found["Torvald"].fact_count >= 1

    async def test_a_neighbourhood_is_bounded(self, open_backend: OpenBackend) -> None:
        """No more facts than asked for; both entities of each are included. Or the memory refuses."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            if not self.knows_entities:
                with pytest.raises(UnsupportedOperation):
                    await _keeping(memory).neighbourhood("Torvald", limit=2)
                return
            around = await _keeping(memory).neighbourhood("Torvald", limit=2)
            names = {entity.name for entity in around.entities}

            assert 1 <= len(around.facts) <= 2
            assert all({fact.source, fact.target} <= names for fact in around.facts)

    async def test_episodes_are_listed_with_their_origin(self, open_backend: OpenBackend) -> None:
        """The latest observed comes first, and each names its origin."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            episodes = await _keeping(memory).episodes(limit=100)
            ours = [one for one in episodes if one.content_id.startswith(SOURCE)]
            observed = [one.observed_at for one in episodes if one.observed_at]

            assert len(ours) == len(CONTENTS)
            assert all(one.origin and one.origin.path == SOURCE for one in ours)
            assert observed == sorted(observed, reverse=True)

    async def test_a_forgotten_episode_is_gone_with_its_facts(self, open_backend: OpenBackend) -> None:
        """What only it supports is no longer found, and ingesting it again does not bring it back."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            gone = await _keeping(memory).forget(CONTENTS[0].id)
            await _taking(memory).ingest(CONTENTS)

            assert gone.facts >= 1
            assert not any("Bosun" in hit.snippet for hit in await _found(memory))
            assert not any("Bosun" in fact.text for fact in await _facts(memory))

    async def test_an_unknown_episode_is_not_forgotten(self, open_backend: OpenBackend) -> None:
        """Forgetting what is not there says so."""
        async with opened(open_backend) as memory:
            await _stored(memory, CONTENTS)
            with pytest.raises(BackendRejected):
                await _keeping(memory).forget("no such episode")

    async def test_a_closed_memory_tells_no_facts(self, open_backend: OpenBackend) -> None:
        """The browsing calls are closed like all others."""
        async with opened(open_backend) as memory:
            await memory.close()
            with pytest.raises(BackendError):
                await _keeping(memory).facts()


def _taking(memory: MemorySearchManager) -> SupportsIngest:
    assert isinstance(memory, SupportsIngest)
    return memory


def _keeping(memory: MemorySearchManager) -> SupportsFacts:
    assert isinstance(memory, SupportsFacts)
    return memory


async def _stored(memory: MemorySearchManager, contents: Sequence[MemoryContentObject]) -> IngestReport:
    report = await _taking(memory).ingest(contents)
    while report.pending:  # a service may store it later; the test's time limit ends this
        await asyncio.sleep(0.05)
        report = await _taking(memory).ingest(contents)
    assert not report.problems, report
    return report


async def _found(memory: MemorySearchManager) -> Sequence[MemorySearchResult]:
    return await memory.search(QUERY, SearchOptions(max_results=5))


async def _facts(memory: MemorySearchManager) -> Sequence[Fact]:
    return await _keeping(memory).facts(limit=1000)
