"""How well facts are read without a language model, against sentences whose facts are written beside them.

    python benchmarks/facts.py                       the half that is reported, by language and phenomenon
    python benchmarks/facts.py --half work --errors  the half to work with, and what went wrong in it
    python benchmarks/facts.py --phenomena message message_nothing   messages as people write them
    python benchmarks/facts.py --extractor NAME      another extractor that is installed
    python benchmarks/facts.py --half fresh          notes and messages that no rule was made for
    python benchmarks/facts.py --fuzz 10000          sentences put together at random: what must never happen

Each file of `gold_facts/` has sentences in one language, each under the phenomenon that it shows:

    [2026-03-02] Lena no longer lives in Graz. => -Lena LIVES_IN Graz @..2026-03-02 ++ Graz

After `=>` stand the relations, `-` before one that ends and `?` before one that may be missing, `@` its time
(the end is the first day on which it holds no more), `|` between spellings and `/` between types; after `++`
further entities. `I` is the owner. A line `>>` is said after the line above it, and `!!` names what it ends.
A hash of the sentence tells which half it is in; rules are made for the half to work with alone. Those in
`gold_facts/fresh` were written later, before the rules were changed once more, and are all reported.
"""

import argparse
import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal

from composable_memory.content import ExtractedRelation
from composable_memory.ingest.extract import Extraction, extract_from
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.ingest.records import graph_of
from composable_memory.interfaces import EntityExtractor
from composable_memory.registry import load_extractor
from composable_memory_adapters.graphiti.library.graph_records import FactRecord, fact_of
from composable_memory_adapters.graphiti.writing.superseding import record_for, with_ends

FOLDER = Path(__file__).parent / "gold_facts"
LANGUAGES = ("en", "de", "es", "zh")
OWNER = "owner"
DAY = timedelta(days=1)
LATER = datetime(2026, 11, 1, tzinfo=UTC)
SYMMETRIC = {"MARRIED_TO", "COLLEAGUE_OF", "FRIEND_OF"}
PHRASES = {"LIKES", "DISLIKES", "ALLERGIC_TO", "OWNS", "HAS_ROLE", "IS", "LISTENS_ON", "SPEAKS"}
"""Relations whose object need be no name."""

TYPES = {
    *PHRASES, "USES", "LEADS", "MANAGES", "KNOWS", "CREATED", "FOUNDED", "VISITED", "REPLACED", "WORKS_AT",
    "WORKS_ON", "LIVES_IN", "MEMBER_OF", "MARRIED_TO", "REPORTS_TO", "BORN_IN", "COMES_FROM", "GREW_UP_IN",
    "STUDIES_AT", "LOCATED_IN", "PLAYS_FOR", "VOLUNTEERS_AT", "MOVED_TO", "HAS_PORT", "HAS_STATUS",
}  # fmt: skip

