"""The builtin memory: indexes a workspace's Markdown notes in SQLite; searches by keywords and vectors."""

from composable_memory.config.trust import anything, only, paths_inside
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.supervision.resource import lazy_call, lazy_open
from composable_memory_adapters.builtin.settings import BuiltinSettings

__all__ = ["BuiltinSettings", "spec"]


spec = BackendSpec(
    id="builtin",
    summary="Notes in the workspace, searched by words and by meaning",
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
    kept=lazy_call("composable_memory_adapters.builtin.status:kept"),
    trust={
        **dict.fromkeys(("enabled", "timeout_ms", "calibration", "condition"), anything),
        **dict.fromkeys(("chunking.*", "query.*", "sync.*", "cache.*"), anything),
        "query.rerank": only("auto", "off", "late-interaction"),  # another one may send texts to a service
        "sources": only(["memory"], []),
        "scope": anything,
        "extra_paths": paths_inside,
    },
)
