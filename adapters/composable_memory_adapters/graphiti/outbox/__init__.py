"""The durable queue of the graph: every accepted episode is eventually stored or reported as failed."""
