"""Judgements that nobody had to give: what was read or quoted after a search."""
