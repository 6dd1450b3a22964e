"""What an agent is given from its memory: a recap when a session begins, and what is known about a prompt."""

import asyncio
import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from composable_memory.config.settings import HooksSettings
from composable_memory.errors import ComposableMemoryError
from composable_memory.hooks.session_state import SessionState, digest
from composable_memory.memory_fence import CAUTION, CLOSING, OPENING, escaped, fence, own_words
from composable_memory.paths import MAIN_FILES, opened_file, resolve_memory_file
from composable_memory.query.calibration import GOOD_ALONE
from composable_memory.query.context_pack import CHARS_PER_TOKEN, PackBudget, estimate_tokens
from composable_memory.recall.retained_notes import note_files
from composable_memory.session_keys import is_shared

if TYPE_CHECKING:
    from composable_memory.forget.tombstones import Forgotten
    from composable_memory.runtime.memory import Memory
    from composable_memory.types import MemorySearchResult

CORE_SHARE = 0.6
"""At most this share of a recap is for the core memory, if there are daily notes as well."""
MOST_BYTES = 1_000_000
LEAST_PROMPT_TOKENS = 2
"""Anything shorter, such as "ok", asks for nothing."""
LEAST_CHARS = 40
LONGEST_QUERY = 1_000
MOST_QUERIES = 4
CUT = "…"

_DAY = re.compile(r"(\d{4}-\d{2}-\d{2})(?:-.*)?\.(?:md|markdown)")
# A search would read these as filters and phrases; a prompt is searched for literally.
_FILTER_SIGNS = re.compile(r'[:："]|(?<!\S)-')
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:\.(?=\S)[^.!?。！？\n]*)*[!?？]?")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


