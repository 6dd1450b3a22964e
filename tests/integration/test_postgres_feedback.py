"""Memories that learn together on a PostgreSQL server: what one learns all use, and no server breaks none."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import chain
from math import inf
from pathlib import Path

import pytest
from pydantic import SecretStr

from composable_memory import open_memory
from composable_memory.interfaces import FeedbackServices
from composable_memory.runtime.memory import Memory
from composable_memory.state.ops_log import judged_traces
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Experiment
from composable_memory_feedback.golden import GoldenQuestion, GoldenRecord
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.kinds import EVALUATIONS, EXPERIMENTS, GOLDEN, WEIGHTS, time_text
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import WeightChange
from composable_memory_ops_logs import utc_now
from tests.postgres_server import PostgresServer, distribute_earlier, make_tables, missing, running
from tests.unit.feedback.store_makers import NOON, evaluation, judgement, logged_query, table
from tests.variants import variants

if (reason := missing()) is not None:
    pytest.skip(reason, allow_module_level=True)

from composable_memory_adapters.postgres.feedback import PostgresFeedbackStore
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

    for name in ("entries", "feedback_revisions"):
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


ODD = 'a "b"\\/\t\n\x01\x1f\x7f\u2028ü\U0001f5dd.md'
"""Characters that JSON may write in several ways."""

LEARNT = """
INSERT INTO judgements (trace_id, query_id, path, start_line, end_line, kind, judge, at, rank, backend,
  intent, relevance, was_used, rationale)
VALUES ('{odd}', 'q1', '{odd}', 1, 9, 'explicit', '{odd}', '{at}', 1, 'builtin',
    'general', 0.1::float8 + 0.2, 1, E'because\n"so"'),
  ('t1', 'q2', 'b.md', 1, 9, 'model', '', '{at}', 1, NULL, 'general', 1, 0, '');
INSERT INTO evaluations (reserved_at, at, detail)
VALUES ('{at}', '{at}', '{evaluation}'), ('{at}', NULL, NULL);
INSERT INTO weight_tables (number, version, replaced, detail)
VALUES (1, 'v1', NULL, '{table}'), (2, 'v2', 'v1', '{other}');
INSERT INTO weight_changes (version, replaced, at, actor, action, reason, base, gain)
VALUES ('v1', NULL, '{at}', 'Ada', 'adopt', 'it answers better', '{{"a":0.30000000000000004}}', '{gain}'),
  ('v2', 'v1', '{at}', 'cli', 'adopt', 'it answers better', '{{}}', NULL),
  (NULL, 'v2', '{at}', 'cli', 'reset', 'back', '{{}}', NULL);
INSERT INTO experiments (id, memory, state, started_at, detail)
VALUES ('e1', NULL, 'running', '{at}', '{experiment}');
INSERT INTO outcomes (experiment_id, trace_id, query_id, at, a, b)
VALUES ('e1', 't1', 'q1', '{at}', 1.0 / 3, 0);
INSERT INTO golden (question, query) VALUES ('{question}', '{query}');
INSERT INTO marks (name, value) VALUES ('day', '1')
"""


@pytest.mark.parametrize("version", variants(range(5, 15), 5))
async def test_what_was_learnt_before_an_upgrade_stays_and_goes_before_what_is_learnt_after(
    postgres_server: PostgresServer, version: int
) -> None:
    old, schema = await asyncio.to_thread(migrations), f"learnt_{version}"
    record = GoldenRecord(
        question=GoldenQuestion(id=f"{ODD}z", question="where\0?", expected=()),
        query=replace(logged_query(), query="where\0?"),
    )
    changes = [
        WeightChange(
            table=replace(table(builtin), version=name),
            at=NOON,
            actor=actor,
            action="adopt",
            reason="it answers better",
            base=base,
            gain=gain,
            replaced=replaced,
        )
        for name, builtin, actor, base, gain, replaced in (
            ("v1", 0.1 + 0.2, "Ada", {"a": 0.1 + 0.2}, Interval(mean=0.1, low=-1 / 3, high=0.7), None),
            ("v2", 0.5, "cli", {}, None, "v1"),
        )
    ]
    reset = WeightChange(
        table=None, at=NOON, actor="cli", action="reset", reason="back", base={}, replaced="v2"
    )
    running = Experiment(id="e1", a=table(), b=table(0.1 + 0.2), started_at=NOON)
    first, second = (json.loads(WEIGHTS.write(one)) for one in changes)
    parts = json.loads(GOLDEN.write(record))
    evaluated = replace(evaluation(), query="where\0?", model=ODD, duration_ms=inf)
    written = {
        "odd": ODD,
        "at": time_text(NOON),
        "evaluation": EVALUATIONS.write(evaluated),
        "table": json.dumps(first["table"]),
        "other": json.dumps(second["table"]),
        "gain": json.dumps(first["gain"]),
        "experiment": EXPERIMENTS.write(running),
        "question": json.dumps(parts["question"]),
        "query": json.dumps(parts["query"], ensure_ascii=False),
    }
    await asyncio.to_thread(
        postgres_server.run,
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.schema_version AS SELECT {version} AS version",
        f"SET search_path = {schema}, public",
        *chain.from_iterable(old[:version]),
        "INSERT INTO workspaces (name) VALUES ('w'), ('other')",
        "SET cmem.tenant = '1'",
        LEARNT.format(**written),
        "SET cmem.tenant = '2'",
        "INSERT INTO marks (name, value) VALUES ('day', '2')",
    )
    await asyncio.to_thread(distribute_earlier, postgres_server, schema, version)
    settings = await make_tables(postgres_server, schema)

    def learn() -> None:
        with PostgresFeedbackStore(settings, services("w")) as store:
            assert store.evaluations() == [evaluated]
            assert store.history() == [reset, *changes[::-1]]
            assert store.golden() == [record]
            assert (store.experiments(), store.running_experiment()) == ([running], running)
            (outcome,) = store.outcomes("e1")
            assert (outcome.a, outcome.b) == (1 / 3, 0.0)
            assert store.record_outcomes([replace(outcome, b=0.5)])
            assert len(store.outcomes("e1")) == 1
            assert store.mark("day") == "1"
            said, other = store.judgements()
            assert (said.path, said.rationale) == (ODD, 'because\n"so"')
            assert (said.relevance, said.was_used, other.backend) == (0.1 + 0.2, True, None)
            assert store.add([judgement()]) == 1
            assert store.judgements() == [said, other, judgement()]
            assert store.add([said]) == 0
            with store.writing() as entries:
                EVALUATIONS.put(entries, evaluated)
                GOLDEN.put(entries, record)
            assert len(store.judgements()) == 3
            assert (store.evaluations(), store.golden()) == ([evaluated], [record])
            assert store.adopt(table(), base={}, actor="cli", at=NOON).version == "v3"
        with PostgresFeedbackStore(settings, services("other")) as store:
            assert (store.judgements(), store.mark("day")) == ([], "2")

    await asyncio.to_thread(learn)


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
