"""Keyword and hybrid search in six languages, for questions that use other forms of the words than the notes.

    python benchmarks/languages.py                  all languages
    python benchmarks/languages.py de ru            some of them

Each line of `languages/<language>.tsv` is a note and two questions that it answers, in other inflections, as
parts of compounds or with particles. The notes of a language are one workspace. Prints the share of questions
whose note comes first and among the first three, and the mean reciprocal rank (95 % bootstrap interval).
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from composable_memory import open_memory

FOLDER = Path(__file__).parent / "languages"
DEPTH = 10
MODES: Mapping[str, Mapping[str, object]] = {"keywords": {"embedding": {"provider": "none"}}, "hybrid": {}}


def read_set(file: Path) -> list[tuple[str, str, str]]:
    """Return the notes of a language, each with its two questions."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [(note, one, two) for note, one, two in (line.split("\t") for line in lines)]


async def ranks(notes: Sequence[tuple[str, str, str]], config: Mapping[str, object]) -> list[float]:
    """Return the reciprocal rank of the right note for each question; 0 if it is not among the first ten."""
    with tempfile.TemporaryDirectory() as scratch:
        workspace = Path(scratch, "notes")
        (workspace / "memory").mkdir(parents=True)
        for number, (note, *_) in enumerate(notes):
            (workspace / "memory" / f"{number}.md").write_text(note, encoding="utf-8")
        async with open_memory(workspace, state_dir=Path(scratch, "state"), config=config) as memory:
            await memory.sync()
            found: list[float] = []
            for number, (_, *questions) in enumerate(notes):
                for question in questions:
                    response = await memory.query(question, max_results=DEPTH)
                    paths = [result.path for result in response.results]
                    path = f"memory/{number}.md"
                    found.append(1 / (paths.index(path) + 1) if path in paths else 0.0)
            return found


def row(name: str, mode: str, found: Sequence[float]) -> str:
    """Return a line of the table."""
    values = np.array(found)
    draws = np.random.default_rng(7).choice(values, (2000, len(values))).mean(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    first, three = (values == 1).mean(), (values >= 1 / 3).mean()
    mean = f"{values.mean():.3f} ({low:.3f} to {high:.3f})"
    return f"| {name} | {mode} | {len(values)} | {first:.3f} | {three:.3f} | {mean} |"


async def main(languages: Sequence[str]) -> None:
    """Print the table."""
    print("| language | searched by | questions | first | first three | MRR (95 %) |")
    print("|---|---|---|---|---|---|")
    for file in sorted(FOLDER.glob("*.tsv")):
        if not languages or file.stem in languages:
            for mode, config in MODES.items():
                print(row(file.stem, mode, await ranks(read_set(file), config)), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("languages", nargs="*", help="codes such as de; all if none is given")
    asyncio.run(main(parser.parse_args().languages))
