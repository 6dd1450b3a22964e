"""How often a note is found by a question in other words: 64 notes among the 200 of `names_and_dates.py`.

    python benchmarks/paraphrases.py                            as by default
    python benchmarks/paraphrases.py --provider multilingual-e5
    python benchmarks/paraphrases.py --rerank late-interaction

Each line of `paraphrases.tsv` is a language, a note, and a question that says it in other words. Prints by
language how often the note comes first, and among the first three.
"""

import argparse
import asyncio
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks.names_and_dates import NOW, make_notes
from composable_memory import open_memory

FILE = Path(__file__).parent / "paraphrases.tsv"


async def run(provider: str, rerank: str) -> None:
    """Ask all questions and print the table."""
    text = await asyncio.to_thread(FILE.read_text, encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    notes = make_notes()
    notes |= {f"memory/said/page-{number:02}.md": f"{row[1]}\n" for number, row in enumerate(rows)}
    places: dict[str, list[int]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for path, note in notes.items():
            file = Path(folder, "vault", path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(note, encoding="utf-8")
        config = {"embedding": {"provider": provider}, "builtin": {"query": {"rerank": rerank}}}
        vault, state = Path(folder, "vault"), Path(folder, "state")
        async with open_memory(vault, state, config, environ={}, long_lived=False) as memory:
            await memory.sync()
            for number, (language, _, question) in enumerate(rows):
                response = await memory.query(question, now=NOW, max_results=10, min_score=0.0)
                found = [result.path for result in response.results]
                path = f"memory/said/page-{number:02}.md"
                place = found.index(path) + 1 if path in found else 99
                for group in (language, "all"):
                    places[group].append(place)
    print("| language | questions | first | in the first three |\n|---|---|---|---|")
    for group, reached in places.items():
        first, three = (sum(place <= limit for place in reached) / len(reached) for limit in (1, 3))
        print(f"| {group} | {len(reached)} | {first:.2f} | {three:.2f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--provider", default="auto", help="the embedding provider")
    parser.add_argument("--rerank", default="off", help="off, or the reranker")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.provider, arguments.rerank))
