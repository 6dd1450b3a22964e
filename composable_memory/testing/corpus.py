"""The small corpus of the contracts: notes, questions about them, and texts that break careless code."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from composable_memory_ops_logs.quick_dataclass import dataclass

_LOG = "\n".join(f"Gauge {day:02}: wind from the west, tide {100 + day} cm, no damage." for day in range(60))

SEED_NOTES: Mapping[str, str] = MappingProxyType(
    {
        "MEMORY.md": (
            "# Lasting notes\n\n"
            "The harbour office answers on extension 4417.\n"
            "Spare keys hang behind the boiler.\n\n"
            "## Preferences\n\n"
            "Coffee without sugar, window handles, trains rather than planes.\n"
        ),
        "memory/2026-03-02.md": (
            "# Monday\n\n"
            "Ferry timetable: the first crossing to Lindholm leaves at 06:40.\n\n"
            "The dentist moved the appointment to Thursday.\n"
        ),
        "memory/2026-03-05.md": (
            "# Thursday\n\n"
            "Replaced the pump relay; part number QX-7781-B fits.\n\n"
            "Naïve façade sketches sent to Zoë, she liked the third one.\n"
        ),
        "memory/2026-03-09.md": "# Monday\n\nThe ferry was late, the harbour fog did not lift before noon.\n",
        "memory/projects/greenhouse.md": (
            "# Greenhouse\n\n"
            "Tomatoes need shade cloth in July.\n\n"
            "The irrigation timer drifts by two minutes a week.\n"
        ),
        "memory/projects/boat.md": "# Boat\n\nThe hull is painted green; the pump under the deck leaks.\n",
        "memory/people.md": "# People\n\nIngrid keeps the keys of the boat and drinks coffee with milk.\n",
        "memory/gauge-log.md": f"# Gauge log\n\n{_LOG}\n",
        "memory/旅行.md": "# 旅行\n\n我们决定秋天去京都看红叶。\n\n酒店的预订号码是八八四二。\n",
    }
)
"""Notes by path, with things that trip up a search: codes, accents, dates, Chinese, and one long text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedQuestion:
    """A query, and words in a snippet of one of its three best results."""

    query: str
    answer: str


SEED_QUESTIONS: Sequence[SeedQuestion] = (
    SeedQuestion(query="ferry timetable Lindholm crossing", answer="06:40"),
    SeedQuestion(query="harbour office extension", answer="4417"),
    SeedQuestion(query="QX-7781-B", answer="pump relay"),
    SeedQuestion(query="irrigation timer", answer="two minutes"),
    SeedQuestion(query="naïve façade sketches", answer="Zoë"),
    SeedQuestion(query="京都红叶", answer="秋天"),
)

HOSTILE_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "one quote": '"',
        "open quote": 'say "ferry',
        "star": "*",
        "operator at the end": "ferry AND",
        "operators only": "NOT OR AND",
        "call of an operator": "NEAR(",
        "column filter": "text:ferry - path:*",
        "brackets": ")(}{][",
        "apostrophes": "'; DROP TABLE chunks; --",
        "percent and underscore": "%_%",
        "caret and plus": "^ferry + boat",
        "backslash": "\\",
        "emoji": "🚢 ⛴️ 👩‍👩‍👧",
        "Chinese": "酒店的预订号码",
        "Japanese": "フェリーの時刻表は何時ですか",
        "Korean": "항구 사무실 번호",
        "Arabic": "متى تغادر العبارة الأولى",
        "combining marks": "Zoe\u0308 fac\u0327ade",
        "NUL": "ferry\0boat",
        "control characters": "ferry\x1b[31m\r\n\tboat\x7f",
        "lone surrogate": "ferry \ud800 boat",
        "zero width space": "\u200b",
        "right to left override": "\u202eyrref",
        "one letter": "a",
        "numbers": "06:40 4417 1e309",
        "ten thousand words": "ferry harbour boat tide " * 2500,
        "one long word": "x" * 50_000,
    }
)
"""Texts that must not break anything, by what is wrong with them."""

HOSTILE_PATHS: Sequence[str] = (
    "",
    ".",
    "..",
    "../outside.md",
    "memory/../../outside.md",
    "memory/../../../../../../../../etc/passwd",
    "/etc/passwd",
    "/etc/hosts.md",
    "~/notes.md",
    "..\\outside.md",
    "C:\\notes.md",
    "\\\\server\\share\\notes.md",
    "memory/note.md\0.txt",
    "memory/note.csv",
    "memory",
    "file:///etc/passwd",
)
"""Paths that are not notes and must be refused."""
