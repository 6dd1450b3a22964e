"""What a graph of facts adds to questions about a time: who, where and which port, then and now.

Writes diaries of its own, in which people move and change jobs and services change ports. Each diary is
indexed by the builtin memory and its facts go into a private graph, without a language model. Asks for what
holds now and for what held in a month, as of a day and in a season, and, to see what that costs, for things
that happened once. A result is right if it shows, or was taken from, the line that said what held at that
time. Prints a table in Markdown: hit@1 of the notes alone and of both memories at two pairs of weights, with
the paired difference and its 95 % bootstrap interval; for the plain questions, nDCG@10.
"""

import argparse
import asyncio
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np

try:
    from benchmarks.composite import METRICS, Outcome, Question, ingest, interval, measures
except ModuleNotFoundError:  # run as a script
    from composite import METRICS, Outcome, Question, ingest, interval, measures  # type: ignore[no-redef]

from composable_memory import open_memory

NOW = datetime(2026, 6, 20, 12, tzinfo=UTC)
FIRST_DAY = date(2025, 1, 6)
DAYS = 520
WAYS: Mapping[str, tuple[float, float] | None] = {
    "notes": None,
    "both 1.0/1.0": (1.0, 1.0),
    "both 1.0/0.8": (1.0, 0.8),
}
"""The weights of notes and facts; None for the notes alone."""
HIT, NDCG = METRICS.index("hit@1"), METRICS.index("nDCG@10")

PEOPLE = """Ana Ruiz,Ben Ofori,Carla Neri,Dmitri Wolf,Elif Kaya,Farid Aziz,Greta Lind,Hugo Blanc,Ines Prado,
Jonas Weber,Kaori Mori,Lena Fuchs,Marek Nowak,Nadia Haddad,Omar Diallo,Petra Vogel"""
CITIES = "Lisbon,Rome,Oslo,Vienna,Porto,Ghent,Turin,Malmo,Krakow,Leeds,Bergen,Split,Nantes,Graz,Cork,Bilbao"
FIRMS = """Kestrel Labs,Northwind,Halden Press,Blue Anchor,Orchard Bank,Tidewater,Solvang,Ironbridge,Quillon,
Marble Arch,Fernhill,Larkspur"""
SERVICES = "billing,search,ledger,courier,inventory,gateway,mailer,reports,scheduler,archive"
EVENTS = (
    "{person} cooked {dish} for the neighbours.",
    "{person} lost the {thing} on the ferry.",
    "{person} repaired the {thing} with tape.",
    "Went with {person} to see the {place}.",
)
DISHES = """lentil soup,mushroom risotto,plum cake,fish pie,onion tart,bean stew,pear crumble,rice salad,
oat biscuits,leek quiche,carrot curry,apple strudel,corn chowder,egg noodles,barley porridge,potato gratin"""
THINGS = """green umbrella,camera strap,bicycle pump,silver ring,reading lamp,tea kettle,red scarf,
garden hose,brass key,folding chair,wool blanket,water filter,radio antenna,wall clock,
paint brush,rope ladder"""
PLACES = """lighthouse,clock museum,botanical garden,old mill,observatory,salt mine,harbour tower,
paper factory,tram depot,glass house,sculpture park,stone bridge,bell foundry,chalk cliffs,
ferry pier,puppet theatre"""
NAMES = (PEOPLE, CITIES, FIRMS, SERVICES, DISHES, THINGS, PLACES)
FILLERS = (
    "Slept badly, the street was loud.", "Rain all morning; read on the sofa.", "Paid the electricity bill.",
    "Long call with the landlord about the heating.", "The market had the first strawberries.",
    "Watered the plants and cleaned the windows.", "Fixed two failing tests before lunch.",
)  # fmt: skip
MONTHS = "January,February,March,April,May,June,July,August,September,October,November,December".split(",")
SEASONS = {"spring": 3, "summer": 6, "autumn": 9}


@dataclass(frozen=True, slots=True)
class Kind:
    """What changes with time: how it is said at first and when it changes, and how it is asked for."""

    first: Sequence[str]
    changed: Sequence[str]
    now: Sequence[str]
    then: str


