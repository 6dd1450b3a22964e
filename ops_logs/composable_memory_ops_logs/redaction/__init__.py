"""Masks secrets in texts before they are stored, embedded or logged."""
