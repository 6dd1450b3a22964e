"""What happens to a query: routing, fan-out, fusion, the packed context, and its log."""
