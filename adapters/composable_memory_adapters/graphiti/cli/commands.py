"""`cmem graph`: look through the facts of a memory, draw them, and forget an episode."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import typer

from composable_memory.cli.plugin_api import (
    ExitCode,
    Line,
    Place,
    check_names,
    counted,
    one_line,
    run,
    say,
    say_lines,
    tell_degraded,
    warn,
    write_json,
    write_text,
)
from composable_memory.errors import ConfigError
from composable_memory.facts import Episode, Fact
from composable_memory.interfaces import Capability, SupportsAdoption, SupportsFacts
from composable_memory.runtime.opening import open_memory
from composable_memory.tools import Document
from composable_memory_adapters.graphiti.cli.documents import (
    AdoptedEpisodesDocument,
    EntitiesDocument,
    EntityDocument,
    EpisodeDocument,
    EpisodesDocument,
    FactDocument,
    FactsDocument,
    ForgottenDocument,
    NeighbourhoodDocument,
)
from composable_memory_adapters.graphiti.cli.lines import (
    entity_lines,
    episode_lines,
    fact_lines,
    timeline_lines,
)
from composable_memory_adapters.graphiti.cli.pictures import html_page, mermaid
from composable_memory_ops_logs import utc_now

__all__ = [
    "Picture",
    "PictureFormat",
    "adopt",
    "ask_to_forget",
    "entities",
    "episodes",
    "export",
    "facts",
    "forget",
    "timeline",
]

PictureFormat = Literal["json", "mermaid", "html"]

WHAT_TO_DO = "hint: the graph is empty; `cmem ingest MEMORY.md memory/` reads notes into it"
WHO_IS_KNOWN = "hint: `cmem graph entities` lists who and what is known"
LOOKED_AT = 1000
"""Among so many of the latest episodes the one to be forgotten is looked for, to show what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What to draw, and where to: around `entity` or, without one, the newest facts of all."""

    entity: str | None
    format: PictureFormat
    depth: int
    limit: int
    output: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    """The backend with the facts, and the time at which it is looked at."""

    backend_id: str
    memory: SupportsFacts
    now: datetime

    def path(self, one: Fact | Episode) -> str:
        """Return what `cmem get` shows it under."""
        return f"{self.backend_id}/{one.group_id}/{one.id}"

    def documents(self, facts: Sequence[Fact]) -> tuple[FactDocument, ...]:
        """Return the documents of facts."""
        return tuple(FactDocument.of(fact, path=self.path(fact), now=self.now) for fact in facts)

    def document(self, episode: Episode) -> EpisodeDocument:
        """Return the document of an episode."""
        return EpisodeDocument.of(episode, path=self.path(episode))

    async def is_empty(self) -> bool:
        """Say whether nothing was ever ingested."""
        return not await self.memory.episodes(limit=1) and not await self.memory.facts(limit=1)


async def facts(
    place: Place,
    backend: str | None,
    *,
    about: str | None,
    as_of: datetime | None,
    current_only: bool,
    limit: int,
    as_json: bool,
) -> ExitCode:
    """List facts, the newest first."""
    async with _open(place, backend) as graph:
        found = await graph.memory.facts(about=about, as_of=as_of, current_only=current_only, limit=limit)
        hint = await _hint(graph, found)
    document = FactsDocument(facts=graph.documents(found))
    lines = [fact_lines(fact, graph.path(fact), graph.now) for fact in found]
    return _answer(lines, "facts", document, hint, as_json=as_json)


async def timeline(place: Place, backend: str | None, entity: str, *, limit: int, as_json: bool) -> ExitCode:
    """List the facts about an entity, in the order of the time they hold from."""
    async with _open(place, backend) as graph:
        found = await graph.memory.timeline(entity, limit=limit)
        hint = await _hint(graph, found)
    document = FactsDocument(facts=graph.documents(found))
    lines = [timeline_lines(fact, graph.path(fact), graph.now) for fact in found]
    return _answer(lines, "facts", document, hint, as_json=as_json)


async def entities(
    place: Place, backend: str | None, *, named: str | None, limit: int, as_json: bool
) -> ExitCode:
    """List entities, those with most facts first."""
    async with _open(place, backend) as graph:
        found = await graph.memory.entities(named=named, limit=limit)
        hint = await _hint(graph, found)
    document = EntitiesDocument(entities=tuple(map(EntityDocument.of, found)))
    return _answer(list(map(entity_lines, found)), "entities", document, hint, as_json=as_json)


async def episodes(place: Place, backend: str | None, *, limit: int, as_json: bool) -> ExitCode:
    """List what was ingested, the latest observed first."""
    async with _open(place, backend) as graph:
        found = await graph.memory.episodes(limit=limit)
        hint = await _hint(graph, found)
    document = EpisodesDocument(episodes=tuple(map(graph.document, found)))
    lines = [episode_lines(one, graph.path(one)) for one in found]
    return _answer(lines, "episodes", document, hint, as_json=as_json)


def ask_to_forget(place: Place, backend: str | None, episode: str) -> None:
    """Show what would go, and ask.

    Raises:
        typer.Abort: the answer is no.
        typer.Exit: the graph cannot be looked at.
    """
    # Nothing is open while the answer is waited for, so that nothing is held up by it.
    try:
        run(_preview(place, backend, episode))
    except typer.Exit as done:
        if done.exit_code:
            raise
    typer.confirm("Forget it for good?", abort=True, err=True)


async def forget(place: Place, backend: str | None, episode: str, *, as_json: bool) -> ExitCode:
    """Remove an episode with what only it supports."""
    async with _open(place, backend) as graph:
        gone = await graph.memory.forget(episode.strip())
    if as_json:
        write_json(ForgottenDocument.of(gone).as_json())
    else:
        say(f"Forgot {one_line(gone.episode_id)}, with {_told(gone.entities, gone.facts)}.")
    return ExitCode.FINE


async def adopt(place: Place, backend: str | None, *, everything: bool, as_json: bool) -> ExitCode:
    """Take over what was ingested before workspaces were told apart."""
    async with _open(place, backend) as graph:
        if not isinstance(graph.memory, SupportsAdoption):
            raise ConfigError("backend", f"{graph.backend_id} keeps nothing that could be taken over")
        adopted = await graph.memory.adopt(everything=everything)
    if as_json:
        write_json(AdoptedEpisodesDocument(episodes=adopted.episodes, left=adopted.left).as_json())
    else:
        say(f"Took over {counted(adopted.episodes, 'episode', 'episodes')}; {adopted.left} are left.")
    return ExitCode.FINE


async def export(place: Place, backend: str | None, picture: Picture, *, as_json: bool) -> ExitCode:
    """Write a picture of the graph, or its document."""
    async with _open(place, backend) as graph:
        found = await graph.memory.neighbourhood(picture.entity, depth=picture.depth, limit=picture.limit)
        hint = await _hint(graph, found.facts)
    document = NeighbourhoodDocument.of(
        found,
        graph.documents(found.facts),
        entity=picture.entity,
        depth=picture.depth,
        output=str(picture.output) if picture.output else None,
    )
    drawn = {"html": html_page, "mermaid": mermaid}.get(picture.format)
    text = drawn(found, centre=picture.entity, now=graph.now) if drawn else _as_text(document)
    if picture.output:
        await asyncio.to_thread(picture.output.write_bytes, text.encode("utf-8", "replace"))
    if as_json or (picture.format == "json" and not picture.output):
        write_json(document.as_json())
    elif picture.output:
        say(f"Wrote {_told(len(found.entities), len(found.facts))} to {picture.output}.")
    else:
        write_text(text)
    if hint:
        warn(hint)
    return ExitCode.FINE


@asynccontextmanager
async def _open(place: Place, backend: str | None) -> AsyncIterator[_Graph]:
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        check_names(memory, (backend,) if backend else ())
        found = memory.facts_of(backend)
        able = memory.manager.backends_with(Capability.FACTS)
        tell_degraded(memory.unavailable())
        backend_id = next(backend_id for backend_id, one in able.items() if id(one) == id(found))
        yield _Graph(backend_id=backend_id, memory=found, now=utc_now())
        if able[backend_id].status().dirty:
            warn(f"degraded: {backend_id}: stale: not all that was ingested is stored; see `cmem status`")


async def _hint(graph: _Graph, found: Sequence[object]) -> str | None:
    """Return what to do where nothing was found."""
    if found:
        return None
    return WHAT_TO_DO if await graph.is_empty() else WHO_IS_KNOWN


async def _preview(place: Place, backend: str | None, given: str) -> ExitCode:
    async with _open(place, backend) as graph:
        listed = await graph.memory.episodes(limit=LOOKED_AT)
    named = given.strip()
    found = next((one for one in listed if named in (one.id, one.content_id, graph.path(one))), None)
    if found is None:
        warn(f"{one_line(named)} is not among the latest {LOOKED_AT} episodes")
    else:
        say_lines(episode_lines(found, graph.path(found)))
    warn("what only this episode supports goes with it: facts, and entities that no fact is left about")
    return ExitCode.FINE


def _answer(
    shown: Sequence[Sequence[Line]], what: str, document: Document, hint: str | None, *, as_json: bool
) -> ExitCode:
    if as_json:
        write_json(document.as_json())
    elif not shown:
        say(f"No {what}.")
    for lines in () if as_json else shown:
        say_lines(lines)
    if hint:
        warn(hint)
    return ExitCode.FINE


def _told(entities: int, facts: int) -> str:
    return f"{counted(entities, 'entity', 'entities')} and {counted(facts, 'fact')}"


def _as_text(document: Document) -> str:
    return json.dumps(document.as_json(), ensure_ascii=False, indent=2) + "\n"
