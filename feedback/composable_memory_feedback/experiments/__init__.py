"""Two weight tables interleaved in live traffic, credited by use, stopped as soon as the data allow."""

from composable_memory_feedback.experiments.interleaving import Pick, seed_of, team_draft

# The rest is left to its modules: the way of a search needs no more than these.
__all__ = ["Pick", "seed_of", "team_draft"]
