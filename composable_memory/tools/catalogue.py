"""All tools of an agent, with their descriptions: add new ones here."""

from composable_memory.tools.context_pack import memory_context_pack, unavailable_pack
from composable_memory.tools.explain import memory_explain, memory_feedback
from composable_memory.tools.read import memory_get
from composable_memory.tools.recall import (
    memory_facts,
    memory_forget,
    memory_recall,
    memory_recent,
    memory_remember,
)
from composable_memory.tools.search import memory_search, unavailable_search
from composable_memory.tools.status import memory_status
from composable_memory.tools.tool import Tool

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="memory_search",
        title="Search memory",
        description=(
            "Search the notes for earlier work, decisions, dates, people, preferences and to-dos. Returns "
            "the best passages first, with path, lines and score. The query may name a time (last week, in "
            "April 2026) and contain filters: path:projects tag:work after:2026-04-01 before:2026-05 "
            '"exact phrase" -word.'
        ),
        run=memory_search,
        quotes=True,
        unavailable=unavailable_search,
    ),
    Tool(
        name="memory_context",
        title="Pack memory",
        description=(
            "Pack the best notes and facts about a question into one text, with sources. Facts say from "
            "when to when they are true. Filters as in memory_search."
        ),
        run=memory_context_pack,
        quotes=True,
        unavailable=unavailable_pack,
    ),
    Tool(
        name="memory_get",
        title="Read a note",
        description="Read a note found by memory_search, or some of its lines.",
        run=memory_get,
        quotes=True,
    ),
    Tool(
        name="memory_recall",
        title="Recall",
        description="List what is known about a person, a thing or a time.",
        run=memory_recall,
        quotes=True,
    ),
    Tool(
        name="memory_recent",
        title="Recent memory",
        description="List what was written in the last few days, newest first.",
        run=memory_recent,
        quotes=True,
    ),
    Tool(
        name="memory_facts",
        title="Facts",
        description="List facts: the timeline of an entity, or what was true at a time.",
        run=memory_facts,
        quotes=True,
    ),
    Tool(
        name="memory_remember",
        title="Remember",
        description="Write one sentence worth keeping into the notes: a fact, an experience, an opinion.",
        run=memory_remember,
        writes=True,
    ),
    Tool(
        name="memory_forget",
        title="Forget",
        description=(
            "Forget permanently, in two steps: call it with a target to see what would go and get a token; "
            "once the user agrees, call it with the token."
        ),
        run=memory_forget,
        writes=True,
        destroys=True,
        quotes=True,
    ),
    Tool(
        name="memory_feedback",
        title="Rate a result",
        description="Say how well a result answered, or what you answered.",
        run=memory_feedback,
        writes=True,
    ),
    Tool(
        name="memory_explain",
        title="Explain a search",
        description="Explain how a search arrived at its results, or why a note did not come up.",
        run=memory_explain,
        quotes=True,
    ),
    Tool(
        name="memory_status",
        title="Memory status",
        description="Report what is indexed, which backends answer, and what does not work.",
        run=memory_status,
    ),
)
