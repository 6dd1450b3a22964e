"""How often a note is found by its name, date, title, headings or tags, in a vault that is made here.

Notes and questions are made here, in English, German, Spanish and Chinese, the same in every run: a diary
with a note for most days, meetings, clippings that have their date in the front matter, pages on topics,
people, and handbooks: long notes with the same headings, whose texts name neither their subject nor their
headings. A question is a hit if the first result, or one of the first three, is one of the notes that it may
mean, and of a handbook if it is of the right section. Prints a table in Markdown.
"""

import argparse
import asyncio
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from composable_memory import MemorySearchResult, open_memory

NOW = datetime(2026, 5, 20, 9, tzinfo=UTC)
"""A Wednesday."""
SEED = 20260520
NOTES = 200

DID = {
    "en": [
        "Repaired the {} with {}.",
        "Talked with {1} about the {0}.",
        "Bought a {} for {}.",
        "Lost the {} at {}'s.",
    ],
    "de": ["Mit {1} über {0} gesprochen.", "{0} zusammen mit {1} repariert.", "Für {1} {0} gekauft."],
    "es": ["Hablé con {1} sobre {0}.", "Arreglé {0} con {1}.", "Compré {0} para {1}."],
    "zh": ["和{1}谈了{0}。", "跟{1}一起修{0}。", "给{1}买了{0}。"],
}
THINGS = {
    "en": [
        "bicycle",
        "kitchen sink",
        "garden shed",
        "printer",
        "old radio",
        "ladder",
        "heater",
        "tent",
        "canoe",
    ],
    "de": ["das Fahrrad", "die Heizung", "den Zaun", "den Drucker", "das Zelt", "die Lampe", "den Ofen"],
    "es": ["la bicicleta", "la valla", "el horno", "la lámpara", "la tienda", "el grifo", "la impresora"],
    "zh": ["自行车", "打印机", "暖气", "帐篷", "台灯", "烤箱", "水龙头"],
}
PEOPLE = {
    "en": ["Oliver", "Grace", "Henry", "Alice"], "de": ["Jürgen", "Anke", "Heike", "Lutz"],
    "es": ["Marisol", "Gonzalo", "Nuria", "Íñigo"], "zh": ["王芳", "李强", "陈静", "赵磊"],
}  # fmt: skip
MORE = {
    "en": [
        "Slept badly.",
        "It rained until noon.",
        "A long walk by the river.",
        "Soup in the evening.",
        "April showers?",
    ],
    "de": ["Schlecht geschlafen.", "Regen bis Mittag.", "Langer Spaziergang am Fluss.", "Abends Suppe."],
    "es": ["Dormí mal.", "Llovió hasta el mediodía.", "Un paseo largo por el río.", "Sopa por la noche."],
    "zh": ["睡得不好。", "下雨到中午。", "沿着河走了很久。", "晚上喝汤。"],
}
TOPICS = """
en | q3-roadmap | Where we go next | North Star | Hiring plan | Two more people.
en | CHANGELOG_V12 | What changed | release twelve | Breaking changes | The old flag is gone.
en | dock-gateway-runbook | When the pager rings | night shift guide | Rotating certificates | Then restart.
en | tax-return-2025 | Papers for the office | Steuererklärung | Deductions | A desk, a chair.
de | sourdough | Brot backen | Sauerteig | Teigruhe | Über Nacht im Keller, bei zwölf Grad.
de | umzug-checkliste | Bevor der Wagen kommt | Kistenplan | Zählerstände | Strom, Wasser, Gas ablesen.
de | heizung-wartung | Warm im Winter | Kesselbuch | Druck nachfüllen | Bis eins Komma fünf bar.
es | viaje-lisboa | Cuatro días junto al Tajo | escapada | Alojamiento | Una pensión.
es | recetas-abuela | Lo que cocinaba Carmen | cuaderno verde | Lentejas | Con laurel.
es | presupuesto-boda | Cuentas de la fiesta | gran día | Música | El grupo pide un adelanto.
en | weekly-review | Looking back every Friday | retro habit | Questions to ask | What gave energy?
en | wifi-setup | Network at home | router notes | Guest access | The code is on the fridge.
zh | 装修预算 | 新家的花费 | 房子账本 | 厨房 | 橱柜和灶台一共三万。
zh | 读书笔记 | 今年看的书 | 书单 | 三体 | 第二部比第一部好看。
zh | 体检报告 | 身体检查 | 健康档案 | 血压 | 略高，少吃盐。
en | sensor_calibration | Before each flight | zeroing | Barometer drift | Let it warm for ten minutes.
"""
"""Language, file name, title, alias, heading, and the text below it."""
IDENTIFIERS = (
    "retry_budget_ms",
    "INC-4711",
    "parseLedgerRow",
    "10.42.0.17",
    "ABX-90210",
    "orders.v2.dead_letter",
    "a7f3c9e",
    "DE89 3704",
)
FULL_NAMES = (
    ("en", "Priya Raman", "priya-raman"), ("en", "Tomasz Wolski", "tomasz-wolski"),
    ("de", "Annegret Böhm", "annegret-boehm"), ("de", "Kai Uwe Petersen", "kai-uwe-petersen"),
    ("es", "Lucía Fernández", "lucia-fernandez"), ("es", "Iker Mendoza", "iker-mendoza"),
    ("zh", "周建国", "周建国"), ("zh", "林晓梅", "林晓梅"),
)  # fmt: skip
ROLES = {
    "en": "Leads the second shift. Prefers calls before nine.",
    "de": "Leitet die zweite Schicht. Ruft gern früh an.",
    "es": "Dirige el segundo turno. Prefiere llamar temprano.",
    "zh": "负责第二班。喜欢早上打电话。",
}
HANDBOOKS = """
en | Albatross | the old ketch | boats, summer-house
en | Kingfisher | our dinghy | boats, lending
en | Hawthorn Cottage | the rental | property, summer-house
de | Eisvogel | das kleine Boot | boote, verein
de | Haus Lindenhof | Ferienwohnung | immobilien, vermietung
de | Motorrad Isetta | die Knutschkugel | oldtimer, verein
es | Casa del Olivo | la finca | inmuebles, alquiler
es | Velero Gaviota | el barco viejo | barcos, club
es | Furgoneta Camila | la camper | vehículos, alquiler
zh | 海鸥号 | 旧帆船 | 船只, 俱乐部
zh | 山间小屋 | 度假房 | 房产, 出租
zh | 绿色面包车 | 露营车 | 车辆, 出租
"""
"""Language, title, alias and tags."""
SECTIONS = {
    "en": ("Engine and fuel", "Winter storage", "Insurance papers", "Spare keys"),
    "de": ("Motor und Tank", "Winterlager", "Versicherung", "Ersatzschlüssel"),
    "es": ("Motor y combustible", "Invernada", "Papeles del seguro", "Llaves de repuesto"),
    "zh": ("发动机和燃油", "冬季存放", "保险文件", "备用钥匙"),
}
SAYS = {
    "en": (
        "Ask at the counter before ten.", "The blue folder has last year's receipt.",
        "Two litres are enough until Easter.", "It was checked twice and nothing was loose.",
        "Wrap it in the grey cover, not the green one.", "The neighbour knows the number by heart.",
        "Renew it a month before it ends.", "Below the bench, third hook from the left.",
    ),
    "de": (
        "Vor zehn am Schalter fragen.", "Im blauen Ordner liegt die Quittung vom letzten Jahr.",
        "Zwei Liter reichen bis Ostern.", "Zweimal geprüft, nichts war lose.",
        "In die graue Plane wickeln, nicht in die grüne.", "Die Nachbarin weiß die Nummer auswendig.",
        "Einen Monat vorher verlängern.", "Unter der Bank, dritter Haken von links.",
    ),
    "es": (
        "Preguntar en la ventanilla antes de las diez.", "En la carpeta azul está el recibo del año pasado.",
        "Dos litros bastan hasta Semana Santa.", "Se revisó dos veces y nada estaba suelto.",
        "Envolver con la lona gris, no con la verde.", "La vecina sabe el número de memoria.",
        "Renovar un mes antes.", "Debajo del banco, tercer gancho por la izquierda.",
    ),
    "zh": (
        "十点以前到柜台问。", "蓝色文件夹里有去年的收据。", "两升够用到清明。", "检查过两次，没有松动。",
        "用灰色的布包好，不要用绿色的。", "邻居记得号码。", "提前一个月续。", "在长凳下面，左边第三个钩子。",
    ),
}  # fmt: skip
MENTIONS = {
    "en": "Passed by {}, talked of nothing else on the way home.",
    "de": "An {} vorbeigekommen, auf dem Heimweg nur davon geredet.",
    "es": "Pasamos por {} y no hablamos de otra cosa.",
    "zh": "路过{}，一路上都在说它。",
}
SECTION_LINES = 40
"""So many that no section is one passage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its kind and language, and the notes that it may mean, or the lines of one."""

    kind: str
    language: str
    text: str
    paths: frozenset[str]
    lines: range | None = None

    def is_answered_by(self, result: MemorySearchResult) -> bool:
        """Return whether a result is what is asked for."""
        if result.path not in self.paths:
            return False
        lines = self.lines
        return lines is None or (result.start_line < lines.stop and result.end_line >= lines.start)


