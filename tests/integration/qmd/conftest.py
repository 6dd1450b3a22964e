"""What tests of the QMD memory get: the real QMD, settings that name it, and memories opened over it.

`make qmd` installs QMD into the environment that runs the tests; `COMPOSABLE_MEMORY_TEST_QMD_COMMAND` names
another one. Every test has a home folder of its own, and so an index of its own: on two cores, QMD indexes
the seeded notes in 0.3 s, answers in 0.15 s as a process of its own, and in 10 ms as a daemon, which takes
0.6 s to start. `CI=true` keeps QMD from its models, `HOME` and the XDG variables are those of the test.
"""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from composable_memory.interfaces import BackendServices
from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.backend import QmdMemory, open_qmd
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_ops_logs import utc_now

NAMED = os.environ.get("COMPOSABLE_MEMORY_TEST_QMD_COMMAND")
START_S = 60.0

SettingsWith = Callable[..., QmdSettings]
OpenQmd = Callable[..., AbstractAsyncContextManager[QmdMemory]]


@pytest.fixture(scope="session")
def qmd_command() -> str:
    """Return the command of a real QMD, as the settings take it."""
    return NAMED or installed("qmd")


@pytest.fixture(scope="session")
def mcporter_command() -> str:
    """Return the command of a real mcporter; it needs a Node on its PATH, which `Home.environ` has."""
    return installed("mcporter")


def installed(program: str) -> str:
    """Return the command of what `make qmd` installs."""
    return shlex.quote(str(Path(sys.prefix) / "qmd" / "node_modules" / ".bin" / program))


@pytest.fixture
def qmd_settings(qmd_command: str) -> SettingsWith:
    """Return what makes settings for the real QMD."""
    return settings_for(qmd_command)


def settings_for(command: str) -> SettingsWith:
    """Return what makes settings for a command: updated only when told to, with time for a busy machine."""

    def settings(**options: object) -> QmdSettings:
        quiet = {"interval": 0, "on_boot": False, "embed_interval": 0}
        patient = {"timeout_ms": 60_000}
        return QmdSettings.model_validate(
            {"command": command, "update": quiet, "limits": patient, **options},
        )

    return settings


@pytest.fixture
def open_memory(qmd_settings: SettingsWith, services: BackendServices) -> OpenQmd:
    """Return what opens the memory of the seeded notes, synced once; `daemon=True` waits for the daemon."""
    return opener(qmd_settings, services)


def opener(settings: SettingsWith, services: BackendServices) -> OpenQmd:
    """Return what opens a memory with `settings`, synced once unless `sync=False`."""

    @asynccontextmanager
    async def opening(
        *, daemon: bool = False, sync: bool = True, **options: object
    ) -> AsyncIterator[QmdMemory]:
        # Files are as old as the disk says, so the time of an update has to be a real one.
        handed = replace(services, clock=utc_now, is_long_lived=daemon)
        chosen = settings(**{"daemon": {"enabled": daemon}, **options})
        async with open_qmd(chosen, handed) as memory:
            if sync:
                await memory.sync()
            if daemon:
                await daemon_running(memory)
            yield memory

    return opening


async def daemon_running(memory: QmdMemory) -> None:
    """Return when the daemon of `memory` answers.

    Raises:
        TimeoutError: it did not start in time.
    """
    async with asyncio.timeout(START_S):
        while (told := standing_of(memory)["daemon"])["state"] != "running":
            assert told["state"] != "failed", told
            await asyncio.sleep(0.01)


def standing_of(memory: QmdMemory) -> Mapping[str, Mapping[str, JsonValue]]:
    """Return what the memory's status says of QMD."""
    return cast("Mapping[str, Mapping[str, JsonValue]]", memory.status().custom["qmd"])
