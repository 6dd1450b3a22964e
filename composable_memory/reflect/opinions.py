"""Updates the confidence of an opinion by the lines that support and contradict it (pure).

The confidence moves in log-odds, day by day. Each supporting line of a day adds `STEP`, each contradicting
one subtracts it, and one day moves it by at most `DAY_LIMIT`: from 0.70 one line leads to 0.74 or 0.66, a
whole day to 0.78 or 0.61. So nothing jumps, with one exception: once contradictions exceed support by
`REPEATED` lines or more, counted from when they were last level, contradicting lines weigh `STRONG` times as
much, and so does the limit. The order of the lines within a day does not matter, more support never lowers a
confidence, and more contradiction never raises one.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import exp, log
from typing import NamedTuple

from composable_memory.recall.name_matching import folded
from composable_memory.recall.retained_notes import KnownLine
from composable_memory.reflect.entity_pages import derive_key
from composable_memory.reflect.report import Opinion

STEP = 0.2
DAY_LIMIT = 0.4
REPEATED = 3
STRONG = 3.0
LEAST, MOST = 0.02, 0.98
UNSTATED = 0.7
"""The confidence of an opinion that states none."""
SHARED = 0.6
"""Two sentences are about the same if they share this much of the words of the shorter one."""

_WORD = re.compile(r"\w+")
_NOT = re.compile(
    r"(?<!\w)(?:not|never|no longer|no more|cannot|without|nicht|nie|kein\w*|nunca|jamás|pas|jamais|ne)(?!\w)"
    r"|n['’]t(?!\w)"
)
_AGAINST = {"dislikes": "likes", "dislike": "like", "hates": "likes", "hate": "like", "avoids": "prefers"}
_PLAIN = frozenset(
    "a an the is are was were be been does do did has have had to of in on at for with and or that it its he"
    " she they his her their any more longer".split()
)
_ENDING = re.compile(r"(?<=[^\W\d]{2})(?:ing|ed|es|s|e)$")
"""Verb endings that change under negation: prefers, does not prefer."""
_EVIDENCE_TAG = re.compile(r"(supports|contradicts)/([A-Za-z0-9-]+)")


class Day(NamedTuple):
    """The number of lines of a day that support an opinion, and that contradict it."""

    supporting: int
    contradicting: int


def evolve_confidence(stated: float, days: Sequence[Day]) -> float:
    """Return the confidence after the evidence of some days, in order, starting from the stated one."""
    if not days:
        return stated
    odds, excess = _log_odds(stated), 0
    for day in days:
        excess = max(0, excess + day.contradicting - day.supporting)
        weight = STRONG if excess >= REPEATED else 1.0
        move = STEP * (day.supporting - weight * day.contradicting)
        odds += max(-DAY_LIMIT * weight, min(DAY_LIMIT, move))
        odds = max(_log_odds(LEAST), min(_log_odds(MOST), odds))
    return 1 / (1 + exp(-odds))


def opinions_of(lines: Iterable[KnownLine]) -> list[Opinion]:
    """Return the opinions in retained lines, oldest first, with the lines that moved them.

    A line is evidence if it is about one of the same entities in much the same words, or names a line by a
    tag: `#supports/m4k29x` or `#contradicts/m4k29x`.
    """
    ordered = sorted(lines, key=lambda one: (one.day, -(one.line.confidence or 0), one.line.text, one.source))
    said = [_ComparedLine(line) for line in ordered]
    groups: list[_Group] = []
    about: dict[str, list[_Group]] = {}
    for one in said:
        near = {id(group): group for name in one.entities for group in about.get(name, ())}
        taken = [group.add_if_about(one) for group in near.values()]
        if one.line.line.type == "opinion" and not any(taken):
            groups.append(_Group(one))
            for name in one.entities:
                about.setdefault(name, []).append(groups[-1])
    by_key = {key_of(group.first.line): group for group in groups}
    for one in said:
        for kind, key in _EVIDENCE_TAG.findall(" ".join(one.line.line.tags)):
            if key in by_key:
                by_key[key].add(one, is_for=kind == "supports")
    return [group.opinion() for group in groups]


def key_of(line: KnownLine) -> str:
    """Return the id of a line, or else a key derived from its content."""
    return line.line.id or derive_key("h", line.line.type, *line.line.entities, line.line.text)


class _ComparedLine:
    """A retained line with what it is compared by."""

    def __init__(self, line: KnownLine) -> None:
        self.line = line
        text = folded(line.line.text)
        self.entities = frozenset(map(folded, line.line.entities)) or frozenset({""})
        names = {word for name in self.entities for word in _WORD.findall(name)}
        words = [word for word in _WORD.findall(_NOT.sub(" ", text)) if word not in _PLAIN]
        against = len(_NOT.findall(text)) + sum(word in _AGAINST for word in words)
        self.is_negative = against % 2 == 1
        self.words = {_ENDING.sub("", _AGAINST.get(word, word)) for word in words if word not in names}
        self.numbers = {word for word in self.words if word.isdigit()}

    def speaks_of(self, other: "_ComparedLine") -> bool:
        """Return whether one line states the same as the other, or the contrary."""
        shared, shorter = len(self.words & other.words), min(len(self.words), len(other.words))
        return self.numbers == other.numbers and shorter > 0 and shared >= SHARED * shorter


class _Group:
    """An opinion and its evidence so far."""

    def __init__(self, first: _ComparedLine) -> None:
        self.first = first
        self._also: list[KnownLine] = []
        self._evidence: dict[str, tuple[KnownLine, bool]] = {}

    def add_if_about(self, one: _ComparedLine) -> bool:
        """Add a line if it is about the same; return whether it is."""
        is_same = self.first.speaks_of(one)
        if is_same:
            self.add(one, is_for=one.is_negative == self.first.is_negative)
        return is_same

    def add(self, one: _ComparedLine, *, is_for: bool) -> None:
        """Add a line; support on the opinion's first day counts as part of the original statement."""
        is_first_day = one.line.day == self.first.line.day and one.line.line.type == "opinion"
        if is_for and is_first_day:
            self._also.append(one.line)
        elif one.line.source != self.first.line.source:
            self._evidence[one.line.source] = (one.line, is_for)

    def opinion(self) -> Opinion:
        """Return the opinion with the confidence that the evidence leads to."""
        line = self.first.line
        told = [one.line.confidence for one in (line, *self._also) if one.line.confidence is not None]
        stated = sum(told) / len(told) if told else UNSTATED
        evidence = sorted(self._evidence.values(), key=lambda one: one[0].day)
        days = [
            Day(sum(one[1] for one in of_day), sum(not one[1] for one in of_day))
            for of_day in ([*group] for _, group in groupby(evidence, key=lambda one: one[0].day))
        ]
        return Opinion(
            id=key_of(line),
            statement=line.line.text,
            entities=line.line.entities,
            stated=stated,
            confidence=evolve_confidence(stated, days),
            updated=max([line.day, *(one[0].day for one in evidence)]),
            supporting=tuple(_named(one) for one, is_for in evidence if is_for),
            contradicting=tuple(_named(one) for one, is_for in evidence if not is_for),
        )


def _named(line: KnownLine) -> str:
    return f"^{line.line.id}" if line.line.id else line.source


def _log_odds(confidence: float) -> float:
    bounded = max(LEAST, min(MOST, confidence))
    return log(bounded / (1 - bounded))
