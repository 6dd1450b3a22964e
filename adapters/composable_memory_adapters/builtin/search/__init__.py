"""From a query to results: keyword and vector search, fused into one ranking."""
