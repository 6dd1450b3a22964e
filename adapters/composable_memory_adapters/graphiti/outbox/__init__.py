"""The durable queue of the graph: every episode that was handed in is stored in the end, or reported."""
