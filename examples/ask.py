"""Ask the sample workspace a question from Python: `python examples/ask.py [workspace [question]]`."""

import asyncio
import sys
from pathlib import Path

from composable_memory import open_memory
from composable_memory.highlights import best_lines

SAMPLE_WORKSPACE = Path(__file__).with_name("workspace")
QUESTION = "Why did the dispatch queue go back to Redis Streams?"


async def ask(workspace: Path, question: str) -> None:
    """Index what is new in `workspace`, then show where its notes answer `question`."""
    async with open_memory(workspace) as memory:
        await memory.sync()
        response = await memory.query(question, max_results=5)

    for hit in response.results:
        answer = "".join(line.text for line in best_lines(hit, width=100))
        print(f"{hit.score:.2f}  {hit.path}:{hit.start_line}-{hit.end_line}  {answer}")
    if response.weak:
        print("nothing matched well")
    for one in response.degraded:
        print("degraded:", one.backend_id, one.reason)


def main() -> None:
    """Take workspace and question from the command line, or ask the sample next to this file."""
    workspace = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE_WORKSPACE
    asyncio.run(ask(workspace, sys.argv[2] if len(sys.argv) > 2 else QUESTION))


if __name__ == "__main__":
    main()
