"""What other programs know of the settings, under the names that they know it by.

The only place of the core that calls a backend by its name: callers of `resolve_memory_backend_config` that
were written for another program expect the settings of QMD in a field of their own.
"""

from collections.abc import Mapping

from composable_memory.config.settings import CitationMode, MemorySettings
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMemoryBackendConfig:
    """Which backend comes first, when results are cited, and by id the own settings of enabled backends."""

    backend: str
    citations: CitationMode
    options: Mapping[str, Mapping[str, object]]
    qmd: Mapping[str, object] | None

    @classmethod
    def of(
        cls, memory: MemorySettings, options: Mapping[str, Mapping[str, object]]
    ) -> "ResolvedMemoryBackendConfig":
        """Return the settings under their names; `options` are those of enabled backends, by id."""
        return cls(
            backend=memory.backend, citations=memory.citations, options=options, qmd=options.get("qmd")
        )
