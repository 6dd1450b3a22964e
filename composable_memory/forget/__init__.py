"""Forgetting: what would go, removing it everywhere, and keeping it from coming back."""