def make_notes() -> dict[str, str]:
    """Return the notes by their paths, the same in every run."""
    chance = random.Random(SEED)
    notes = {f"memory/topics/{one[1]}.md": _topic(one) for one in _topics()}
    for language, name, slug in FULL_NAMES:
        heading = name if language in ("en", "zh") else "Kontakt" if language == "de" else "Contacto"
        notes[f"memory/people/{slug}.md"] = f"# {heading}\n\n{ROLES[language]}\n"
    for number, identifier in enumerate(IDENTIFIERS):
        text = [*_lines(chance, "en", 3), f"Set {identifier} first.", *_lines(chance, "en", 2)]
        notes[f"memory/work/log-{number + 1:02}.md"] = "\n".join(["# Log", "", *text, ""])
    for number in range(16):
        day = date(2026, 1, 5) + timedelta(days=7 * number)
        language = ("en", "de", "es", "zh")[number % 4]
        notes[f"memory/clippings/clip-{number + 1:02}.md"] = "\n".join(
            ["---", f"title: Clip {number + 1}", f"date: {day}", "---", *_lines(chance, language, 5), ""]
        )
    for number in range(12):
        day = date(2025, 12, 3) + timedelta(days=13 * number)
        notes[f"memory/meetings/{day}-sync.md"] = "\n".join(["# Sync", "", *_lines(chance, "en", 4), ""])
    days = [NOW.date() - timedelta(days=number) for number in range(1, 400)]
    for day in days[:30]:
        notes[f"memory/diary/{day}.md"] = _diary(chance, day)
    rest = days[30:]
    chance.shuffle(rest)
    for day in rest[: NOTES - len(notes)]:
        notes[f"memory/diary/{day}.md"] = _diary(chance, day)
    for number, book in enumerate(_handbooks()):
        notes[_path_of_handbook(number)] = _handbook(chance, book)
        mention = MENTIONS[book[0]].format(book[1])
        notes[f"memory/loose/{number:02}.md"] = "\n".join([*_lines(chance, book[0], 3), mention, ""])
    return notes


