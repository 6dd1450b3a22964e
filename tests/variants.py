"""Parameters of tests that take long, of which `make test` runs some and `.ci/full` all."""

from collections.abc import Iterable

import pytest

__all__ = ["variants"]


def variants(parameters: Iterable[object], *kept: object) -> list[object]:
    """Return the parameters, those that are not kept for every run marked as `thorough`."""
    everything = list(parameters)
    if missing := [one for one in kept if one not in everything]:
        raise ValueError(f"not among the parameters: {missing}")
    return [
        one
        if one in kept
        else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.thorough)
        for one in everything
    ]
