"""Compatibility with other programs: the settings under the names that they use.

The only place in the core that knows a backend by name: callers of `resolve_memory_backend_config` written
for another program expect the settings of QMD in a separate field, and OpenClaw's file says beside `memory`
how the memory of its agents is searched.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from composable_memory.config.settings import DEFAULT_BACKEND, CitationMode, MemorySettings
from composable_memory.config.trees import Leaf, Tree, join, leaves, merge, plain
from composable_memory.config.validation import is_secret
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMemoryBackendConfig:
    """The primary backend, when results are cited, and the own settings of each enabled backend by id."""

    backend: str
    citations: CitationMode
    options: Mapping[str, Mapping[str, object]]
    qmd: Mapping[str, object] | None

    @classmethod
    def of(
        cls, memory: MemorySettings, options: Mapping[str, Mapping[str, object]]
    ) -> "ResolvedMemoryBackendConfig":
        """Return the settings under these names; `options` are those of enabled backends, by id."""
        return cls(
            backend=memory.backend, citations=memory.citations, options=options, qmd=options.get("qmd")
        )


# --- OpenClaw's file ----------------------------------------------------------------------------------------

_SEARCH = "agents.defaults.memory_search"
_NEWER_SEARCH = "search"
_COMPACTION = "agents.defaults.compaction"
_INCLUDES = ("$include", "agents.$include", "agents.defaults.$include")
OPENCLAW_KEYS = (_SEARCH, _COMPACTION, "agents.list.*.memory_search", *_INCLUDES)
"""What OpenClaw's file says about memory outside `memory`."""

_OF_THE_INDEX = """
sources extra_paths chunking.tokens chunking.overlap store.vector.enabled cache.enabled cache.max_entries
query.hybrid.enabled query.hybrid.vector_weight query.hybrid.text_weight query.hybrid.candidate_multiplier
query.hybrid.mmr.enabled query.hybrid.mmr.lambda
query.hybrid.temporal_decay.enabled query.hybrid.temporal_decay.half_life_days
sync.on_session_start sync.on_search sync.watch sync.watch_debounce_ms sync.interval_minutes
sync.sessions.delta_bytes sync.sessions.delta_messages
""".split()
_OF_THE_FLUSH = {
    **{f"memory_flush.{key}": f"hooks.flush.{key}" for key in ("enabled", "soft_threshold_tokens", "prompt")},
    "reserve_tokens_floor": "hooks.flush.reserve_tokens",
}
_OF_THE_SEARCH = {
    **{key: f"{DEFAULT_BACKEND}.{key}" for key in _OF_THE_INDEX},
    **{key: f"embedding.{key}" for key in ("provider", "fallback", "model")},
    **{key: key for key in ("query.max_results", "query.min_score")},
    **{f"local.{key}": f"embedding.providers.local.{key}" for key in ("model_path", "model_cache_dir")},
}
"""Our key for each one in `memorySearch`; above, for those in `compaction` that concern memory."""
_VARIABLE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
"""A value that OpenClaw takes from an environment variable."""


def merge_openclaw(memory: Tree, content: Mapping[str, Tree]) -> tuple[Tree, list[str]]:
    """Return a file's `memory` section with what OpenClaw says elsewhere, and which of that is ignored.

    What is said elsewhere is implied: any layer's `memory` overrides it.
    """
    notes: list[str] = []
    newer = memory.get(_NEWER_SEARCH)
    if isinstance(newer, dict):
        memory = {name: item for name, item in memory.items() if name != _NEWER_SEARCH}
        content = {**content, _SEARCH: merge(content.get(_SEARCH, {}), newer)}
    for section in OPENCLAW_KEYS:
        search = content.get(section, {})
        provider = plain(search["provider"]) if "provider" in search else None
        for key, leaf in leaves(search):
            ours = _counterpart(section, key, provider)
            if ours is None:
                if section == _COMPACTION and not key.startswith("memory_flush."):
                    continue  # how OpenClaw compacts does not concern us
                name = join(section, key).rstrip(".")
                notes.append(f"{name} ({leaf.origin}) has no equivalent here and is ignored")
            else:
                memory = merge(_branch(ours, leaf), memory)
    return memory, notes


def _counterpart(section: str, key: str, provider: object) -> str | None:
    if section != _SEARCH:
        return _OF_THE_FLUSH.get(key) if section == _COMPACTION else None
    is_remote = re.match(r"remote\.(?:base_url$|api_key$|headers\.)", key)
    if is_remote and isinstance(provider, str) and provider not in ("auto", "none", "local"):
        return f"embedding.providers.{provider}.{key.removeprefix('remote.')}"
    return _OF_THE_SEARCH.get(key)


def _branch(key: str, leaf: Leaf) -> Tree:
    *parents, name = key.split(".")
    variable = _VARIABLE.fullmatch(leaf.value) if isinstance(leaf.value, str) and is_secret(name) else None
    value = variable[1] if variable else leaf.value
    branch: Tree = {f"{name}_env" if variable else name: replace(leaf, value=value, is_implied=True)}
    for parent in reversed(parents):
        branch = {parent: branch}
    return branch
