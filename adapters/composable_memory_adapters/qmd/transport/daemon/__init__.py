"""A QMD server on this machine, one for a home: found, shared, started, watched over, and asked over HTTP."""

from composable_memory_adapters.qmd.transport.daemon.keeper import Daemon, DaemonStanding

__all__ = ["Daemon", "DaemonStanding"]
