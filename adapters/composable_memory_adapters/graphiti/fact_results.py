"""Presents facts: their paths, search results, and the page that `get` shows (pure)."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from composable_memory.facts import Episode, Fact
from composable_memory.ingest.note_reader import TRANSCRIPT_SUFFIX
from composable_memory.paths import NOTE_SUFFIXES
from composable_memory.types import MAX_SNIPPET_CHARS, JsonValue, MemorySearchResult, Origin, SupportingFact
from composable_memory_adapters.graphiti.episodes import EpisodeDraft, owner_of
from composable_memory_adapters.graphiti.fact_stores import Question, ScoredFact, ScoredPassage
from composable_memory_adapters.graphiti.groups import GroupScope

PATH_ROOT = "graphiti"
FILES = (*NOTE_SUFFIXES, TRANSCRIPT_SUFFIX)
"""The file suffixes of ingested files; other sources of facts need not be files."""

_PATH = re.compile(rf"{PATH_ROOT}/([A-Za-z0-9_-]+)/([A-Za-z0-9-]+)")
_CITED = re.compile(rf"{PATH_ROOT}/([A-Za-z0-9_-]+)/.+")


def fact_path(group_id: str, fact_id: str) -> str:
    """Return the path under which a fact can be read; it never changes."""
    return f"{PATH_ROOT}/{group_id}/{fact_id}"


def ids_in(path: str) -> tuple[str, str] | None:
    """Return the group id and the fact or episode id in a path, or None for other paths."""
    match = _PATH.fullmatch(path)
    return (match[1], match[2]) if match else None


def group_in(path: str) -> str | None:
    """Return the group in a path that `cited_origin` made for a file of another workspace."""
    match = _CITED.fullmatch(path)
    return match[1] if match and ".." not in path.split("/") else None


def cited(fact: Fact, scope: GroupScope, gone: Collection[str]) -> Fact:
    """Return a fact with its origins as the workspace cites them: its own files first, missing files last."""
    origins = [cited_origin(origin, fact.group_id, scope, gone) for origin in fact.origins]
    own_first = sorted(origins, key=lambda one: (bool(one.gone), one.path.startswith(f"{PATH_ROOT}/")))
    return replace(fact, origins=tuple(own_first))


def cited_episode(episode: Episode, scope: GroupScope, gone: Collection[str]) -> Episode:
    """Return an episode with its origin and its content's id as the workspace names them."""
    origin = episode.origin and cited_origin(episode.origin, episode.group_id, scope, gone)
    owner, content_id = owner_of(episode.content_id)
    if owner != scope.workspace_id:
        content_id = episode.content_id
    return replace(episode, origin=origin, content_id=content_id)


def cited_origin(origin: Origin, group_id: str, scope: GroupScope, gone: Collection[str]) -> Origin:
    """Return an origin as the workspace cites it: its own files by path, others with their owner.

    In a group that belongs only to the workspace, a path without an owner is the workspace's too. `gone` has
    those of its files, as named in origins, that no longer exist.
    """
    owner, path = owner_of(origin.path)
    if owner == scope.workspace_id or (owner is None and scope.is_private(group_id)):
        return replace(origin, path=path, gone=origin.path in gone or None)
    parts = (PATH_ROOT, group_id, *filter(None, [owner]), path.lstrip("/"))
    return replace(origin, path="/".join(parts))


def as_result(scored: ScoredFact, question: Question, outdated: Sequence[Fact] = ()) -> MemorySearchResult:
    """Return a fact as a result: what is known and since when, citing its origin.

    `outdated` has other facts on the same subject that did not hold at the time asked about.
    """
    fact, now = scored.fact, question.now
    return MemorySearchResult(
        path=fact_path(fact.group_id, fact.id),
        start_line=0,
        end_line=0,
        score=scored.score,
        snippet=format_fact(fact, now, room=MAX_SNIPPET_CHARS),
        exact=scored.exact,
        origin=fact.origins[0] if fact.origins else None,
        metadata=_metadata(fact, now),
        facts=tuple(
            _supporting(one, question.as_of, holds=question.is_true_of(one)) for one in (fact, *outdated)
        ),
    )


def files_gone(origins: Iterable[Origin | None], workspace: Path) -> frozenset[str]:
    """Return the paths of notes and transcripts whose files no longer exist; reads the disk."""
    paths = {one.path for one in origins if one and one.path.lower().endswith(FILES)}
    named = ((path, owner_of(path)[1]) for path in paths)
    return frozenset(path for path, name in named if not _may_exist(workspace, name))


def _may_exist(workspace: Path, name: str) -> bool:
    try:
        return (workspace / Path(name).expanduser()).exists()
    except (OSError, RuntimeError, ValueError):  # cannot be checked, for example because the name is too long
        return True


