"""Forgetting: planning it, removing text everywhere, and keeping it from coming back."""
