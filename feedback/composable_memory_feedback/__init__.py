"""Learns backend weights from ops-log events; stands below the core and imports none of it."""

__all__: list[str] = []