async def session_recap(
    workspace: Path,
    settings: HooksSettings,
    *,
    now: datetime,
    session_key: str | None = None,
    forgotten: "Forgotten | None" = None,
    note_paths: Sequence[str] = (),
) -> str | None:
    """Return the core memory and the latest days of a workspace, fenced; None if there is nothing to tell.

    Of the core memory (MEMORY.md or memory.md) the beginning is included, of a day's note its end; omissions
    are marked. `note_paths` are where notes are besides `memory/`, "." for the whole workspace. In a group or
    channel, where others would read it, there is no recap. Forgotten text is left out.
    """
    if is_shared(session_key) or not settings.recap_tokens:
        return None

    def recap() -> str | None:
        budget = PackBudget(max_tokens=settings.recap_tokens)
        room = budget.room - budget.cost(fence([]))
        days = list(latest_days(workspace, settings.recap_days, now, note_paths))
        excerpt = partial(_excerpt, workspace, budget=budget, forgotten=forgotten, note_paths=note_paths)
        parts = []
        core = next((name for name in MAIN_FILES if (workspace / name).is_file()), None)
        if core is not None:
            part = excerpt(core, int(room * CORE_SHARE) if days else room)
            parts += part
            room -= budget.cost("".join(part))
        for left, name in zip(range(len(days), 0, -1), days, strict=True):
            part = excerpt(name, room // left, from_end=True)
            parts += part
            room -= budget.cost("".join(part))
        return "\n".join([OPENING, CAUTION, *parts, CLOSING]) if parts else None

    return await asyncio.to_thread(recap)


def latest_days(workspace: Path, count: int, now: datetime, note_paths: Sequence[str] = ()) -> Iterator[str]:
    """Yield the notes of the latest days, latest first; a day may have several. Reads folders."""
    names = [
        (PurePosixPath(file.key).name, file.key)
        for file in note_files(Path(os.path.realpath(workspace)), note_paths)
    ]
    today = now.date().isoformat()
    dated = [
        (match[1], name, key) for name, key in names if (match := _DAY.fullmatch(name)) and match[1] <= today
    ]
    days = sorted({day for day, *_ in dated}, reverse=True)[:count]
    yield from (key for day, _, key in sorted(dated, key=itemgetter(1), reverse=True) if day in days)


def _excerpt(
    workspace: Path,
    name: str,
    room: int,
    *,
    budget: PackBudget,
    forgotten: "Forgotten | None",
    note_paths: Sequence[str],
    from_end: bool = False,
) -> list[str]:
    """Return whole lines of a note, escaped, below its name and how much of it they are."""
    try:
        path = resolve_memory_file(name, workspace=workspace, extra_paths=[*map(Path, note_paths)])
        with opened_file(path, max_bytes=MOST_BYTES) as (file, _):
            text = os.read(file, MOST_BYTES).decode("utf-8", "replace").strip("\ufeff\n ")
    except (OSError, ComposableMemoryError):
        return []
    if forgotten is not None:
        text = forgotten.hide(text, "memory").strip("\n ")
    lines = escaped(text).split("\n") if text else []
    title = "## {}, {} of {} lines"
    room -= budget.cost(title.format(name, len(lines), len(lines)) + "\n")
    kept: list[str] = []
    for line in reversed(lines) if from_end else lines:
        if (room := room - budget.cost(f"{line}\n")) < 0:
            break
        kept.append(line)
    if not kept:
        return []
    if len(kept) == len(lines):
        return [f"## {name}", *lines]
    which = f"{'last' if from_end else 'first'} {len(kept)}"
    return [title.format(name, f"the {which}", len(lines)), *(reversed(kept) if from_end else kept)]


async def recall_for_prompt(
    memory: "Memory",
    prompt: str,
    *,
    session_key: str | None = None,
    state: SessionState | None = None,
) -> str | None:
    """Return what is known about a prompt, fenced; None if nothing matches well, or nothing is new.

    What this session was already given, according to `state`, is left out; what is returned is added to it.

    Raises:
        BackendUnavailable: the memory is closed.
    """
    from composable_memory.tools.search import MemorySearchRequest, query_cited

    settings = memory.settings.memory.hooks
    results: Sequence[MemorySearchResult] = ()
    for query in _queries(prompt):
        request = MemorySearchRequest(
            query=query, max_results=settings.recall_results, weak=False, session_key=session_key
        )
        response = await query_cited(memory, request, least=GOOD_ALONE)
        if results := () if response.weak else response.results:
            break
    known = {_text(result): result for result in results}
    state = state or SessionState()
    told = dict(_within({text: known[text] for text in state.fresh(known)}, settings.recall_tokens))
    state.shown += map(digest, told)
    return fence(told.values()) if told else None


def _queries(prompt: str) -> list[str]:
    """Return what to search for: the whole prompt, then each of its sentences, questions first."""
    own = _CODE.sub("\n", own_words(prompt))
    asked = sorted(_SENTENCE.findall(own), key=lambda one: one.rstrip().endswith(("?", "？")), reverse=True)
    queries = (" ".join(_FILTER_SIGNS.sub(" ", one).split())[:LONGEST_QUERY] for one in (own, *asked))
    found = dict.fromkeys(one for one in queries if estimate_tokens(one) >= LEAST_PROMPT_TOKENS)
    return list(found)[:MOST_QUERIES]


def _text(result: "MemorySearchResult") -> str:
    from composable_memory.highlights import snippet_of
    from composable_memory.query.context_pack import timed_facts

    return "\n".join([snippet_of(result).text.strip(), *(f"- {fact}" for fact in timed_facts(result))])


def _within(told: "dict[str, MemorySearchResult]", most_tokens: int) -> Iterator[tuple[str, str]]:
    """Yield the texts that fit into `most_tokens`, with fence and escapes, each in its final form."""
    budget = PackBudget(max_tokens=most_tokens)
    room = budget.room - budget.cost(fence([]))
    for number, (text, result) in enumerate(told.items(), start=1):
        place = f" [{' '.join(result.citation.split())}]" if result.citation else ""
        piece = f"{number}.{place} {text}"
        cost = budget.cost(escaped(piece) + "\n")
        if cost > room:
            # An escaped character is longer than the original: cut by the share that fits.
            piece = (
                budget.beginning(piece, room * budget.cost(piece) // cost - CHARS_PER_TOKEN).rstrip() + CUT
            )
            if budget.cost(escaped(piece) + "\n") <= room and len(piece) > len(place) + LEAST_CHARS:
                yield text, piece
            return
        room -= cost
        yield text, piece
