"""From contents to facts: the durable queue, and what works through it."""
