"""The settings of enabled backends under the names that callers of `resolve_memory_backend_config` know.

The only place of the core that calls a backend by its name: callers that were written for another program
expect its settings in a field of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from composable_memory.config.settings import CitationMode

__all__ = ["ResolvedMemoryBackendConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedMemoryBackendConfig:
    """Which backend comes first, when results are cited, and by id the own settings of enabled backends."""

    backend: str
    citations: CitationMode
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    @property
    def qmd(self) -> Mapping[str, object] | None:
        """Return the settings of QMD; None where it is not enabled."""
        return self.options.get("qmd")
