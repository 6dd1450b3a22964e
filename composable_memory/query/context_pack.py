"""Packs the best results into one text within a budget of characters or tokens (pure).

Tokens are estimated without a tokenizer: about four characters of a script with spaces, one character of
Chinese, Japanese or Korean.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from composable_memory.citations import format_place
from composable_memory.errors import require_whole
from composable_memory.types import MemorySearchResult, SupportingFact
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_MAX_CHARS = 2000
SEPARATOR = "\n\n"
ELLIPSIS = "…"
SHORTEST_USEFUL = 40
"""A piece is cut to fit only if at least this many characters of it remain."""
VARIETY_SHARE = 0.5
"""A backend whose best result scores at least this share of the overall best score gets a place."""
CHARS_PER_TOKEN = 4
MOST_FACTS = 3
"""At most this many facts are listed below a passage."""

_WIDE = (
    "[\u1100-\u11ff\u2e80-\u303f\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)
_LAST_BREAK = Pattern(r"(?s).*(?:\s|[。、，！？；])")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackBudget:
    """How long a pack may be: at most `max_chars` characters, or at most `max_tokens` tokens.

    Raises:
        ValueError: both or neither are given, or the value is less than 1.
    """

    max_chars: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if (self.max_chars is None) == (self.max_tokens is None):
            raise ValueError("give a budget in characters or in tokens, not both")
        require_whole("max_chars", self.max_chars, optional=True)
        require_whole("max_tokens", self.max_tokens, optional=True)

    @classmethod
    def of(cls, max_chars: int | None = None, max_tokens: int | None = None) -> "PackBudget":
        """Return a budget of `max_tokens` tokens if given, else of `max_chars` characters."""
        if max_tokens is not None:
            return cls(max_tokens=max_tokens)
        return cls(max_chars=DEFAULT_MAX_CHARS if max_chars is None else max_chars)

    @property
    def room(self) -> int:
        """Return the budget in units of `cost`."""
        return (self.max_chars or 0) if self.max_tokens is None else self.max_tokens * CHARS_PER_TOKEN

    def cost(self, text: str) -> int:
        """Return how much of the room a text takes; costs add up."""
        return _quarter_tokens(text) if self.max_tokens is not None else len(text)

    def beginning(self, text: str, room: int) -> str:
        """Return the longest prefix of `text` that costs at most `room`."""
        if self.max_tokens is None:
            return text[: max(0, room)]
        end = 0
        while end < len(text) and (room := room - _quarter_tokens(text[end])) >= 0:
            end += 1
        return text[:end]


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a language model reads for `text`."""
    return -(-_quarter_tokens(text) // CHARS_PER_TOKEN)


def pack_results(
    results: Sequence[MemorySearchResult], budget: PackBudget | None = None
) -> tuple[str, tuple[MemorySearchResult, ...]]:
    """Return the pack and the results in it, in the order of `results`, best first.

    Each piece is `#n path:start-end (score 0.00)`, followed by the origin of a fact, and below it the snippet
    and the facts taken from it, with the time in which they hold. A piece that does not fit is cut between
    words. Every backend with a result of at least half the best score gets a piece, as long as there is room
    for a useful one.
    """
    budget = budget or PackBudget.of()
    reserved = _reserved(results, budget)
    pieces: list[str] = []
    packed: list[MemorySearchResult] = []
    room = budget.room
    for place, result in enumerate(results):
        kept_free = sum(cost for at, cost in reserved.items() if at > place)
        separator = SEPARATOR if pieces else ""
        head, text = separator + _heading(len(pieces) + 1, result), _text(result)
        fits = budget.cost(head + text) <= room - kept_free
        if not fits and kept_free and place not in reserved:
            continue
        shortest = SHORTEST_USEFUL if pieces else 1
        piece = head + text if fits else _cut(head, text, room - kept_free, budget, shortest)
        if piece:
            pieces.append(piece)
            packed.append(result)
            room -= budget.cost(piece)
        if not fits and not kept_free:
            break
    return "".join(pieces), tuple(packed)


def timed_facts(result: MemorySearchResult) -> list[str]:
    """Return up to `MOST_FACTS` facts of a result whose times are known and not in the snippet."""
    untold = (fact for fact in result.facts if fact.validity and not _mentions_times(result.snippet, fact))
    snippet = result.snippet.strip()
    told = (fact.validity if fact.text == snippet else str(fact) for fact in untold)
    return [" ".join(one.split()) for one in islice(told, MOST_FACTS)]


def _mentions_times(snippet: str, fact: SupportingFact) -> bool:
    times = [moment.date().isoformat() for moment in (fact.valid_from, fact.valid_to) if moment]
    return all(time in snippet for time in times or [fact.validity])


def _text(result: MemorySearchResult) -> str:
    return "\n".join([result.snippet.strip(), *(f"- {one}" for one in timed_facts(result))])


def _reserved(results: Sequence[MemorySearchResult], budget: PackBudget) -> Mapping[int, int]:
    """Return the index of each backend's best result, with the room to keep free for it."""
    enough = VARIETY_SHARE * max((result.score for result in results), default=0.0)
    firsts: dict[str | None, int] = {}
    for place, result in enumerate(results):
        if result.score >= enough:
            firsts.setdefault(result.source_backend, place)
    share = budget.room // (2 * max(1, len(firsts)))
    whole = {at: _heading(at + 1, results[at]) + _text(results[at]) for at in firsts.values()}
    return {at: min(share, budget.cost(SEPARATOR + piece)) for at, piece in whole.items()}


def _heading(number: int, result: MemorySearchResult) -> str:
    origin = f" from {result.origin.shown}" if result.origin else ""
    heading = f"#{number} {format_place(result)} (score {result.score:.2f}){origin}"
    return " ".join(heading.splitlines()) + "\n"  # a line break in a file name could fake another piece


def _cut(head: str, text: str, room: int, budget: PackBudget, shortest: int) -> str:
    """Return a piece cut between words; empty if fewer than `shortest` characters of text would remain."""
    begun = budget.beginning(text, room - budget.cost(head + ELLIPSIS))
    if len(begun) < shortest:
        return ""
    ending = _LAST_BREAK.match(text, 0, len(begun) + 1)
    if ending is not None and ending.end() > len(begun) // 2:
        begun = begun[: ending.end()]
    return head + begun.rstrip() + ELLIPSIS


def _quarter_tokens(text: str) -> int:
    return len(text) + (CHARS_PER_TOKEN - 1) * len(re.findall(_WIDE, text))