def _topics() -> list[list[str]]:
    return [line.split(" | ") for line in TOPICS.strip().splitlines()]


def _handbooks() -> list[list[str]]:
    return [line.split(" | ") for line in HANDBOOKS.strip().splitlines()]


def _path_of_handbook(number: int) -> str:
    return f"memory/handbooks/h{number:02}.md"


def _handbook(chance: random.Random, one: Sequence[str]) -> str:
    language, title, alias, tags = one
    head = ["---", "aliases:", f"  - {alias}", f"tags: [{tags}]", "---", f"# {title}", ""]
    for section in SECTIONS[language]:
        says = [" ".join(chance.sample(SAYS[language], 2)) for _ in range(SECTION_LINES)]
        head += [f"## {section}", "", *says, ""]
    return "\n".join([*head, ""])


def _topic(one: Sequence[str]) -> str:
    _, _, title, alias, heading, text = one
    head = ["---", f"title: {title}", f"aliases: [{alias}]", "tags: [page]", "---"]
    return "\n".join([*head, "Something to begin with.", "", f"## {heading}", "", text, ""])


def _diary(chance: random.Random, day: date) -> str:
    language = ("en", "de", "es", "zh")[day.toordinal() % 4]
    return "\n".join([*_lines(chance, language, chance.randint(4, 9)), ""])


def _lines(chance: random.Random, language: str, count: int) -> list[str]:
    return [
        chance.choice(DID[language]).format(chance.choice(THINGS[language]), chance.choice(PEOPLE[language]))
        if chance.random() < 0.6
        else chance.choice(MORE[language])
        for _ in range(count)
    ]


def make_questions(notes: Mapping[str, str]) -> list[Question]:
    """Return the questions, the same in every run."""
    return [*_of_days(notes), *_of_stretches(notes), *_of_names(), *_of_handbooks(notes)]


