"""How often the tests repeat what chance decides or what leaks little by little."""

import os

__all__ = ["rounds"]


def rounds(usually: int, *, explore: int) -> int:
    """Return how many rounds to run: few in an ordinary run, more in `make explore`, which has hours."""
    return explore if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else usually
