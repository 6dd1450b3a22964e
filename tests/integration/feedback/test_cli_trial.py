"""What a newcomer runs into at the command line: odd numbers, empty times, a missing log, a broken model."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory.cli.charts import Chart, Mark, Point, Series
from composable_memory.cli.pictures import write_picture
from composable_memory_feedback.errors import FeedbackError
from tests.integration.feedback.learners import Place, ask

NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)
NOBODY = "http://127.0.0.1:1/v1"
"""Where nobody listens."""
needs_matplotlib = pytest.mark.skipif(not find_spec("matplotlib"), reason="needs the extra plots")


@pytest.fixture
def cmem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Cmem":
    config = tmp_path / "config.yaml"
    config.write_text("memory: {embedding: {provider: none}}", encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "notes").mkdir()
    return Cmem(tmp_path)


class Cmem:
    """The command line on a memory that nobody has asked anything."""

    def __init__(self, folder: Path) -> None:
        self._place = ("--workspace", str(folder / "notes"), "--state-dir", str(folder / "state"))

    def __call__(self, *args: str) -> Result:
        return CliRunner().invoke(app, [*args, *self._place])


# --- times without anything ---------------------------------------------------------------------------------


def test_a_replay_of_an_empty_time_does_not_say_that_the_log_is_empty(cmem: Cmem) -> None:
    assert "no query of this time" in cmem("replay", "--since", "1h").stderr
    assert "`cmem search` makes one" in cmem("replay").stderr


@pytest.mark.parametrize("command", ["stats", "plot"])
def test_an_empty_time_does_not_say_that_nothing_was_ever_judged(cmem: Cmem, command: str) -> None:
    assert "no judgements since 2030-01-0" in cmem("feedback", command, "--since", "2030-01-02").stderr


# --- pictures -----------------------------------------------------------------------------------------------


def picture(path: Path, chart: Chart) -> str:
    write_picture([chart], path)
    return path.read_text(encoding="utf-8")


def chart(*points: Point, marks: Sequence[Mark] = (), end: datetime = NOON) -> Chart:
    return Chart(
        title="Quality",
        unit="mean relevance",
        course="days",
        start=end - timedelta(days=2),
        end=end,
        series=(Series(name="notes", points=points),),
        marks=tuple(marks),
    )


@pytest.mark.thorough
@needs_matplotlib
def test_the_quality_of_today_is_in_the_picture_before_noon_too(tmp_path: Path) -> None:
    morning = NOON - timedelta(hours=6)
    midnight = NOON - timedelta(hours=12)

    text = picture(tmp_path / "a.svg", chart(Point(at=midnight, value=0.5), end=morning))

    drawn, _, _ = text.partition('id="legend_1"')
    edge = max(float(x) for x in re.findall(r"[ML] ([0-9.]+) [0-9.]+", drawn.split('id="axes_1"')[1])[:4])
    (marker,) = re.findall(r'<use [^>]*x="([0-9.]+)"[^>]*fill: #2563eb', drawn)
    assert float(marker) <= edge


@needs_matplotlib
def test_of_marks_at_one_place_the_latest_is_named(tmp_path: Path) -> None:
    marks = [Mark(at=NOON - timedelta(minutes=5 - number), text=f"v{number}") for number in range(1, 5)]

    text = picture(tmp_path / "a.svg", chart(Point(at=NOON - timedelta(days=1), value=0.5), marks=marks))

    assert re.findall(r">(v\d)<", text) == ["v4"]


@needs_matplotlib
def test_a_picture_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(FeedbackError, match=r"not written: .*nowhere.*No such file"):
        write_picture([chart()], tmp_path / "nowhere" / "a.svg")


# --- judgements ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["memory/item-7.md:1-3", "memory/item-7.md#L1-L3", "memory/item-7.md:1:3"])
async def test_a_result_is_judged_by_the_name_that_a_search_shows(place: Place, name: str) -> None:
    async with place.memory() as memory:
        judgement = await memory.learning.judging.judge(await ask(memory, 7), name, relevance=1.0)

    assert judgement.path == "memory/item-7.md"


async def test_a_model_that_keeps_failing_is_not_asked_for_every_query(place: Place) -> None:
    place = place.set(llm={"base_url": NOBODY})
    async with place.memory() as memory:
        for number in range(6):
            await ask(memory, number)
        run = await memory.learning.judging.evaluate()

    assert (len(run.outcomes), run.left) == (3, 6)
    assert run.stopped == "the last 3 evaluations failed"
    assert all(one.evaluation is not None and one.evaluation.duration_ms > 0 for one in run.outcomes)


# --- experiments --------------------------------------------------------------------------------------------


async def test_without_a_log_no_experiment_begins(place: Place) -> None:
    silent = Place(workspace=place.workspace, state=place.state, log=False)
    async with silent.learning() as learning:
        with pytest.raises(FeedbackError, match="without a log"):
            await learning.experiments.start(
                await learning.weights.named("now"), await learning.weights.named("equal")
            )

        assert (await learning.weights.report()).experiment is None


async def test_a_table_that_finds_nothing_is_no_side_of_an_experiment(place: Place) -> None:
    async with place.learning() as learning:
        with pytest.raises(FeedbackError, match="every weight is 0"):
            await learning.experiments.start(
                await learning.weights.named("now"), await learning.weights.named("sure=0,vague=0")
            )
