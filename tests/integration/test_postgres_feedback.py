"""Memories that learn together on a PostgreSQL server: what one learns all use, and no server breaks none."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path

import pytest
from pydantic import SecretStr

from composable_memory import open_memory
from composable_memory.interfaces import FeedbackServices
from composable_memory.runtime.memory import Memory
from composable_memory.state.ops_log import judged_traces
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_ops_logs import utc_now
from tests.postgres_server import PostgresServer, make_tables, missing, running
from tests.unit.feedback.store_makers import NOON, judgement, table

if (reason := missing()) is not None:
    pytest.skip(reason, allow_module_level=True)

from composable_memory_adapters.postgres.feedback import TABLES, PostgresFeedbackStore
from composable_memory_adapters.postgres.schema import migrations

FOREVER_S = 60.0


def services(workspace_id: str) -> FeedbackServices:
    return FeedbackServices(
        backend_id="team",
        workspace_id=workspace_id,
        environ={},
        clock=utc_now,
        keep_traces=lambda _traces: None,
    )


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may kill."""
    with running() as server:
        server.run("CREATE EXTENSION vector", "CREATE ROLE team LOGIN")
        yield server


@asynccontextmanager
async def learner(settings: PostgresSettings, folder: Path) -> AsyncIterator[Memory]:
    """Open the memory of a folder, which learns with the others of the workspace `team`."""
    await asyncio.to_thread((folder / "memory").mkdir, parents=True)
    await asyncio.to_thread((folder / "memory" / "ferry.md").write_text, "The ferry leaves at nine.\n")
    assert settings.url is not None
    team = {
        "kind": "postgres",
        "workspace": "team",
        "schema": settings.schema_,
        "url": settings.url.get_secret_value(),
        "enabled": False,
    }
    config = {
        "embedding": {"provider": "none"},
        "backends": {"team": team},
        "feedback": {"backend": "team"},
    }
    async with open_memory(folder, folder / ".state", {"memory": config}) as memory:
        yield memory


async def weight_is(memory: Memory, weight: float) -> None:
    """Wait until a weight is in force, without asking the store."""
    async with asyncio.timeout(FOREVER_S):
        while memory.weights.now.table["builtin"] != weight:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


async def test_what_one_memory_learns_all_use_though_notifications_are_lost(
    team_settings: PostgresSettings, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with (
        learner(team_settings, tmp_path / "ada") as ada,
        learner(team_settings, tmp_path / "bob") as bob,
    ):
        await ada.learning.weights.set({"builtin": 0.5})
        await weight_is(bob, 0.5)
        postgres_server.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        )
        await ada.learning.weights.set({"builtin": 0.25})
        await weight_is(bob, 0.25)
        history = await bob.learning.weights.history()

    assert len(history) == 2
    assert not (tmp_path / "bob" / ".state" / "feedback").exists()


def test_whoever_waits_for_a_change_is_told_at_once(team_settings: PostgresSettings) -> None:
    settings = team_settings.model_copy(update={"connect_timeout_ms": 60_000})  # beside heavy load
    with (
        PostgresFeedbackStore(settings, services("w")) as one,
        PostgresFeedbackStore(settings, services("w")) as other,
        PostgresFeedbackStore(settings, services("another")) as stranger,
    ):
        one.wait_for_change(0.0)  # it listens from here on
        mark = one.change_mark()
        stranger.add([judgement()])
        assert other.add([judgement()]) == 1
        one.wait_for_change(1e6)  # days, unless somebody tells

        assert one.change_mark() > mark
        assert one.judgements() == other.judgements() == [judgement()]


