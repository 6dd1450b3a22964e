"""Remember who worked where, and since when: `python examples/graph_memory.py`. All stays on this machine."""

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from composable_memory import open_memory
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory_adapters.graphiti.cli.pictures import mermaid

NOTES = {
    "memory/2026-01-05.md": "# Monday\nNadia Ferris works at Lanternwheel. She lives in Saltmarsh.\n",
    "memory/2026-03-02.md": "# Monday\nNadia Ferris works at Tidegate Robotics.\n",
}


async def main(folder: Path) -> None:
    """Take two notes in, then ask, look back, and draw."""
    now = datetime.now(UTC)
    async with open_memory(folder, folder / "state", {"graphiti": {"enabled": True}}) as memory:
        for path, text in NOTES.items():
            contents = contents_of(WrittenSource(text=text, path=path, written_at=now))
            report = (await memory.ingest_source(path, contents))["graphiti"]
            print(f"{path}: facts found: {report.facts}")

        for question in ("Where does Nadia work?", "Where did Nadia work as of February 2026?"):
            print(f"\n{question}")
            for hit in (await memory.query(question, max_results=1)).results:
                print(f"{hit.score:.2f}  {hit.snippet}  [{hit.origin.citation if hit.origin else hit.path}]")

        facts = memory.facts_of()
        print("\nWhat was known of Nadia:")
        for fact in await facts.timeline("Nadia Ferris"):
            print(f"{fact.valid_at:%Y-%m-%d}  {fact.text}")

        print("\nAs a picture for Markdown:")
        print(mermaid(await facts.neighbourhood("Nadia Ferris"), centre="Nadia Ferris", now=now))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(main(Path(name)))
