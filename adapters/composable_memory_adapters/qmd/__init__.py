"""The QMD memory: Markdown searched by the QMD command, which keeps its own index."""

from composable_memory.config.trust import anything, folders_inside, only
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.supervision.resource import lazy_call, lazy_open
from composable_memory_adapters.qmd import installation
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.transport import mcporter

__all__ = ["QmdSettings", "spec"]


def _lacking(settings: QmdSettings) -> str | None:
    """Return what these settings need but is not installed, and how to install it; None if nothing."""
    without_mcporter = installation.lacking(settings)
    if without_mcporter is None and settings.mcporter.enabled:
        return mcporter.lacking(settings.mcporter)
    return without_mcporter


spec = BackendSpec(
    id="qmd",
    summary="Markdown in the workspace and in any other folder, searched by QMD",
    settings=QmdSettings,
    open=lazy_open("composable_memory_adapters.qmd.backend:open_qmd"),
    capabilities=frozenset(
        {
            Capability.ANSWER,
            Capability.CALIBRATED,
            Capability.FORGET,
            Capability.READ_FILE,
            Capability.REFRESH,
            Capability.SYNC,
        }
    ),
    lacks=_lacking,
    kept=lazy_call("composable_memory_adapters.qmd.home:kept"),
    trust={
        "include_default_memory": anything,
        "limits.*": anything,
        "search_mode": only("search"),
        "rerank": only(False),
        "sessions.enabled": only(False),
        "paths": folders_inside,
    },
)
