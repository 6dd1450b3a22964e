"""Turns settings into an open memory: the only place that wires the parts together."""