def passage_result(passage: ScoredPassage, scope: GroupScope, gone: Collection[str]) -> MemorySearchResult:
    """Return a sentence of an episode as a result with the path of the episode."""
    known: dict[str, JsonValue] = {
        "episode": passage.episode_id,
        "group": passage.group_id,
        "observed_at": _iso(passage.observed_at),
    }
    return MemorySearchResult(
        path=fact_path(passage.group_id, passage.episode_id),
        start_line=0,
        end_line=0,
        score=passage.score,
        snippet=passage.text[:MAX_SNIPPET_CHARS],
        exact=passage.exact,
        origin=passage.origin and cited_origin(passage.origin, passage.group_id, scope, gone),
        metadata={name: value for name, value in known.items() if value is not None},
    )


def _supporting(fact: Fact, as_of: datetime, *, holds: bool) -> SupportingFact:
    return SupportingFact(
        text=fact.statement.strip(),
        valid_from=fact.valid_at,
        valid_to=fact.invalid_at,
        as_of=as_of,
        holds=holds,
        origin=fact.origins[0] if fact.origins else None,
    )


def format_fact(fact: Fact, now: datetime, *, room: int | None = None) -> str:
    """Return the text of a fact with its validity, in at most `room` characters."""
    validity = format_validity(fact, now)
    tail = f" ({validity})" if validity else ""
    text = fact.statement.strip()
    if room is not None and len(text) + len(tail) > room:
        text = text[: max(0, room - len(tail) - 1)].rstrip() + "…"
    return text + tail


def format_validity(fact: Fact, now: datetime) -> str:
    """Return when a fact holds, in words; empty if nothing is known."""
    return _supporting(fact, now, holds=fact.is_current(now)).validity


def fact_page(fact: Fact, now: datetime, *, history: Sequence[Fact], sources: Sequence[Episode]) -> str:
    """Return everything known of a fact as Markdown: the fact, its history, and its sources."""
    return "\n".join(
        [
            f"# {_line(fact.source)} {_words(fact.relation)} {_line(fact.target)}",
            "",
            format_fact(fact, now),
            "",
            *_properties(fact, now),
            *_history(fact, history, now),
            *_sources(sources),
            "",
        ]
    )


def episode_page(episode: Episode, originals: Sequence[EpisodeDraft]) -> str:
    """Return an episode as Markdown, with the episodes it replaced."""
    merged = [line for one in originals for line in ("", f"## {_original(one)}", "", one.text.strip())]
    return "\n".join([f"# {_line(_place_of(episode))}", "", episode.text.strip(), *merged, ""])


def _metadata(fact: Fact, now: datetime) -> dict[str, JsonValue]:
    known: dict[str, JsonValue] = {
        "fact": fact.id,
        "group": fact.group_id,
        "relation": fact.relation,
        "subject": fact.source,
        "object": fact.target,
        "current": fact.is_current(now),
        "valid_at": _iso(fact.valid_at),
        "invalid_at": _iso(fact.invalid_at),
        "expired_at": _iso(fact.expired_at),
        "confidence": fact.confidence,
        "episode": fact.episodes[0] if fact.episodes else None,
    }
    return {name: value for name, value in known.items() if value is not None}


def _properties(fact: Fact, now: datetime) -> Iterator[str]:
    properties = {
        "holds": "yes" if fact.is_current(now) else "no",
        "valid from": _iso(fact.valid_at),
        "valid to": _iso(fact.invalid_at),
        "recorded": _iso(fact.created_at),
        "found to be no longer true": _iso(fact.expired_at),
        "told until": _iso(fact.expires_at),
        "confidence": f"{fact.confidence:.2f}" if fact.confidence is not None else None,
        "group": fact.group_id,
    }
    yield from (f"- {name}: {value}" for name, value in properties.items() if value)


def _history(fact: Fact, history: Sequence[Fact], now: datetime) -> Iterator[str]:
    others = [other for other in history if other.id != fact.id]
    if others:
        yield from ("", "## History", "")
        yield from (
            f"- {_line(format_fact(other, now))} [{fact_path(other.group_id, other.id)}]" for other in others
        )


def _sources(sources: Sequence[Episode]) -> Iterator[str]:
    if sources:
        yield from ("", "## Sources", "")
    for episode in sources:
        yield f"- {_line(_place_of(episode))} [{fact_path(episode.group_id, episode.id)}]"
        yield from (f"  > {line}" for line in episode.text.strip().splitlines())


def _place_of(episode: Episode) -> str:
    place = _cited(episode.origin) or episode.source or episode.content_id
    return f"{place}, {_day(episode.observed_at)}" if episode.observed_at else place


def _original(draft: EpisodeDraft) -> str:
    return f"{_cited(draft.origin) or draft.content.id}, {draft.observed_at.isoformat()}"


def _cited(origin: Origin | None) -> str:
    return origin.shown if origin else ""


def _words(relation: str) -> str:
    return relation.replace("_", " ").lower()


def _line(text: str) -> str:
    return " ".join(text.split())


def _day(moment: datetime | None) -> str | None:
    return moment.date().isoformat() if moment else None


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
