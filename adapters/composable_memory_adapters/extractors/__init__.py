"""Rule-based extractors of entities and relations, which need no model."""

from composable_memory_adapters.extractors.heuristic import HeuristicExtractor

__all__ = ["HeuristicExtractor"]