def _dated(notes: Mapping[str, str], first: date, last: date) -> frozenset[str]:
    return frozenset(
        path for path, text in notes.items() if (day := _day(path, text)) and first <= day <= last
    )


def _day(path: str, text: str) -> date | None:
    name = path.rpartition("/")[2][:10]
    told = text.partition("\ndate: ")[2][:10] if text.startswith("---") else ""
    for one in (name, told):
        try:
            return date.fromisoformat(one)
        except ValueError:
            continue
    return None


def _of_days(notes: Mapping[str, str]) -> Iterator[Question]:
    chance = random.Random(SEED + 1)
    forms = {
        "en": ["{0}", "what did I do on {1} {2} {3}?", "{2} {1}, {3}", "notes of {1} {2}", "diary {0}"],
        "de": [
            "Was habe ich am {1}. {2} {3} gemacht?",
            "Notizen vom {1}. {2}",
            "am {4}",
            "Tagebuch {0}",
            "{1}. {2} {3}",
        ],
        "es": [
            "¿Qué hice el {1} de {2} de {3}?",
            "notas del {1} de {2}",
            "diario {0}",
            "{1} de {2} de {3}",
            "el {1} de {2}",
        ],
        "zh": ["{3}年{5}月{1}日我做了什么？", "{5}月{1}日的日记", "{0}", "{3}年{5}月{1}日", "{0} 的笔记"],
    }
    months = {
        "en": "January February March April May".split(), "de": "Januar Februar März April Mai".split(),
        "es": "enero febrero marzo abril mayo".split(), "zh": list("12345"),
    }  # fmt: skip
    days = sorted({day for path, text in notes.items() if (day := _day(path, text)) and day.year == 2026})
    for language, texts in forms.items():
        for form, day in zip(texts, chance.sample(days, len(texts)), strict=True):
            said = (day, day.day, months[language][day.month - 1], day.year, f"{day:%d.%m.%Y}", day.month)
            yield Question(
                kind="day", language=language, text=form.format(*said), paths=_dated(notes, day, day)
            )


def _of_stretches(notes: Mapping[str, str]) -> Iterator[Question]:
    today = NOW.date()
    monday = today - timedelta(days=today.weekday())
    month = {
        number: (date(2026, number, 1), date(2026, number + 1, 1) - timedelta(days=1))
        for number in range(1, 5)
    }
    back = {number: (today - timedelta(days=number),) * 2 for number in range(1, 15)}
    week = {
        number: (monday - timedelta(days=7 * number), monday - timedelta(days=7 * number - 6))
        for number in (0, 1, 2)
    }
    spring = (date(2026, 3, 1), date(2026, 4, 30))
    april, march, february = month[4], month[3], month[2]
    asked: Mapping[str, Mapping[str, Sequence[tuple[str, tuple[date, date]]]]] = {
        "month": {
            "en": [
                ("what happened in April 2026?", april),
                ("notes from March", march),
                ("2026-02", february),
            ],
            "de": [
                ("Was war im April 2026?", april),
                ("Notizen aus dem März", march),
                ("zwischen März und April", spring),
            ],
            "es": [
                ("¿Qué pasó en abril de 2026?", april),
                ("notas de febrero de 2026", february),
                ("entre marzo y abril", spring),
            ],
            "zh": [("2026年4月发生了什么？", april), ("三月的日记", march), ("2026年2月", february)],
        },
        "relative": {
            "en": [
                ("what did I do yesterday?", back[1]),
                ("last week", week[1]),
                ("three days ago", back[3]),
                ("last Monday", back[2]),
            ],
            "de": [
                ("Was habe ich gestern gemacht?", back[1]),
                ("letzte Woche", week[1]),
                ("vor drei Tagen", back[3]),
                ("vor zwei Wochen", week[2]),
            ],
            "es": [
                ("¿Qué hice ayer?", back[1]),
                ("la semana pasada", week[1]),
                ("hace tres días", back[3]),
                ("el lunes pasado", back[2]),
            ],
            "zh": [
                ("昨天我做了什么？", back[1]),
                ("上周", week[1]),
                ("三天前", back[3]),
                ("两周前", week[2]),
            ],
        },
    }
    for kind, by_language in asked.items():
        for language, questions in by_language.items():
            for text, (first, last) in questions:
                yield Question(kind=kind, language=language, text=text, paths=_dated(notes, first, last))


