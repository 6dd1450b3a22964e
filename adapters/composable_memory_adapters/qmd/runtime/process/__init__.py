"""Commands that run beside us: with limits that hold, and with nothing of them left afterwards."""

from composable_memory_adapters.qmd.runtime.process.guard import GuardedProcess, comes_first
from composable_memory_adapters.qmd.runtime.process.running import Reply, run

__all__ = ["GuardedProcess", "Reply", "comes_first", "run"]
