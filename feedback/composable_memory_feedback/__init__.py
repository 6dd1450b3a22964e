"""Learns backend weights from ops-log events; stands below the core and imports none of it.

`composable_memory.learning` applies it to an open memory.
"""

__all__: list[str] = []
