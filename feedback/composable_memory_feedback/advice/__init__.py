"""Proposals for better weights, and the advisors that make them."""
