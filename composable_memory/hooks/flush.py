"""Asks an agent, shortly before its context is compacted, to write down what must not be lost."""

import json
from datetime import datetime
from pathlib import Path

from composable_memory.config.settings import FlushSettings
from composable_memory.hooks.agent_json import HookCall
from composable_memory.hooks.session_state import SessionState
from composable_memory.memory_fence import SILENT
from composable_memory.paths import end_of_file

TAIL_BYTES = 1_000_000
PROMPT = (
    "Memory flush before compaction. Write down now whatever must outlast this conversation: decisions, "
    "facts, preferences, open questions. Put it in memory/YYYY-MM-DD.md (create the folder if needed)."
)
SAFETY = "Only append to that file; change nothing that is written there, and no other file."
HINT = f"If there is nothing to write down, and when you are done, reply with {SILENT} alone."


def plan_flush(call: HookCall, settings: FlushSettings, state: SessionState, *, now: datetime) -> str | None:
    """Return what to ask the agent now, at most once per compaction cycle; None to ask nothing.

    The agent is asked when its context has at least window - reserve - soft threshold tokens. A call at
    compaction starts a new cycle. `now` is the user's time. Changes `state`.
    """
    if call.compacts_now:
        state.compactions += 1
        state.shown.clear()
        return None
    window = call.context_window or settings.context_window
    threshold = window - settings.reserve_tokens - settings.soft_threshold_tokens
    cycle = state.compactions if call.compactions is None else call.compactions
    if not settings.enabled or call.is_again or call.tokens is None or not 0 < threshold <= call.tokens:
        return None
    if state.flushed == cycle:
        return None
    state.flushed = cycle
    return flush_prompt(settings, now)


def flush_prompt(settings: FlushSettings, now: datetime) -> str:
    """Return the request to an agent, with the date and time of its user."""
    prompt = (settings.prompt or PROMPT).replace("YYYY-MM-DD", now.date().isoformat())
    lines = [prompt, SAFETY]
    if "Current time:" not in prompt:
        lines.append(f"Current time: {now:%A, %Y-%m-%d %H:%M %Z}".rstrip())
    return "\n".join(lines if SILENT in prompt else [*lines, HINT])


def tokens_in_transcript(path: Path) -> tuple[int | None, int | None]:
    """Return how many tokens the context has and can hold, from the end of a transcript.

    Claude Code records the usage with each answer, Codex after each request. Reads the file.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    try:
        _, text = end_of_file(path, TAIL_BYTES)
    except FileNotFoundError:  # nothing has been said yet
        return None, None
    for line in reversed(text.split("\n")):
        try:
            record = json.loads(line) if "_tokens" in line else None
        except (ValueError, RecursionError):
            continue
        match record:
            case {
                "payload": {
                    "type": "token_count",
                    "info": {"last_token_usage": {"total_tokens": int(used)}} as info,
                }
            }:
                window = info.get("model_context_window")
                return used, window if isinstance(window, int) else None
            case {"isSidechain": True}:  # a subagent, with a context of its own
                continue
            case {"message": {"usage": {"input_tokens": int()} as usage}}:
                counts = (usage.get(name) for name in _USED)
                return sum(one for one in counts if isinstance(one, int)), None
    return None, None


_USED = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
