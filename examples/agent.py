"""Let an agent answer from the sample notes: `python examples/agent.py openai:gpt-5 [question]`.

It needs `pip install "composable-memory[pydantic-ai]"`, and what Pydantic AI needs for the model.
"""

import sys
from pathlib import Path

from pydantic_ai import Agent

from composable_memory import open_memory_sync
from composable_memory_adapters.integrations.pydantic_ai import memory_toolset

SAMPLE_WORKSPACE = Path(__file__).with_name("workspace")
QUESTION = "Why did the dispatch queue go back to Redis Streams?"


def main() -> None:
    """Take model and question from the command line."""
    if len(sys.argv) == 1:
        sys.exit(__doc__)
    with open_memory_sync(SAMPLE_WORKSPACE) as memory:
        memory.sync()
        tools = memory_toolset(memory, ["memory_search", "memory_get"])
        agent = Agent(sys.argv[1], toolsets=[tools], instructions="Answer from the notes, and cite them.")
        print(agent.run_sync(sys.argv[2] if len(sys.argv) > 2 else QUESTION).output)


if __name__ == "__main__":
    main()