def _of_names() -> Iterator[Question]:
    wanted: Sequence[tuple[str, int, str]] = (
        *(("file name", 1, form) for form in ("{}", "{}.md", "where is {}.md?")),
        *(("title", 2, form) for form in ("{}", "{}")), ("heading", 4, "{}"), ("heading", 4, "{}"),
        ("alias", 3, "{}"), ("alias", 3, "{}"),
    )  # fmt: skip
    turn = 0
    for kind, column, form in wanted:
        for _ in range(4):
            one = _topics()[turn % len(_topics())]
            turn += 1
            said = one[column].replace("-", " ").replace("_", " ") if form == "{}" else one[column]
            path = f"memory/topics/{one[1]}.md"
            yield Question(kind=kind, language=one[0], text=form.format(said), paths=frozenset({path}))
    for number, identifier in enumerate(IDENTIFIERS):
        path = f"memory/work/log-{number + 1:02}.md"
        yield Question(kind="identifier", language="en", text=identifier, paths=frozenset({path}))
    forms = {"en": "who is {}?", "de": "Wer ist {}?", "es": "¿Quién es {}?", "zh": "{}是谁？"}
    for tongue, name, slug in FULL_NAMES:
        path = f"memory/people/{slug}.md"
        yield Question(
            kind="person", language=tongue, text=forms[tongue].format(name), paths=frozenset({path})
        )


def _of_handbooks(notes: Mapping[str, str]) -> Iterator[Question]:
    """Yield what only title, heading, alias and tags of a passage can answer."""
    ask = {
        "en": ("{1} of {0}", "where do we keep the notes on {0}, {1}?"),
        "de": ("{1} {0}", "Was steht zu {1} bei {0}?"),
        "es": ("{1} de {0}", "¿qué hay sobre {1} de {0}?"),
        "zh": ("{0}{1}", "{0}的{1}怎么办？"),
    }
    for number, (language, title, alias, tags) in enumerate(_handbooks()):
        path = _path_of_handbook(number)
        note = frozenset({path})
        yield Question(kind="handbook's title", language=language, text=title, paths=note)
        yield Question(kind="handbook's alias", language=language, text=alias, paths=note)
        lines = notes[path].split("\n")
        for turn, (kind, name) in enumerate((("title and heading", title), ("alias and heading", alias))):
            section = SECTIONS[language][(number + turn) % len(SECTIONS[language])]
            first = lines.index(f"## {section}") + 1
            yield Question(
                kind=kind,
                language=language,
                text=ask[language][turn].format(
                    name, section if language in ("de", "zh") else section.lower()
                ),
                paths=note,
                lines=range(first, first + SECTION_LINES + 2),
            )
        tag = tags.split(", ")[number % 2]
        tagged = {at for at, book in enumerate(_handbooks()) if tag in book[3].split(", ")}
        paths = frozenset(map(_path_of_handbook, tagged))
        yield Question(kind="tag", language=language, text=tag.replace("-", " "), paths=paths)


async def run(notes: Mapping[str, str], questions: Sequence[Question], *, shows_misses: bool) -> None:
    """Ask all questions and print how many were hits, by kind and by language."""
    places: dict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for path, text in notes.items():
            file = Path(folder, "vault", path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        async with open_memory(
            Path(folder, "vault"), Path(folder, "state"), environ={}, long_lived=False
        ) as memory:
            await memory.sync()
            for one in questions:
                response = await memory.query(one.text, now=NOW, max_results=10)
                found = [one.is_answered_by(result) for result in response.results]
                place = found.index(True) + 1 if True in found else 99
                for group in (one.kind, one.language, "all"):
                    places[group].append(place)
                if shows_misses and place > 1:
                    first = response.results[0].path if response.results else "nothing"
                    print(f"{place:3} {one.kind:10} {one.language} {one.text} | {first} | {min(one.paths)}")
    print(f"\n{len(notes)} notes, {len(questions)} questions\n")
    print("| kind | questions | first | in the first three |\n|---|---|---|---|")
    for group, reached in places.items():
        first, three = (sum(place <= limit for place in reached) for limit in (1, 3))
        print(f"| {group} | {len(reached)} | {first} | {three} |")


def main() -> None:
    """Make the vault, ask, print; `--misses` names what was not found first."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--misses", action="store_true", help="name the questions whose note is not first")
    notes = make_notes()
    asyncio.run(run(notes, make_questions(notes), shows_misses=parser.parse_args().misses))


if __name__ == "__main__":
    main()
