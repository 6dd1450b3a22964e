"""Commands that run beside us: with limits that hold, and with nothing of them left afterwards."""

from composable_memory_adapters.qmd.machine.process.guard import GuardedProcess, comes_first
from composable_memory_adapters.qmd.machine.process.running import Reply, run

__all__ = ["GuardedProcess", "Reply", "comes_first", "run"]
