"""The page of the graph: drawn by the package of the backend that keeps facts."""

import asyncio
import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from composable_memory.entry_points import by_precedence
from composable_memory_ops_logs import utc_now

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

GROUP = "composable_memory.pages"
"""Entry points of functions that draw a neighbourhood: `(neighbourhood, centre=None, now=…) -> str`."""


async def graph_page(memory: "Memory", about: str | None) -> tuple[str, str] | None:
    """Return the page about an entity or the newest facts, and its policy; None if nobody draws any.

    Raises:
        ConfigError: no open backend keeps facts.
    """
    near = await memory.facts_of().neighbourhood(about)

    def draw() -> str | None:
        found = by_precedence(entry_points(group=GROUP, name="graph"))
        return found[0].load()(near, centre=about, now=utc_now()) if found else None

    drawn = await asyncio.to_thread(draw)
    if drawn is None:
        return None
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', drawn)
    return drawn, policy[1] if policy else "default-src 'none'"
