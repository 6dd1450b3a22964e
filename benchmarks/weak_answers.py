"""How often a question that the notes do not answer is answered as if they did, and what saying so costs.

Takes sets as `retrieval.py` does, in a folder. Each workspace is asked its own questions, and foreign ones in
a language that its notes have: those of other sets or conversations; or only half of its notes are indexed,
and those of the other half are foreign. (A question to one person of MemoryBank mostly fits the others as
well, so these are none.) The vault that `names_and_dates.py` makes is asked LoCoMo's. "Yesterday" is counted
from the day after the last dated note.

Prints a table in Markdown: how many of the right answers, those with evidence among the first ten, are called
weak, and how many foreign questions are not. With `--fit`, prints as well the threshold under which just
0.5 % of the right answers are, all sets together, for some shares of the lead.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from statistics import median

import names_and_dates
from composite import ADVERSARIAL, DEPTH, RECALL, Question, measures, questions_of
from federation import STAYS, Split, lay_out

from composable_memory import open_memory
from composable_memory.interfaces import Capability
from composable_memory.query.calibration import LEAD_SHARE, STRONG, STRONG_HYBRID
from composable_memory.query.filters import day_in_path
from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.routing import ComposableBackendEntry

LOSS = 0.005
LEAD_SHARES = [0.0, 0.15, LEAD_SHARE, 0.5]
READ = 24
FOREIGN: Mapping[str, Sequence[str]] = {
    "cranfield": ["locomo", "xquad-en"],
    "jsquad": ["other half"],
    "locomo": ["other conversations", "xquad-en"],
    "memorybank-cn": ["xquad-zh"],
    "memorybank-en": ["locomo", "xquad-en"],
    "xquad-en": ["other half", "cranfield", "locomo"],
    "xquad-es": ["other half"],
    "xquad-zh": ["other half", "memorybank-cn"],
}
VAULT = "vault"
WAYS: Mapping[str, Mapping[str, object]] = {
    "default": {"builtin": {"query": {"rerank": "off"}}},
    "keywords": {"embedding": {"provider": "none"}, "builtin": {"query": {"rerank": "off"}}},
    "rerank": {"builtin": {"query": {"rerank": "auto"}}},
    "two halves": {"builtin": {"query": {"rerank": "off"}}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Notes, the time at which they are asked, and what: pairs of where a question is from, None for here."""

    name: str
    folder: Path
    now: datetime
    asked: Sequence[tuple[str | None, Question]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came of one question; `lists` are the scores of each backend, best first."""

    name: str
    origin: str | None
    is_right: bool
    is_weak: bool
    is_exact: bool
    lists: Sequence[Sequence[float]]

    def strength(self, share: float) -> float:
        """Return the strength of the answer under another share of the lead than the product's."""
        if self.is_exact:
            return 2.0
        each = [one[0] + share * (one[0] - median(one[1:] or [0.0])) for one in self.lists if one]
        return max(each, default=0.0)


def workspaces(data: Path, parts: Path, count: int) -> Iterator[Workspace]:
    """Yield every workspace with about `count` questions of each kind for each set."""
    draw = random.Random(1)
    own = {name: _own(data / name) for name in FOREIGN if (data / name).is_dir()}
    for name, by_folder in own.items():
        each = max(12, count // len(by_folder))
        for folder, real in by_folder.items():
            asked: list[tuple[str | None, Question]] = []
            place = folder
            if "other half" in FOREIGN[name]:
                place, _ = lay_out(folder, parts / name, Split(first="", second="", share=0.5, seed=1))
                kept = {path.relative_to(place).as_posix() for path in place.rglob("*.md")}
                asked += [("other half", one) for one in _some(_of(real, kept, False), each, draw)]
                real = _of(real, kept, True)
            for origin in FOREIGN[name]:
                found = [
                    one
                    for ws, some in own.get(name if origin == "other conversations" else origin, {}).items()
                    for one in (some if ws != folder else ())
                ]
                asked += [(origin, one) for one in _some(found, each, draw)]
            asked += [(None, one) for one in _some(real, each, draw)]
            yield Workspace(name=name, folder=place, now=_now(place), asked=asked)
    others = [one for some in own.get("locomo", {}).values() for one in some]
    yield _vault(parts / VAULT, [("locomo", one) for one in _some(others, count, draw)])


def _own(folder: Path) -> dict[Path, list[Question]]:
    convs = sorted(path for path in folder.iterdir() if path.is_dir())
    return {
        one: [q for q in questions_of(folder, one.name, limit=None) if q.category != ADVERSARIAL]
        for one in convs
    }


def _of(questions: Sequence[Question], paths: set[str], are: bool) -> list[Question]:
    return [one for one in questions if any(path in paths for path, _ in one.evidence) is are]


def _some(questions: Sequence[Question], count: int, draw: random.Random) -> list[Question]:
    return draw.sample(questions, min(count, len(questions)))


def _now(folder: Path) -> datetime:
    days = [day for path in folder.rglob("*.md") if (day := day_in_path(path.relative_to(folder).as_posix()))]
    if not days:
        return datetime(2024, 6, 1, tzinfo=UTC)
    return datetime.combine(max(days) + timedelta(days=1), time(12), UTC)


def _vault(folder: Path, foreign: Sequence[tuple[str | None, Question]]) -> Workspace:
    notes = names_and_dates.make_notes()
    for path, text in notes.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    real = [
        Question(
            text=one.text, category=one.kind, evidence=frozenset((path, 0) for path in one.paths), ideal=1.0
        )
        for one in names_and_dates.make_questions(notes)
    ]
    asked = [*((None, one) for one in real), *foreign]
    return Workspace(name=VAULT, folder=folder, now=names_and_dates.NOW, asked=asked)


@asynccontextmanager
async def opened(way: str, folder: Path, state: Path) -> AsyncIterator[ComposableMemoryManager]:
    """Yield the composite of a way, over all notes or over two memories with half of them each."""
    async with AsyncExitStack() as stack:
        places = (folder,)
        if way == "two halves":
            places = lay_out(folder, state / "notes", Split(first="", second="", share=0.5, seed=2))
        entries = []
        for number, place in enumerate(places):
            config = {"ops_log": {"enabled": False}, **WAYS[way]}
            others = [one.name for one in place.iterdir() if one.is_dir() and one.name != "memory"]
            config["builtin"] = {**WAYS[way]["builtin"], "sync": STAYS, "extra_paths": others}
            opening = open_memory(
                place, state / f"{number}", {"memory": config}, environ={}, long_lived=False
            )
            memory = await stack.enter_async_context(opening)
            report = await memory.sync()
            assert not report.problems, report.problems
            (backend,) = memory.manager.backends_with(Capability.ANSWER).values()
            entries.append(ComposableBackendEntry(id=f"{number}", manager=backend))
        yield ComposableMemoryManager(entries, intent_parser=parse_query_intent)


async def ask(way: str, workspace: Workspace) -> list[Asked]:
    """Ask a workspace everything."""
    rows = []
    with tempfile.TemporaryDirectory() as state:
        async with opened(way, workspace.folder, Path(state)) as composite:
            for origin, question in workspace.asked:
                response = await composite.query(question.text, max_results=READ, now=workspace.now)
                assert not any(one.error for one in response.answers), response.degraded
                found = measures(response.results[:DEPTH], question)
                lists = [[one.score for one in answer.results[:READ]] for answer in response.answers]
                rows.append(
                    Asked(
                        name=workspace.name,
                        origin=origin,
                        is_right=origin is None and found[RECALL] > 0.0,
                        is_weak=response.weak or not response.results,
                        is_exact=any(one.exact for answer in response.answers for one in answer.results),
                        lists=lists,
                    )
                )
    return rows


def table(way: str, rows: Sequence[Asked]) -> Iterable[str]:
    """Yield a line for each set, and for all of them."""
    names = sorted({one.name for one in rows} - {VAULT})
    for name in [*names, VAULT]:
        of_set = [one for one in rows if one.name == name]
        foreign = {one.origin: [other for other in of_set if other.origin == one.origin] for one in of_set}
        told = ", ".join(f"{origin} {_answered(some):.0%}" for origin, some in foreign.items() if origin)
        yield f"| {way} | {name} | {_lost(of_set)} | {told} |"
    of_sets = [one for one in rows if one.name != VAULT]
    strange = [one for one in of_sets if one.origin is not None]
    yield f"| {way} | **all sets** | {_lost(of_sets)} | {_answered(strange):.0%} of {len(strange):,} |"


def _lost(rows: Sequence[Asked]) -> str:
    right = [one for one in rows if one.is_right]
    lost = sum(one.is_weak for one in right)
    return f"{lost} of {len(right):,} ({lost / max(1, len(right)):.1%})"


def _answered(rows: Sequence[Asked]) -> float:
    return sum(not one.is_weak for one in rows) / max(1, len(rows))


def fit(way: str, rows: Sequence[Asked]) -> Iterable[str]:
    """Yield for some shares of the lead the threshold, and how many foreign questions it answers."""
    of_sets = [one for one in rows if one.name != VAULT]
    for share in LEAD_SHARES:
        right = sorted(one.strength(share) for one in of_sets if one.is_right)
        threshold = right[int(LOSS * len(right))]
        foreign = [one for one in rows if one.origin is not None]
        answered = [one.name for one in foreign if one.strength(share) >= threshold]
        in_vault = answered.count(VAULT) / max(1, sum(one.name == VAULT for one in foreign))
        in_sets = (len(answered) - answered.count(VAULT)) / max(1, sum(one.name != VAULT for one in foreign))
        yield f"| {way} | {share:g} | {threshold:.3f} | {in_sets:.1%} | {in_vault:.1%} |"


async def run(arguments: argparse.Namespace) -> None:
    """Ask in every way, and print what came of it."""
    with tempfile.TemporaryDirectory() as parts:
        spaces = [*workspaces(arguments.data, Path(parts), arguments.questions)]
        rows: dict[str, list[Asked]] = {way: [] for way in arguments.ways}
        for way, asked in rows.items():
            for number, workspace in enumerate(spaces):
                asked += await ask(way, workspace)
                print(f"{way}: {number + 1} of {len(spaces)} workspaces", file=sys.stderr)
            print(*table(way, asked), sep="\n", flush=True)
    if arguments.fit:
        print("\n| way | share of the lead | threshold | foreign answered | in the vault |")
        print("|---|---|---|---|---|")
        print(*(line for way, asked in rows.items() for line in fit(way, asked)), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder for each set")
    parser.add_argument("--questions", type=int, default=300, help="how many of each kind and set")
    parser.add_argument("--ways", nargs="*", choices=[*WAYS], default=[*WAYS], help="rerank needs its extra")
    parser.add_argument("--fit", action="store_true", help="also print thresholds to choose from")
    arguments = parser.parse_args()
    if arguments.fit:
        print(
            "| way | share of the lead | threshold | foreign answered | in the vault |\n|---|---|---|---|---|"
        )
    else:
        print(f"Weak below {STRONG_HYBRID:g}, by words alone {STRONG:g}, share of the lead {LEAD_SHARE:g}\n")
        print("| way | notes | right answers called weak | foreign questions answered |\n|---|---|---|---|")
    asyncio.run(run(arguments))


if __name__ == "__main__":
    main()
