"""Proposes the pages of `bank/` from the retained lines of all notes, and writes them once approved.

The pages depend on the lines alone, so the same notes give the same pages: `world.md`, `experience.md` with
observations, `opinions.md`, and one for each entity. A line is removed from them if it is gone from the
notes, or if everything taken from it has ended according to the graph.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from posixpath import relpath
from urllib.parse import quote

from composable_memory.config.settings import JudgeSettings
from composable_memory.errors import MemoryPathError, NoteNotWritten, require
from composable_memory.memory_interface import OpenMemory
from composable_memory.paths import BANK_FOLDER, BANK_PAGES, MAIN_FILES, resolve_memory_file
from composable_memory.query.filters import may_pass, parse_since
from composable_memory.recall.name_matching import folded
from composable_memory.recall.recalling import ends_of_lines, facts_if_any
from composable_memory.recall.retained_notes import ENTITY_PAGES, KnownLine, Note
from composable_memory.reflect.entity_pages import (
    COUNTS,
    Entry,
    Page,
    derive_key,
    is_empty,
    revise_page,
)
from composable_memory.reflect.opinions import key_of, opinions_of
from composable_memory.reflect.report import Opinion, PageChange, Reflection
from composable_memory.reflect.summaries import add_summaries
from composable_memory.retain.note_file import NoteFile
from composable_memory.types import Degradation, SearchFilters
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_FACTS = 5000
GENERAL = "General"
"""The heading for what is about no entity in particular."""
CORE_SECTION = "From the bank"
MOST_IN_CORE = 10
SURE = 0.7
"""The minimum confidence of an opinion in the core."""
LONGEST_NAME = 120
"""Maximum length of a file name, in bytes."""
CHANGED = "it has changed since the diff was made"

_PAGES = {"world": "world", "experience": "experience", "observation": "experience"}
_SECTIONS = {"world": "World", "experience": "Experience", "observation": "Observations"}
_NO_FILE_NAME = str.maketrans(dict.fromkeys('/\\:*?"<>|#^[]%', "-"))


async def reflect(
    memory: OpenMemory,
    *,
    since: datetime | str | None,
    core: bool,
    llm: JudgeSettings | None,
    now: datetime | None,
) -> Reflection:
    """Propose pages; see `Memory.reflect`."""
    present = now or memory.manager.asked_at()
    start = parse_since(since, present) if isinstance(since, str) else since
    notes = await asyncio.to_thread(memory.notes.read, memory.workspace_dir, memory.status().note_paths)
    lines = [line for note in notes.values() if not _is_in_bank(note) for line in note.lines]
    facts, degraded = await facts_if_any(
        memory,
        lambda graph: graph.facts(limit=MOST_FACTS),
        otherwise="could not check whether lines are still true: ",
    )
    ends, _ = await asyncio.to_thread(ends_of_lines, lines, facts, present)
    plan = await asyncio.to_thread(_plan, notes, [line for line in lines if line.source not in ends], start)
    if core:
        _add_core(plan, next((name for name in MAIN_FILES if name in notes), MAIN_FILES[0]))
    texts, unread = await asyncio.to_thread(_texts_of, memory.workspace_dir, plan.pages)
    dropped, unsaid = await add_summaries(plan.pages, texts, llm)
    return Reflection(
        pages=await asyncio.to_thread(_changes, plan, texts),
        opinions=plan.opinions,
        since=start,
        lines=len(lines),
        recent=len(plan.recent),
        ended=len(ends),
        dropped=tuple(dropped),
        degraded=(*degraded, *unread, *unsaid),
    )


async def apply_reflection(memory: OpenMemory, reflection: Reflection) -> Reflection:
    """Write the pages; see `Memory.apply_reflection`."""
    require("reflection", reflection, Reflection, "a Reflection")
    folder = memory.workspace_dir
    changed = await asyncio.to_thread(_changed_meanwhile, folder, reflection.pages)
    if changed is not None:
        raise NoteNotWritten(changed, CHANGED, fix="reflect again")
    for page in reflection.pages:
        async with NoteFile(folder, page.path) as file:
            await (file.change(_PageEdit(page)) if page.after else file.remove(page.before))
    return replace(reflection, is_applied=True)


# --- planning the pages -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    pages: dict[str, Page]
    opinions: tuple[Opinion, ...]
    recent: frozenset[str]
    of_entity: Mapping[str, Sequence[KnownLine]]


def _plan(notes: Mapping[str, Note], lines: Sequence[KnownLine], since: datetime | None) -> _Plan:
    window = SearchFilters(since=since)
    recent = frozenset(line.source for line in lines if may_pass(line.day, window) is not False)
    # An undated note has the day of its last change, which writing to it would move.
    dated = sorted(
        (line if line.is_dated else replace(line, day=date.min) for line in lines),
        key=lambda one: (one.day, one.path, one.line.start_line),
    )
    names = _names(notes.values(), dated)
    # Pages without entries lose what was written before, or are removed if only headings are left.
    pages = {
        note.path: Page()
        for note in notes.values()
        if _is_in_bank(note) and (note.repeated or note.path.rpartition("/")[2] in BANK_PAGES)
    }
    opinions = tuple(opinions_of(dated))
    _plan_types(pages, dated, names, recent)
    of_entity: dict[str, list[KnownLine]] = {}
    for line in dated:
        for name in dict.fromkeys(names[folded(one)] for one in line.line.entities):
            of_entity.setdefault(name, []).append(line)
    for name, about in of_entity.items():
        _plan_entity(pages, name, about, names, recent)
    _plan_opinions(pages, opinions, dated, names, recent)
    return _Plan(pages=pages, opinions=opinions, recent=recent, of_entity=of_entity)


def _names(notes: Iterable[Note], lines: Iterable[KnownLine]) -> dict[str, str]:
    """Return the name of each entity: that of the page with this alias, or its most frequent spelling."""
    spellings: dict[str, Counter[str]] = {}
    for name in (name for line in lines for name in line.line.entities):
        spellings.setdefault(folded(name), Counter())[name] += 1
    names = {key: max(sorted(found), key=found.__getitem__) for key, found in spellings.items()}
    for note in notes:
        if note.path.startswith(ENTITY_PAGES):
            stem = note.path.rpartition("/")[2].rpartition(".")[0]
            names.update(dict.fromkeys(map(folded, note.names), stem))
    return names


def _plan_types(
    pages: dict[str, Page], lines: Iterable[KnownLine], names: Mapping[str, str], recent: frozenset[str]
) -> None:
    for line in lines:
        if page := _PAGES.get(line.line.type):
            path = f"{BANK_FOLDER}/{page}.md"
            section = names[folded(line.line.entities[0])] if line.line.entities else GENERAL
            entry = Entry(key=key_of(line), section=section, text=f"{line.line.text} {_link(line, path)}")
            _page(pages, path, page, page.capitalize()).add(entry, is_fresh=line.source in recent)


def _plan_opinions(
    pages: dict[str, Page],
    opinions: Iterable[Opinion],
    lines: Iterable[KnownLine],
    names: Mapping[str, str],
    recent: frozenset[str],
) -> None:
    path = f"{BANK_FOLDER}/opinions.md"
    sources = {key_of(line): line for line in lines}
    fresh = {
        f"^{line.line.id}" for line in sources.values() if line.line.id and line.source in recent
    } | recent
    for opinion in opinions:
        line = sources[opinion.id]
        is_fresh = not fresh.isdisjoint((line.source, *opinion.supporting, *opinion.contradicting))
        section = names[folded(opinion.entities[0])] if opinion.entities else GENERAL
        told = f"{opinion.statement} {moved(opinion)} {_link(line, path)}"
        entry = Entry(key=opinion.id, section=section, text=told)
        _page(pages, path, "opinion", "Opinions").add(entry, is_fresh=is_fresh)
        for name in dict.fromkeys(names[folded(one)] for one in opinion.entities):
            own = _entity_path(name)
            told = f"{opinion.statement} ({opinion.confidence:.2f}) {_link(line, own)}"
            entry = Entry(key=opinion.id, section="Opinions", text=told)
            _entity_page(pages, name).add(entry, is_fresh=is_fresh)


def moved(opinion: Opinion) -> str:
    """Describe a confidence and what moved it: `0.70 -> 0.78: 3 for (^a, ^b, ^c), 1 against (^d)`."""
    evidence = [
        f"{len(keys)} {word} ({', '.join(keys)})"
        for word, keys in (("for", opinion.supporting), ("against", opinion.contradicting))
        if keys
    ]
    if not evidence:
        return f"{opinion.stated:.2f}."
    updated = f", updated {opinion.updated}" if opinion.updated > date.min else ""
    return f"{opinion.stated:.2f} -> {opinion.confidence:.2f}: {', '.join(evidence)}{updated}."


def _plan_entity(
    pages: dict[str, Page],
    name: str,
    lines: Sequence[KnownLine],
    names: Mapping[str, str],
    recent: frozenset[str],
) -> None:
    page, path = _entity_page(pages, name), _entity_path(name)
    is_fresh = any(line.source in recent for line in lines)
    page.add(Entry(key=COUNTS, section="About", text=_count_line(name, lines, names)), is_fresh=is_fresh)
    for line in lines:
        if section := _SECTIONS.get(line.line.type):
            entry = Entry(key=key_of(line), section=section, text=f"{line.line.text} {_link(line, path)}")
            page.add(entry, is_fresh=line.source in recent)


def _count_line(name: str, lines: Sequence[KnownLine], names: Mapping[str, str]) -> str:
    """Return how much is known about an entity, since when, and along with which others."""
    types = Counter(line.line.type for line in lines)
    others = Counter(
        other for line in lines for other in {names[folded(one)] for one in line.line.entities} - {name}
    )
    days = [line.day for line in lines if line.day > date.min]
    since = f" from {min(days)} to {max(days)}" if len(set(days)) > 1 else f" on {days[0]}" if days else ""
    told = ", ".join(f"{count} {type_}" for type_, count in sorted(types.items()))
    most = sorted(others.items(), key=lambda one: (-one[1], one[0]))[:5]
    beside = f"; with {', '.join(f'{other} ({count})' for other, count in most)}" if most else ""
    return f"{len(lines)} retained{since}: {told}{beside}."


def _add_core(plan: _Plan, path: str) -> None:
    """Plan a section of the core: the surest opinions, and the pages of the best-known entities."""
    page = plan.pages[path] = Page(head="# Memory\n")
    sure = sorted(plan.opinions, key=lambda one: (-one.confidence, one.id))
    for opinion in [one for one in sure if one.confidence >= SURE][:MOST_IN_CORE]:
        about = f"{', '.join(opinion.entities)}: " if opinion.entities else ""
        told = f"{about}{opinion.statement} ({opinion.confidence:.2f})"
        page.add(Entry(key=opinion.id, section=CORE_SECTION, text=told), is_fresh=True)
    most = sorted(plan.of_entity.items(), key=lambda one: (-len(one[1]), one[0]))[:MOST_IN_CORE]
    for name, lines in most:
        told = f"[{name}]({quote(_entity_path(name))}): {len(lines)} retained"
        page.add(Entry(key=derive_key("e", folded(name)), section=CORE_SECTION, text=told), is_fresh=True)


def _is_in_bank(note: Note) -> bool:
    return note.path.startswith(f"{BANK_FOLDER}/")


def _entity_path(name: str) -> str:
    short = name.translate(_NO_FILE_NAME).encode()[:LONGEST_NAME].decode(errors="ignore")
    return f"{ENTITY_PAGES}{short.strip('. ') or 'unnamed'}.md"


def _entity_page(pages: dict[str, Page], name: str) -> Page:
    page = _page(pages, _entity_path(name), "entity", name)
    page.name = name
    return page


def _page(pages: dict[str, Page], path: str, type_: str, title: str) -> Page:
    page = pages.setdefault(path, Page())
    page.head = f"---\ntype: {type_}\n---\n\n# {title}\n"
    return page


def _link(line: KnownLine, page: str) -> str:
    """Return a link from a page to a line, by its id, which is stable, or else by its number."""
    target = quote(relpath(line.path, page.rpartition("/")[0]))
    place = f"^{line.line.id}" if line.line.id else f"L{line.line.start_line}"
    label = str(line.day) if line.day > date.min else line.path.rpartition("/")[2].rpartition(".")[0]
    return f"[{label}]({target}#{place})"


# --- the pages on disk --------------------------------------------------------------------------------------


def _changes(plan: _Plan, texts: Mapping[str, str]) -> tuple[PageChange, ...]:
    changes: list[PageChange] = []
    for path, page in sorted(plan.pages.items()):
        if path in texts:
            entries = [entry for key, entry in page.entries.items() if key in page.fresh]
            after = revise_page(texts[path], entries, page.entries.keys(), head=page.head)
            if is_empty(after):
                after = ""
            if after != texts[path]:
                changes.append(PageChange(path=path, before=texts[path], after=after))
    return tuple(changes)


def _texts_of(workspace: Path, paths: Iterable[str]) -> tuple[dict[str, str], tuple[Degradation, ...]]:
    """Return the texts of pages, empty for missing ones, and those that cannot be read."""
    texts, unread = {}, []
    for path in paths:
        try:
            texts[path] = _text(resolve_memory_file(path, workspace=workspace))
        except (OSError, UnicodeDecodeError, MemoryPathError) as error:
            reason = f"{path} was left unchanged: {error}"
            unread.append(Degradation(backend_id="bank", code="unreadable-files", reason=reason))
    return texts, tuple(unread)


def _text(target: Path) -> str:
    try:
        return target.read_bytes().decode()
    except FileNotFoundError:
        return ""


def _changed_meanwhile(workspace: Path, pages: Sequence[PageChange]) -> str | None:
    """Return a page that has changed since the diff was made."""
    now, _ = _texts_of(workspace, [page.path for page in pages])
    return next((page.path for page in pages if now.get(page.path) != page.before), None)


class _PageEdit:
    """Replaces the text of a page by the new one; changes that an editor saves afterwards are kept."""

    def __init__(self, page: PageChange) -> None:
        self._page = page
        self._is_written = False

    def __call__(self, text: str) -> str:
        if not self._is_written and text != self._page.before:
            raise NoteNotWritten(self._page.path, CHANGED, fix="reflect again")
        is_again, self._is_written = self._is_written, True
        return text if is_again else self._page.after