_TYPE = re.compile(r"(?<= )(\S+)(?= )")
_DATE = re.compile(r"\[(\d{4}-\d{2}-\d{2})\] ")
_ARTICLE = re.compile(r"^(?:the|an?|his|her|der|die|das|eine?n?|el|la|los|las|una?) ", re.IGNORECASE)
_MONTHS = (
    "jan feb mar apr may jun jul aug sep oct nov dec january february march april june july august september"
    " october november december januar februar märz mai juni juli oktober dezember enero febrero marzo abril"
    " mayo junio julio agosto septiembre octubre noviembre diciembre"
)
_DAYS = (
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag"
    " samstag sonntag lunes martes miércoles jueves viernes sábado domingo today yesterday heute gestern hoy"
    " ayer 今天 昨天 去年"
)
_FORBIDDEN = re.compile(
    r"\d{4}(?:-\d{1,2}){0,2}|\d{1,2}[./]\d{1,2}(?:[./]\d{2,4})?|\d+月(?:\d+日)?|\d+年.*|(?:星期|周|礼拜)[一二三四五六日天]"
    r"|memory|speicher|\S+\.(?:md|py|yaml|xlsx|jsonl|json|txt)|memory/.*",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Gold:
    """A relation that a sentence states, in each of the ways in which it may be put."""

    ways: tuple[tuple[frozenset[str], frozenset[str], frozenset[str]], ...]
    ends: bool = False
    optional: bool = False
    start: datetime | None = None
    end: datetime | None = None
    any_time: bool = False

    def relates(self, relation: ExtractedRelation) -> bool:
        """Return whether a relation is between the same entities."""
        return any(
            (plain(relation.source) in source and plain(relation.target) in target)
            or (types & SYMMETRIC and plain(relation.source) in target and plain(relation.target) in source)
            for source, types, target in self.ways
        )

    def fits(self, relation: ExtractedRelation) -> bool:
        """Return whether a relation says the same, its time aside."""
        typed = any(relation.type in types for _, types, _ in self.ways)
        return typed and self.relates(relation) and self.ends == is_end(relation)

    def is_in_time(self, relation: ExtractedRelation, said: datetime) -> bool:
        """Return whether a relation that fits holds in the right time, give or take a day."""
        if self.any_time:
            return True
        start = None if relation.valid_from == said else relation.valid_from
        end = None if self.ends and self.end is None and relation.valid_to else relation.valid_to
        return _near(start, self.start) and _near(end, self.end)


@dataclass(kw_only=True)
class Item:
    """A sentence with what it states; `before` is what was said first, and `ended` what of that it ends."""

    language: str
    phenomenon: str
    text: str
    said: datetime
    gold: list[Gold]
    entities: list[frozenset[str]] = field(default_factory=list)
    allowed: list[frozenset[str]] = field(default_factory=list)
    before: "Item | None" = None
    ended: list[Gold] = field(default_factory=list)

    @property
    def half(self) -> Literal["work", "report"]:
        """Return which half a sentence is in; what is said together stays together."""
        key = (self.before.text if self.before else "") + self.text
        return "work" if sha256(key.encode()).digest()[0] % 2 else "report"


def is_end(relation: ExtractedRelation) -> bool:
    """Return whether a relation says that something ended which it does not say the beginning of."""
    return relation.valid_to is not None and relation.valid_from is None


def plain(label: str) -> str:
    """Return a label as it is compared: without case, article and honorific."""
    return _ARTICLE.sub("", " ".join(label.split()).casefold(), count=1).removeprefix("dr. ")


def _near(found: datetime | None, wanted: datetime | None) -> bool:
    return found == wanted or (found is not None and wanted is not None and abs(found - wanted) <= DAY)


# --- reading the sentences ----------------------------------------------------------------------------------


def read_items(languages: Iterable[str] = LANGUAGES, folder: Path = FOLDER) -> list[Item]:
    """Return all sentences; a first one of two is there by itself as well."""
    return [item for language in languages for item in _items(folder, language)]


def _items(folder: Path, language: str) -> Iterator[Item]:
    phenomenon, first = "", None
    for line in (folder / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        if re.fullmatch(r"# [a-z_]+", line):
            phenomenon = line[2:]
        elif line.startswith(">> "):
            item = _item(language, phenomenon, line[3:])
            item.before = first
            yield item
        elif line:
            first = _item(language, phenomenon, line)
            if not phenomenon.startswith("pair"):
                yield first


def _item(language: str, phenomenon: str, line: str) -> Item:
    line, _, ended = line.partition(" !! ")
    line, _, extra = line.partition(" ++ ")
    text, _, relations = line.partition(" => ")
    date = _DATE.match(text)
    said = datetime.fromisoformat(date[1] if date else "2026-03-02").replace(tzinfo=UTC)
    gold = [_gold(one) for one in relations.split("; ") if one]
    item = Item(
        language=language,
        phenomenon=phenomenon,
        text=_DATE.sub("", text, count=1).replace("\\n", "\n").strip(),
        said=said,
        gold=gold,
        ended=[_gold(one) for one in ended.split("; ") if one],
    )
    for one in gold:
        source, types, target = one.ways[0]
        (item.allowed if one.optional else item.entities).append(source)
        is_phrase = one.optional or types & PHRASES or all(label.islower() for label in target)
        (item.allowed if is_phrase else item.entities).append(target)
        item.allowed += [label for way in one.ways for label in (way[0], way[2])]
    for name in filter(None, extra.split(", ")):
        labels = frozenset(plain(label) for label in name.removeprefix("?").split("|"))
        (item.allowed if name.startswith("?") else item.entities).append(labels)
    item.entities = [labels for labels in dict.fromkeys(item.entities) if OWNER not in labels]
    # Whether what it ends is stated as a relation that ended is up to the rules: that it ends is what counts.
    item.allowed += [label for one in item.ended for way in one.ways for label in (way[0], way[2])]
    item.gold += [replace(one, ends=True, optional=True, any_time=True) for one in item.ended]
    return item


def _gold(words: str) -> Gold:
    flags = re.match(r"[-?]*", words)[0]  # type: ignore[index]  # it matches nothing as well
    words, _, time = words[len(flags) :].partition(" @")
    is_optional = time == "" and words.endswith(" ?")
    words, is_any_time, maybe = words.partition(" ?@")
    start, _, end = (time or maybe).partition("..")
    ways: list[list[str]] = []
    for part in words.split("|"):
        ways.append([part])
        if len(ways) > 1 and (_typed(part) is None or _typed("|".join(ways[-2])) is None):
            ways[-2:] = [[*ways[-2], part]]
    return Gold(
        ways=tuple(_way("|".join(way)) for way in ways),
        ends="-" in flags or bool(end and not start),
        optional="?" in flags or is_optional,
        start=_day(start),
        end=_day(end),
        any_time=bool(is_any_time) or words.endswith(" ?"),
    )


def _way(words: str) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    found = _typed(words)
    assert found is not None, words
    source, target = words[: found.start()], words[found.end() :]
    labels = [
        frozenset(OWNER if label.strip() == "I" else plain(label) for label in side.split("|"))
        for side in (source, target)
    ]
    return labels[0], frozenset(found[1].split("/")), labels[1]


def _typed(words: str) -> re.Match[str] | None:
    """Return where the type of a relation stands."""
    return next(
        (
            found
            for found in _TYPE.finditer(words)
            if all(one in TYPES or (one.endswith("_OF") and one != "_OF") for one in found[1].split("/"))
        ),
        None,
    )


def _day(text: str) -> datetime | None:
    return datetime.fromisoformat(text.strip()).replace(tzinfo=UTC) if text.strip() else None


# --- counting -----------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What was found of some sentences, and what should have been."""

    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    def share(self, part: str, whole: str) -> float:
        """Return one count as a share of another; 1 where there was nothing to count."""
        return self.counts[part] / self.counts[whole] if self.counts[whole] else 1.0

    def add(self, other: "Tally") -> None:
        """Count what another counted as well."""
        self.counts.update(other.counts)
        self.errors += other.errors


async def read_text(
    extractor: EntityExtractor, text: str, said: datetime
) -> list[tuple[Extraction, FactRecord]]:
    """Return what is read in a note, and the facts that a graph would keep of it."""
    path = f"memory/{said:%Y-%m-%d}.md"
    found: list[tuple[Extraction, FactRecord]] = []
    for content in contents_of(WrittenSource(text=text, written_at=said, path=path)):
        extraction = await extract_from(extractor, content)
        part = graph_of(content, extraction.entities, extraction.relations)
        names = {node.id: node.label for node in part.nodes}
        facts = [fact_of(edge, "group", names, said) for edge in part.edges]
        found += [(extraction, fact) for fact in facts] or [(extraction, _NOTHING)]
    return found


_NOTHING = FactRecord(uuid="", own_id="", source="", target="", relation="", fact="", created_at=LATER)


async def tally_of(item: Item, extractor: EntityExtractor) -> Tally:
    """Return what was found of a sentence, and of what was said before it."""
    read = await read_text(extractor, item.text, item.said)
    extractions = list({id(extraction): extraction for extraction, _ in read}.values())
    relations = [one for extraction in extractions for one in extraction.relations]
    labels = [entity.label for extraction in extractions for entity in extraction.entities]
    labels += [label for one in relations for label in (one.source, one.target)]
    tally = Tally()
    count_relations(tally, item, relations)
    count_entities(tally, item, list(dict.fromkeys(labels)))
    if item.before is not None:
        before = await read_text(extractor, item.before.text, item.before.said)
        _count_ends(tally, item, item.before, before, read)
    return tally


def count_relations(tally: Tally, item: Item, relations: Sequence[ExtractedRelation]) -> None:
    """Count which of the relations a sentence states, and which of those it states are among them."""
    counts, left = tally.counts, list(item.gold)
    wanted = [one for one in item.gold if not one.optional]
    counts["wanted"] += len(wanted)
    for relation in relations:
        counts["found"] += 1
        counts["empty"] += _is_empty(relation.valid_from, relation.valid_to)
        counts["loops"] += plain(relation.source) == plain(relation.target)
        counts["pairs"] += any(one.relates(relation) for one in item.gold)
        gold = next((one for one in left if one.fits(relation)), None)
        # The same said of a symmetric relation the other way round is no second fact, and no mistake either.
        again = gold is None and any(one.fits(relation) for one in item.gold)
        if gold is None and not again:
            _note(tally, item, f"wrong    {_told(relation)}")
            continue
        counts["right"] += 1
        if gold is not None:
            left.remove(gold)
            counts["recalled"] += not gold.optional
            counts["timed"] += 1
            counts["in_time"] += gold.is_in_time(relation, item.said)
            if not gold.is_in_time(relation, item.said):
                _note(tally, item, f"time     {_told(relation)}")
    for one in left:
        if not one.optional:
            source, types, target = one.ways[0]
            _note(tally, item, f"missed   {'-' * one.ends}{set(source)} {set(types)} {set(target)}")
    if not item.gold:
        counts["silent"] += 1
        counts["spoken"] += bool(relations)


def count_entities(tally: Tally, item: Item, labels: Sequence[str]) -> None:
    """Count which of the labels are entities of a sentence, and which of its entities are among them."""
    found = {plain(label) for label in labels} - {OWNER}
    for label in sorted(found):
        tally.counts["entities"] += 1
        if is_forbidden(label, item.said, "people", "decisions", "open", "dentist", "evening"):
            tally.counts["forbidden"] += 1
            _note(tally, item, f"forbidden {label}")
        if any(label in labels for labels in (*item.entities, *item.allowed)):
            tally.counts["entities_right"] += 1
        else:
            _note(tally, item, f"entity   {label}")
    for names in item.entities:
        tally.counts["entities_wanted"] += 1
        tally.counts["entities_recalled"] += bool(names & found)
        if not names & found:
            _note(tally, item, f"no entity {set(names)}")


def is_forbidden(label: str, said: datetime, *headings: str) -> bool:
    """Return whether a label must never be an entity: a date, a day, a file or a heading."""
    names = {*_MONTHS.split(), *_DAYS.split(), f"{said:%Y-%m-%d}", *headings}
    return label in names or _FORBIDDEN.fullmatch(label) is not None


def _count_ends(
    tally: Tally,
    item: Item,
    before: Item,
    first: Sequence[tuple[Extraction, FactRecord]],
    then: Sequence[tuple[Extraction, FactRecord]],
) -> None:
    """Count what of the first sentence ends by the second, as a graph keeps it."""
    known: dict[str, FactRecord] = {}
    for _, fact in (*first, *then):
        if fact.uuid:
            record = record_for(fact, known.values(), "group")
            known[record.uuid] = record
    known = with_ends(known, LATER)
    tally.counts["to_end"] += len(item.ended)
    stated = [(one, relation) for one in before.gold for relation in _relations(first) if one.fits(relation)]
    for gold, relation in stated:
        fact = next(one for one in known.values() if _is_of(one, relation, first))
        is_over = fact.invalid_at is not None and fact.invalid_at <= LATER
        tally.counts["empty"] += _is_empty(fact.valid_at, fact.invalid_at)
        if any(one.ways == gold.ways for one in item.ended):
            tally.counts["ended"] += is_over
            if not is_over:
                _note(tally, item, f"holds on {_told(relation)}")
        else:
            tally.counts["to_keep"] += 1
            tally.counts["ended_wrongly"] += is_over
            if is_over:
                _note(tally, item, f"ended    {_told(relation)}")


def _relations(read: Sequence[tuple[Extraction, FactRecord]]) -> list[ExtractedRelation]:
    return [one for extraction in {id(e): e for e, _ in read}.values() for one in extraction.relations]


def _is_of(
    fact: FactRecord, relation: ExtractedRelation, read: Sequence[tuple[Extraction, FactRecord]]
) -> bool:
    ids = {one.own_id for _, one in read if one.relation == relation.type and one.fact == relation.fact}
    return fact.own_id in ids


def _is_empty(start: datetime | None, end: datetime | None) -> bool:
    return start is not None and end is not None and end <= start


def _told(one: ExtractedRelation) -> str:
    start, end = (f"{moment:%Y-%m-%d}" if moment else "" for moment in (one.valid_from, one.valid_to))
    return f"{one.source} {one.type} {one.target} {start}..{end}"


def _note(tally: Tally, item: Item, problem: str) -> None:
    tally.errors.append(f"{item.language} {item.phenomenon:<16} {problem:<60} | {item.text!r}")


async def measure(
    items: Sequence[Item], extractor: EntityExtractor, by: Callable[[Item], str]
) -> dict[str, Tally]:
    """Return what was found, added up by a property of the sentences."""
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    for item in items:
        tallies[by(item)].add(await tally_of(item, extractor))
    return dict(tallies)


# --- sentences at random ------------------------------------------------------------------------------------


async def fuzz(extractor: EntityExtractor, count: int, seed: int = 15) -> Tally:
    """Read sentences put together of parts of others, and count what must never be."""
    dice, tally = random.Random(seed), Tally()
    items = read_items()
    words = {
        one: [item.text.split() if one != "zh" else re.findall(r"\w{1,3}|\W", item.text)
              for item in items if item.language == one]
        for one in LANGUAGES
    }  # fmt: skip
    times = "until June 2025|since 2024|from May 2025 to March 2024|bis März|hasta 2020|到2024年|no longer"
    for number in range(count):
        language = LANGUAGES[number % len(LANGUAGES)]
        parts = dice.choices(words[language], k=dice.randint(1, 3))
        cut = [word for part in parts for word in part[dice.randint(0, 3) : dice.randint(3, 12)]]
        cut.insert(dice.randint(0, len(cut)), dice.choice(times.split("|")))
        if dice.random() < 0.2:
            dice.shuffle(cut)
        said = datetime(2025, 6, 1, tzinfo=UTC) + dice.randint(0, 400) * DAY
        read = await read_text(extractor, ("" if language == "zh" else " ").join(cut) + ".", said)
        for relation in _relations(read):
            tally.counts["relations"] += 1
            tally.counts["empty"] += _is_empty(relation.valid_from, relation.valid_to)
            tally.counts["loops"] += plain(relation.source) == plain(relation.target)
        for _, fact in read:
            tally.counts["empty"] += _is_empty(fact.valid_at, fact.invalid_at or fact.ends_at)
        labels = {entity.label for extraction, _ in read for entity in extraction.entities}
        for label in labels:
            tally.counts["entities"] += 1
            if is_forbidden(plain(label), said):
                tally.counts["forbidden"] += 1
                tally.errors.append(f"forbidden {label!r} | {' '.join(cut)}")
    return tally


# --- the table ----------------------------------------------------------------------------------------------

COLUMNS = (
    ("precision", "right", "found"),
    ("recall", "recalled", "wanted"),
    ("in time", "in_time", "timed"),
    ("entity prec.", "entities_right", "entities"),
    ("entity rec.", "entities_recalled", "entities_wanted"),
    ("ended", "ended", "to_end"),
    ("ended wrongly", "ended_wrongly", "to_keep"),
)
TARGETS = (
    "targets: precision .85, recall .45 (en) and .35, entities .90 and .80, ended .70, ended wrongly .05,"
    " spoken 2 of 45, nothing forbidden, empty or a loop"
)


def print_table(title: str, tallies: dict[str, Tally]) -> None:
    """Print a row for each group of sentences."""
    print(
        f"\n{title:<18}"
        + "".join(f"{name:>15}" for name, *_ in COLUMNS)
        + "  spoken/silent  forb. empty loops"
    )
    for name, tally in tallies.items():
        cells = (
            f"{tally.share(part, whole):>10.2f} /{tally.counts[whole]:>3}"
            if tally.counts[whole]
            else f"{'–':>15}"
            for _, part, whole in COLUMNS
        )
        last = f"{tally.counts['spoken']:>9}/{tally.counts['silent']:<5}"
        never = "".join(f"{tally.counts[one]:>6}" for one in ("forbidden", "empty", "loops"))
        print(f"{name:<18}" + "".join(cells) + last + never)


async def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--half", choices=("work", "report", "fresh"), default="report")
    parser.add_argument("--extractor", default="heuristic")
    parser.add_argument("--phenomena", nargs="*", help="only these, such as message; all if not given")
    parser.add_argument("--errors", action="store_true", help="what went wrong, of the half to work with")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", type=int, default=15, help="of the sentences put together")
    asked = parser.parse_args()
    extractor = load_extractor(asked.extractor)
    if asked.fuzz:
        tally = await fuzz(extractor, asked.fuzz, asked.seed)
        print(dict(tally.counts), *tally.errors[:20], sep="\n")
        return
    if asked.half == "fresh":
        items = read_items(folder=FOLDER / "fresh")
    else:
        items = [item for item in read_items() if item.half == asked.half]
    items = [item for item in items if not asked.phenomena or item.phenomenon in asked.phenomena]
    pairs = sum(item.before is not None for item in items)
    print(f"{len(items)} sentences, {pairs} of them after another; {TARGETS}")
    print_table("language", await measure(items, extractor, lambda item: item.language))
    print_table("phenomenon", await measure(items, extractor, lambda item: item.phenomenon))
    every = await measure(items, extractor, lambda _: "all")
    print_table("", every)
    if asked.errors and asked.half == "work":
        print(*every["all"].errors, sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
