"""Memories that learn: an empty one, and one in which many answers were judged."""

import asyncio
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.feedback.learners import START, HandClock, Place, judge

JUDGED = 24


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a memory that nobody has asked anything."""
    workspace = tmp_path / "notes"
    workspace.mkdir()
    return Place(workspace=workspace, state=tmp_path / "state")


@pytest.fixture(scope="session")
def judged_original(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("judged")
    (folder / "notes").mkdir()
    place = Place(workspace=folder / "notes", state=folder / "state")

    async def prepare() -> None:
        async with place.memory() as memory:
            await judge(memory, range(JUDGED))

    asyncio.run(prepare())
    return place


@pytest.fixture
def judged(judged_original: Place, tmp_path: Path) -> Place:
    """Return a memory whose weights are wrong, an hour after 24 answers in it were judged."""
    shutil.copytree(judged_original.state, tmp_path / "state")
    place = replace(judged_original, state=tmp_path / "state", clock=HandClock(START + timedelta(hours=1)))
    return place.set(min_samples=10, min_intent_samples=100)
