"""What tests of providers get: services, and a pace that takes no time."""

from pathlib import Path

import pytest

from composable_memory.interfaces import EmbedderServices
from composable_memory.supervision.backoff import Pace
from composable_memory.testing import FIXED_NOW
from composable_memory_ops_logs import OpsLog


class Naps:
    """Takes no time, and remembers how much it should have taken."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self.pace = Pace(sleep=self._sleep, draw=lambda: 0.5)

    async def _sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


@pytest.fixture
def naps() -> Naps:
    return Naps()


@pytest.fixture
def embedder_services(tmp_path: Path, ops_log: OpsLog) -> EmbedderServices:
    """Return services with nothing in the environment, and a clock that stands still."""
    return EmbedderServices(state_dir=tmp_path, environ={}, ops_log=ops_log, clock=lambda: FIXED_NOW)
