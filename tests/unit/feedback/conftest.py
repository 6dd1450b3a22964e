"""The feedback store, in a file and on a PostgreSQL server: all its tests run over both."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from composable_memory.interfaces import FeedbackServices
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_feedback.store.store import FeedbackStore
from tests.postgres_server import PostgresServer, make_tables
from tests.unit.feedback.store_makers import NOON


@pytest.fixture(scope="session")
def learnt_tables(postgres_server: PostgresServer) -> PostgresSettings:
    return asyncio.run(make_tables(postgres_server, "learnt"))


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.thorough)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FeedbackStore]:
    if request.param == "file":
        with FeedbackStore.open(tmp_path / "feedback.db", clock=lambda: NOON) as opened:
            yield opened
        return
    settings: PostgresSettings = request.getfixturevalue("learnt_tables")
    from composable_memory_adapters.postgres.feedback import PostgresFeedbackStore

    services = FeedbackServices(
        backend_id="team",
        workspace_id=uuid4().hex,
        environ={},
        clock=lambda: NOON,
        keep_traces=lambda _traces: None,
    )
    with PostgresFeedbackStore(settings, services) as shared:
        yield shared