HOME = Kind(
    ("{who} lives in {new}.", "{who} is living in {new}."),
    ("{who} moved to {new}.", "{who} moved from {old} to {new}.", "{who} now lives in {new}."),
    ("Where does {who} live?", "Where does {who} live now?"),
    "Where did {who} live {when}?",
)
JOB = Kind(
    ("{who} works at {new}.", "{who} is working for {new}."),
    ("{who} now works at {new}.", "{who} left {old} and works at {new} now.", "{who} started at {new}."),
    ("Where does {who} work?", "Which company does {who} work for now?"),
    "Where did {who} work {when}?",
)
PORT = Kind(
    ("The {who} service listens on port {new}.", "The {who} service runs on port {new}."),
    (
        "The {who} service now listens on port {new}.",
        "The {who} service moved from port {old} to port {new}.",
    ),
    ("Which port does the {who} service listen on?", "Which port does the {who} service use now?"),
    "Which port did the {who} service listen on {when}?",
)


@dataclass(slots=True)
class Diary:
    """Lines by day, and the questions with the line that answers each."""

    rng: random.Random
    days: dict[date, list[str]] = field(default_factory=dict)
    asked: list[tuple[str, str, tuple[date, str]]] = field(default_factory=list)

    def tell(self, day: date, line: str) -> tuple[date, str]:
        self.days.setdefault(day, []).append(line)
        return day, line

    def timeline(self, kind: Kind, who: str, values: Sequence[str]) -> None:
        """Tell of three stretches, and ask for now, for a month, as of a day, and for a season."""
        gap = DAYS // len(values)
        starts = [
            FIRST_DAY + timedelta(days=at * gap + self.rng.randrange(gap // 3)) for at in range(len(values))
        ]
        told: list[tuple[date, str]] = []
        for at, (day, new) in enumerate(zip(starts, values, strict=True)):
            form = self.rng.choice(kind.changed if at else kind.first)
            told.append(self.tell(day, form.format(who=who, new=new, old=values[at - 1])))
        for form in kind.now:
            self.asked.append(("now", form.format(who=who), told[-1]))
        for at, category, when in self._times(starts):
            self.asked.append((category, kind.then.format(who=who, when=when), told[at]))

    def _times(self, starts: Sequence[date]) -> Iterator[tuple[int, str, str]]:
        """Yield which stretch a time lies in, wholly, how it is asked for, and how it is said."""
        ends = [*starts[1:], NOW.date()]
        at = self.rng.randrange(len(starts) - 1)
        middle = starts[at] + (ends[at] - starts[at]) / 2
        yield at, "month", f"in {MONTHS[middle.month - 1]} {middle.year}"
        at = self.rng.randrange(len(starts) - 1)
        day = starts[at] + timedelta(days=self.rng.randrange(20, (ends[at] - starts[at]).days - 20))
        yield at, "as of", f"as of {day.isoformat()}"
        for at in range(len(starts) - 1):
            for season, month in SEASONS.items():
                for year in (2025, 2026):
                    begin = date(year, month, 1)
                    if starts[at] < begin and begin + timedelta(days=95) < ends[at]:
                        yield at, "season", f"in {season} {year}"
                        return

    def event(self, person: str, dish: str, thing: str, place: str) -> None:
        """Tell of something that happened once, and ask for it."""
        form = self.rng.choice(EVENTS)
        line = form.format(person=person, dish=dish, thing=thing, place=place)
        told = self.tell(FIRST_DAY + timedelta(days=self.rng.randrange(DAYS)), line)
        about = {
            EVENTS[0]: f"Who cooked {dish}?",
            EVENTS[1]: f"Where did {person} lose the {thing}?",
            EVENTS[2]: f"How was the {thing} repaired?",
            EVENTS[3]: f"With whom did I see the {place}?",
        }
        self.asked.append(("plain", about[form], told))

    def write(self, folder: Path) -> list[Question]:
        """Write a note a day, and return the questions."""
        for offset in range(0, DAYS, 4):
            self.tell(FIRST_DAY + timedelta(days=offset), self.rng.choice(FILLERS))
        memory = folder / "memory"
        memory.mkdir()
        for day, lines in self.days.items():
            self.rng.shuffle(lines)
            text = "\n".join([f"# {day.isoformat()}", "", *(f"- {line}" for line in lines), ""])
            (memory / f"{day.isoformat()}.md").write_text(text, encoding="utf-8")
        return [self._question(*one) for one in self.asked]

    def _question(self, category: str, text: str, told: tuple[date, str]) -> Question:
        day, line = told
        place = (f"memory/{day.isoformat()}.md", self.days[day].index(line) + 3)
        return Question(text=text, category=category, evidence=frozenset({place}), ideal=1.0)


def names_in(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def diary(seed: int) -> Diary:
    """Return a diary of fifteen things that change and sixteen that happen once."""
    made = Diary(random.Random(seed))
    people, cities, firms, services, dishes, things, places = (
        made.rng.sample(names, len(names)) for names in map(names_in, NAMES)
    )
    for number in range(5):
        made.timeline(HOME, people[number], cities[number * 3 : number * 3 + 3])
        made.timeline(JOB, people[number + 3], [firms[(number * 2 + step) % len(firms)] for step in range(3)])
        made.timeline(PORT, services[number], [str(made.rng.randrange(3000, 9999)) for _ in range(3)])
    for person, dish, thing, place in zip(people, dishes, things, places, strict=True):
        made.event(person, dish, thing, place)
    return made


async def try_out(
    seed: int, rows: dict[str, list[list[float]]], categories: list[str], *, verbose: bool
) -> None:
    with tempfile.TemporaryDirectory() as workspace, tempfile.TemporaryDirectory() as state:
        folder = Path(workspace)
        questions = diary(seed).write(folder)
        for way, weights in WAYS.items():
            notes, facts = weights or (1.0, 1.0)
            config = {
                "graphiti": {"enabled": True, "weight": facts},
                "builtin": {"sync": {"watch": False}, "weight": notes},
            }
            async with open_memory(folder, state, config, long_lived=False) as memory:
                if way == "notes":
                    await memory.sync()
                    await ingest(memory, folder, Outcome())
                    categories += [one.category for one in questions]
                backends = ("builtin",) if weights is None else ("builtin", "graphiti")
                for question in questions:
                    response = await memory.query(question.text, max_results=10, backends=backends, now=NOW)
                    assert not any(answer.error for answer in response.answers), response.degraded
                    rows[way].append(measures(response.results, question))
                    if verbose and not rows[way][-1][HIT]:
                        first = response.results[0].snippet if response.results else "nothing"
                        print(
                            f"{way}: {question.text} ({question.evidence}) -> {' '.join(first.split())[:90]}"
                        )


def table(rows: Mapping[str, list[list[float]]], categories: Sequence[str]) -> Iterator[str]:
    kinds = np.array(categories)
    parts = {"temporal": kinds != "plain"} | {name: kinds == name for name in dict.fromkeys(categories)}
    base = np.array(rows["notes"])
    for part, chosen in parts.items():
        column = NDCG if part == "plain" else HIT
        for way, values in rows.items():
            own = np.array(values)[chosen][:, column]
            more = own - base[chosen][:, column]
            told = "" if way == "notes" else f"{more.mean():+.3f} ({interval(more)})"
            yield f"| {part} | {chosen.sum()} | {way} | {METRICS[column]} {own.mean():.3f} | {told} |"


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--diaries", type=int, default=3, help="how many to write; each has about 90 questions"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print each question that was answered wrongly"
    )
    args = parser.parse_args()
    rows: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    categories: list[str] = []
    for seed in range(args.diaries):
        await try_out(seed, rows, categories, verbose=args.verbose)
    print("| Questions | Count | Asked | Mean | Against notes |\n|---|---|---|---|---|")
    print("\n".join(table(rows, categories)))


if __name__ == "__main__":
    asyncio.run(main())
