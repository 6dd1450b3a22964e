"""Every reranker keeps the contract."""

from pathlib import Path

import pytest

from composable_memory.interfaces import Reranker, RerankServices
from composable_memory.testing import Opener, RerankerContract
from composable_memory_adapters.rerankers import spec as late_interaction


@pytest.mark.usefixtures("rerank_extra")
class TestLateInteraction(RerankerContract):
    @pytest.fixture
    def open_reranker(self, tmp_path: Path) -> Opener[Reranker]:
        return lambda: late_interaction.open(RerankServices(collection="index-1", state_dir=tmp_path))
