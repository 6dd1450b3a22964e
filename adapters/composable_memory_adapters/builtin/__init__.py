"""The builtin memory: Markdown notes of a workspace in one SQLite file, searched by words and meaning."""

from collections.abc import Sequence
from pathlib import Path

from composable_memory.config.trust import anything, only, paths_inside
from composable_memory.interfaces import BackendSpec, Capability, KeptStore
from composable_memory.supervision.resource import lazy_open
from composable_memory_adapters.builtin.settings import BuiltinSettings

__all__ = ["BuiltinSettings", "spec"]


def _kept(state_dir: Path) -> Sequence[KeptStore]:
    from composable_memory_adapters.builtin.status import kept

    return kept(state_dir)


spec = BackendSpec(
    id="builtin",
    summary="Markdown notes of the workspace, searched by words and by meaning",
    settings=BuiltinSettings,
    open=lazy_open("composable_memory_adapters.builtin.backend:open_builtin"),
    capabilities=frozenset(
        {
            Capability.ANSWER,
            Capability.CALIBRATED,
            Capability.CHECK,
            Capability.FORGET,
            Capability.READ_FILE,
            Capability.REFRESH,
            Capability.SYNC,
        }
    ),
    kept=_kept,
    trust={
        **dict.fromkeys(("enabled", "timeout_ms", "calibration", "condition"), anything),
        **dict.fromkeys(("chunking.*", "query.*", "sync.*", "cache.*"), anything),
        "query.rerank": only("auto", "off", "late-interaction"),  # another one may send texts to a service
        "sources": only(["memory"], []),
        "scope": anything,
        "extra_paths": paths_inside,
    },
)
