"""Finds sentences worth remembering in what a user says, by rules in five languages.

Only clear cases: preferences, who somebody is, decisions, standing instructions, explicit requests to
remember. Questions, guesses, code, quotes, memory content given to an agent, and attempts to steer the agent
are skipped.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from composable_memory.data_files import tables
from composable_memory.memory_fence import own_words
from composable_memory.retain.retained_lines import MemoryType
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.retain.remember import Remembered
    from composable_memory.runtime.memory import Memory

MOST_PER_TURN = 3
LEAST_CHARS = 4
MOST_EMOJI = 3

_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(r"^[ \t]*(?:>|at |File \"|\|).*$|^Traceback.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?](?!\s|\Z)[^.!?。！？\n]*)*[.!?。！？]*")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_TABLES = tables(__package__, "capture.toml")


def _any(name: str) -> re.Pattern[str]:
    """Return a pattern that matches what any pattern in a table does."""
    text = "|".join(_TABLES[name])
    return re.compile(re.sub(r"\{(KIN\w*)\}", lambda found: _TABLES["kin"][found[1]], text), re.IGNORECASE)


_INJECTION = _any("injection")
_UNSURE = _any("unsure")
_OPINION = _any("opinion")
_WORLD = _any("world")
_ORDER = _any("order")
_LEAD_IN = re.compile(
    r"^(?:please |bitte |por favor,? )?(?:remember|note|don't forget|merke? dir(?: bitte)?|denke? daran|"
    r"recuerda|apunta|ten en cuenta|no olvides)(?: that| que|,? dass)?[:,]? +|"
    "^请?(?:记住|记下)[，,：:] *|^(?:覚えておいてください|メモしてください)[、,：:] *",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A sentence worth remembering, and its type."""

    text: str
    type: MemoryType


def worth_remembering(message: str, *, max_chars: int = 500) -> list[Candidate]:
    """Return the sentences of a user's message that are worth remembering, at most three (pure).

    A message of more than `max_chars` characters counts as a document, not as something said, and has none.
    """
    own = own_words(message)
    if len(own) > max_chars or _INJECTION.search(own) or len(_EMOJI.findall(own)) > MOST_EMOJI:
        return []
    said = _QUOTED.sub("\n", _CODE.sub("\n", own))
    found = (_candidate(" ".join(sentence.split())) for sentence in _SENTENCE.findall(said))
    return [one for one in found if one is not None][:MOST_PER_TURN]


def _candidate(sentence: str) -> Candidate | None:
    least = LEAST_CHARS if _CJK.search(sentence) else 3 * LEAST_CHARS
    if len(sentence) < least or _UNSURE.search(sentence):
        return None
    is_order = _ORDER.search(sentence) is not None
    if _OPINION.search(sentence):
        kind: MemoryType = "opinion"
    elif is_order or _WORLD.search(sentence):
        kind = "world"
    else:
        return None
    text = _LEAD_IN.sub("", sentence)
    return Candidate(text=text[:1].upper() + text[1:], type=kind)


async def capture_turn(
    memory: "Memory", messages: Iterable[str], *, session_key: str | None = None, max_chars: int = 500
) -> "Sequence[Remembered]":
    """Remember what a user said in a turn, at most three sentences, unless it is known or was forgotten.

    Raises:
        NoteNotWritten: the day's note cannot be written.
    """
    found = [one for message in messages for one in worth_remembering(message, max_chars=max_chars)]
    new = [one for one in found if not await asyncio.to_thread(memory.forgotten.holds, one.text)]
    unique = list({one.text: one for one in new}.values())[:MOST_PER_TURN]
    return [await memory.remember(one.text, type=one.type, session_key=session_key) for one in unique]
