"""The contracts of taking in and of facts are not hollow: an honest memory passes, each broken one fails."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime

import pytest

from composable_memory.content import IngestReport, MemoryContentObject
from composable_memory.errors import BackendRejected
from composable_memory.facts import Episode, Fact, Forgotten, GraphEntity, Neighbourhood
from composable_memory.ingest.normalize import origin_of
from composable_memory.testing import FactsContract, FakeBackend, IngestContract
from composable_memory.types import MemorySearchResult, SearchOptions

BROKEN = (Exception, pytest.fail.Exception)
INGEST_TESTS = {name: test for name, test in vars(IngestContract).items() if name.startswith("test_")}
FACT_TESTS = {name: test for name, test in vars(FactsContract).items() if name.startswith("test_")}


class Sentences(FakeBackend):
    """An honest memory: each content is a fact about its first and its last word."""

    def __init__(self) -> None:
        super().__init__("sentences")
        self.kept: dict[str, Fact] = {}
        self.gone: set[str] = set()

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        wanted = set(query.casefold().split())
        limit = self.note_question(query, options).max_results
        hits = [
            MemorySearchResult(
                path=f"sentences/{fact.id}",
                start_line=0,
                end_line=0,
                score=len(wanted & set(fact.text.casefold().rstrip(".").split())) / max(1, len(wanted)),
                snippet=fact.text,
                origin=fact.origins[0],
            )
            for fact in self.kept.values()
        ]
        return sorted((hit for hit in hits if hit.score), key=lambda hit: -hit.score)[:limit]

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        del wait
        self.check_open("ingest")
        said = [one for one in contents if (one.text or "").strip()]
        new = [one for one in said if one.id not in self.kept and one.id not in self.gone]
        self.kept |= {one.id: fact_of(one) for one in new}
        failed = len(contents) - len(said)
        return IngestReport(
            run_id="1",
            stored=len(new),
            known=len(said) - len(new),
            failed=failed,
            problems=("it has no text",) * failed,
        )

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        del path
        return await self.ingest(contents, wait=wait)

    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        del current_only
        self.check_open("facts")
        named = [one for one in self.kept.values() if about is None or is_about(one, about)]
        held = [one for one in named if as_of is None or one.holds_at(as_of)]
        return sorted(held, key=began, reverse=True)[:limit]

    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        names = {name for fact in self.kept.values() for name in (fact.source, fact.target)}
        return [
            GraphEntity(id=name, group_id="g", name=name, fact_count=len(await self.facts(about=name)))
            for name in sorted(names)
            if (named or "").casefold() in name.casefold()
        ][:limit]

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        return [
            Episode(
                id=one.id, group_id="g", content_id=one.id, observed_at=one.valid_at, origin=one.origins[0]
            )
            for one in await self.facts(limit=limit)
        ]

    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        return sorted(await self.facts(about=entity, limit=limit), key=began)

    async def neighbourhood(
        self, entity: str | None = None, *, depth: int = 1, limit: int = 200
    ) -> Neighbourhood:
        del depth
        facts = await self.facts(about=entity, limit=limit)
        names = {name for fact in facts for name in (fact.source, fact.target)}
        entities = [one for one in await self.entities() if one.name in names]
        return Neighbourhood(entities=tuple(entities), facts=tuple(facts))

    async def forget(self, episode_id: str) -> Forgotten:
        if self.kept.pop(episode_id, None) is None:
            raise BackendRejected(self.id, "forget", status="no such episode", body=episode_id)
        self.gone.add(episode_id)
        return Forgotten(episode_id=episode_id, facts=1, entities=0)


def fact_of(content: MemoryContentObject) -> Fact:
    words = (content.text or "").rstrip(".").split()
    origin = origin_of(content)
    assert origin
    return Fact(
        id=content.id,
        group_id="g",
        text=content.text or "",
        relation="SAYS",
        source=words[0],
        target=words[-1],
        valid_at=content.temporal.observed_at if content.temporal else None,
        episodes=(content.id,),
        origins=(origin,),
    )


def is_about(fact: Fact, name: str) -> bool:
    return name.casefold() in (fact.source.casefold(), fact.target.casefold())


def began(fact: Fact) -> float:
    return fact.valid_at.timestamp() if fact.valid_at else 0.0


# --- taking in badly ---


class FindsNothing(Sentences):
    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        return []


class LosesOrigins(Sentences):
    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        return [replace(hit, origin=None) for hit in await super().search(query, options)]


class CountsTwice(Sentences):
    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        report = await super().ingest(contents, wait=wait)
        return replace(report, stored=report.stored + report.failed)


class KnowsNothing(Sentences):
    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        report = await super().ingest(contents, wait=wait)
        return replace(report, stored=report.stored + report.known, known=0)


class StoresAgain(Sentences):
    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        report = await super().ingest(contents, wait=wait)
        self.kept |= {f"{one.id}+{len(self.kept)}": fact_of(one) for one in contents if one.text}
        return report


class ComplainsAboutNothing(Sentences):
    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        report = await super().ingest(contents, wait=wait)
        return report if contents else replace(report, failed=1)


class NeverCloses(Sentences):
    def check_open(self, operation: str) -> None:
        pass


# --- telling facts badly ---


class TellsTooMany(Sentences):
    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        return await super().facts(about=about, as_of=as_of, current_only=current_only, limit=1000)


class IgnoresTimes(Sentences):
    async def facts(
        self,
        *,
        about: str | None = None,
        as_of: datetime | None = None,
        current_only: bool = False,
        limit: int = 20,
    ) -> Sequence[Fact]:
        return await super().facts(about=about, current_only=current_only, limit=limit)


class TurnsTimeRound(Sentences):
    async def timeline(self, entity: str, *, limit: int = 100) -> Sequence[Fact]:
        return (await super().timeline(entity, limit=limit))[::-1]

    async def episodes(self, *, limit: int = 20) -> Sequence[Episode]:
        return (await super().episodes(limit=limit))[::-1]


class CountsNoFacts(Sentences):
    async def entities(self, *, named: str | None = None, limit: int = 50) -> Sequence[GraphEntity]:
        return [replace(one, fact_count=0) for one in await super().entities(named=named, limit=limit)]


class LeavesNamesOut(Sentences):
    async def neighbourhood(
        self, entity: str | None = None, *, depth: int = 1, limit: int = 200
    ) -> Neighbourhood:
        return replace(await super().neighbourhood(entity, depth=depth, limit=limit), entities=())


class ForgetsForAWhile(Sentences):
    async def forget(self, episode_id: str) -> Forgotten:
        forgotten = await super().forget(episode_id)
        self.gone.clear()
        return forgotten


class ForgetsAnything(Sentences):
    async def forget(self, episode_id: str) -> Forgotten:
        return Forgotten(episode_id=episode_id, facts=1, entities=0)


Trial = Callable[..., Awaitable[None]]


async def run(tests: Mapping[str, Trial], name: str, memory: Sentences) -> None:
    suite = IngestContract() if tests is INGEST_TESTS else FactsContract()
    await tests[name](suite, lambda: nullcontext(memory))


@pytest.mark.parametrize("name", INGEST_TESTS)
async def test_an_honest_memory_takes_contents_in(name: str) -> None:
    await run(INGEST_TESTS, name, Sentences())


@pytest.mark.parametrize("name", FACT_TESTS)
async def test_an_honest_memory_tells_facts(name: str) -> None:
    await run(FACT_TESTS, name, Sentences())


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (FindsNothing, "test_what_was_ingested_is_found"),
        (LosesOrigins, "test_what_was_ingested_is_found"),
        (CountsTwice, "test_every_content_is_counted_once"),
        (KnowsNothing, "test_ingesting_twice_changes_nothing"),
        (StoresAgain, "test_ingesting_twice_changes_nothing"),
        (StoresAgain, "test_ingesting_at_once_is_as_in_turn"),
        (StoresAgain, "test_a_cancelled_ingest_can_be_repeated"),
        (ComplainsAboutNothing, "test_nothing_to_ingest_is_fine"),
        (NeverCloses, "test_a_closed_memory_takes_nothing"),
    ],
)
async def test_a_memory_that_takes_contents_in_badly_is_found_out(memory: type[Sentences], name: str) -> None:
    with pytest.raises(BROKEN):
        await run(INGEST_TESTS, name, memory())


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (TellsTooMany, "test_facts_are_listed"),
        (TurnsTimeRound, "test_a_time_line_is_in_order"),
        (IgnoresTimes, "test_facts_may_be_asked_for_as_of_a_time"),
        (CountsNoFacts, "test_entities_are_found_by_their_names"),
        (TellsTooMany, "test_a_neighbourhood_is_bounded"),
        (LeavesNamesOut, "test_a_neighbourhood_is_bounded"),
        (TurnsTimeRound, "test_episodes_are_listed_with_their_origin"),
        (ForgetsForAWhile, "test_a_forgotten_episode_is_gone_with_its_facts"),
        (ForgetsAnything, "test_a_forgotten_episode_is_gone_with_its_facts"),
        (ForgetsAnything, "test_an_unknown_episode_is_not_forgotten"),
        (NeverCloses, "test_a_closed_memory_tells_no_facts"),
    ],
)
async def test_a_memory_that_tells_facts_badly_is_found_out(memory: type[Sentences], name: str) -> None:
    with pytest.raises(BROKEN):
        await run(FACT_TESTS, name, memory())