@pytest.mark.thorough
async def test_while_the_server_is_away_weights_serve_and_nothing_is_acknowledged(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    settings = await make_tables(own_server, "learnt")
    async with learner(settings, tmp_path / "ada") as ada:
        await ada.sync()
        await ada.learning.weights.set({"builtin": 0.5})
        asked = await ada.query("When does the ferry leave?")
        await asyncio.to_thread(own_server.kill)

        with pytest.raises(FeedbackError, match="try again when the server answers"):
            await ada.learning.judging.judge(asked.trace_id, "1", relevance=1.0, used=True)
        answer = await ada.query("When does the ferry leave?")
        assert answer.results
        assert ada.weights.now.table["builtin"] == 0.5
        assert "feedback" in {one.backend_id for one in answer.degraded}
        assert "feedback" in {one.backend_id for one in ada.unavailable()}

        await asyncio.to_thread(own_server.start)
        await ada.learning.judging.judge(asked.trace_id, "1", relevance=1.0, used=True)
        again = await ada.query("When does the ferry leave?")
        assert "feedback" not in {one.backend_id for one in again.degraded}
        assert (await ada.context.stored(lambda store: store.judgements_mark()))[0] == 1
        assert await asyncio.to_thread(judged_traces, ada.state_dir) == {asked.trace_id}


@pytest.mark.thorough
async def test_weights_are_those_that_were_learnt_when_the_server_is_back(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    settings = await make_tables(own_server, "learnt")
    async with learner(settings, tmp_path / "ada") as ada:
        await ada.learning.weights.set({"builtin": 0.5})
    await asyncio.to_thread(own_server.kill)
    async with learner(settings, tmp_path / "bob") as bob:
        before = await bob.query("When does the ferry leave?")
        await asyncio.to_thread(own_server.start)
        await weight_is(bob, 0.5)
        after = await bob.query("When does the ferry leave?")

    assert "weights" in {one.backend_id for one in before.degraded}
    assert "weights" not in {one.backend_id for one in after.degraded}


def test_workspaces_do_not_see_what_others_learn_and_nothing_is_seen_without_one(
    team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    with PostgresFeedbackStore(team_settings, services("one")) as one:
        one.add([judgement()])
        one.adopt(table(), base={"a": 1.0}, actor="ada", at=NOON)
        one.set_mark("log", "5")
        with PostgresFeedbackStore(team_settings, services("two")) as two:
            assert two.judgements() == []
            assert two.current() is None
            assert two.mark("log") is None
            two.adopt(table(), base={"a": 1.0}, actor="bob", at=NOON)
            assert [change.actor for change in one.history()] == ["ada"]

    for name in (*TABLES, "feedback_revisions"):
        count = f"SELECT count(*) FROM {team_settings.schema_}.{name}"
        assert postgres_server.run("SET ROLE team", count).strip() == "0", name


def test_what_others_learn_stays_though_a_role_passes_by_row_level_security(
    team_settings: PostgresSettings, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    passing = team_settings.model_copy(update={"url": SecretStr(postgres_server.url())})
    with (
        PostgresFeedbackStore(passing, services("ada")) as ada,
        PostgresFeedbackStore(passing, services("bob")) as bob,
    ):
        ada.add([judgement()])
        ada.adopt(table(), base={"a": 1.0}, actor="ada", at=NOON)
        ada.copy_into(tmp_path / "before.db")
        bob.copy_into(tmp_path / "nothing.db")
        bob.add([judgement()])
        bob.restore_from(tmp_path / "nothing.db", memory="m", was="m")

        assert bob.judgements() == []
        assert bob.current() is None
        assert ada.judgements() == [judgement()]
        assert ada.current() is not None


async def test_what_was_learnt_before_an_upgrade_stays_and_goes_before_what_is_learnt_after(
    postgres_server: PostgresServer,
) -> None:
    old = await asyncio.to_thread(migrations)
    await asyncio.to_thread(
        postgres_server.run,
        "CREATE SCHEMA fifth",
        "CREATE TABLE fifth.schema_version AS SELECT 5 AS version",
        "SET search_path = fifth, public",
        *chain.from_iterable(old[:5]),
        "INSERT INTO workspaces (name) VALUES ('w')",
        "SET cmem.tenant = '1'",
        "INSERT INTO golden (question, query) VALUES ('ferry?', '{}'), ('boat?', '{}')",
        "INSERT INTO judgements (trace_id, query_id, path, start_line, end_line, kind, judge, at, rank,"
        " intent, relevance, was_used, rationale) VALUES ('t', 'q', 'a.md', 1, 2, 'explicit', '',"
        " '2026-03-01T12:00:00.000Z', 1, 'general', 0.5, 1, '')",
    )
    settings = await make_tables(postgres_server, "fifth")

    def learn() -> list[str]:
        with PostgresFeedbackStore(settings, services("w")) as store:
            assert store.add([judgement()]) == 1
            return [one.trace_id for one in store.judgements()]

    traces = await asyncio.to_thread(learn)
    ids = await asyncio.to_thread(postgres_server.run, "SELECT trace_id FROM fifth.judgements ORDER BY id")
    assert traces == ids.split() == ["t", judgement().trace_id]


def test_what_was_learnt_moves_between_a_file_and_the_server(
    team_settings: PostgresSettings, tmp_path: Path
) -> None:
    with (
        FeedbackStore.open(tmp_path / "feedback.db", clock=lambda: NOON) as file,
        PostgresFeedbackStore(team_settings, services("moved")) as server,
    ):
        file.add([judgement(), judgement("b.md")])
        adopted = file.adopt(table(), base={"a": 1.0}, actor="ada", at=NOON)
        file.copy_into(tmp_path / "copy.db")

        server.restore_from(tmp_path / "copy.db", memory="m", was="m")
        server.copy_into(tmp_path / "back.db")

        with FeedbackStore.open(tmp_path / "back.db") as back:
            for one in (server, back):
                assert one.judgements() == file.judgements()
                assert one.history() == file.history()
                stored = one.current()
                assert stored is not None
                assert stored.table == adopted
        lines: list[bytes] = []
        server.export(lines.append, memory="m")
        assert json.loads(lines[0])["format"] == "composable-memory-feedback"
        assert server.import_(lines, memory="m").added == {}
