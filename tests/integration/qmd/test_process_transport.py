"""A process for each question, with the real QMD; faults with small programs in its place."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory_adapters.qmd.installation import find_command
from composable_memory_adapters.qmd.transport.qmd_client import ProcessTransport
from composable_memory_adapters.qmd.types import Home, Installation, SubSearch
from tests.integration.qmd.homes import PATIENCE_S, QUESTION, furnish, update


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return furnish(tmp_path / "qmd-home")


@pytest.fixture
def installation(qmd_command: str) -> Installation:
    return Installation(command=find_command(qmd_command, os.environ), version="2.8.3")


def faulty(tmp_path: Path, program: str) -> Installation:
    """Return a program that is taken for QMD."""
    script = tmp_path / "faulty-qmd.py"
    script.write_text(f"import os, signal, sys, time\n{program}\n", encoding="utf-8")
    return Installation(command=(sys.executable, str(script)), version="2.8.3")


async def test_a_question_finds_a_note(installation: Installation, home: Home) -> None:
    await update(installation, home)

    hits = await ProcessTransport(installation, home).ask(QUESTION, timeout_s=PATIENCE_S)

    assert [(hit.collection, hit.path, hit.start_line) for hit in hits] == [("notes", "gateway.md", 1)]


async def test_what_is_nowhere_is_not_found(installation: Installation, home: Home) -> None:
    await update(installation, home)
    nowhere = replace(QUESTION, searches=(SubSearch(kind="lex", text="elephant"),))

    assert await ProcessTransport(installation, home).ask(nowhere, timeout_s=PATIENCE_S) == []


async def test_searches_are_fused(installation: Installation, home: Home) -> None:
    await update(installation, home)
    several = replace(QUESTION, searches=tuple(SubSearch(kind="lex", text=text) for text in ("no", "rate")))

    assert len(await ProcessTransport(installation, home).ask(several, timeout_s=PATIENCE_S)) == 1


async def test_a_question_that_looks_like_an_option_is_a_question(
    installation: Installation, home: Home
) -> None:
    await update(installation, home)
    widened = replace(QUESTION, text="--version", searches=(), expand=True)

    with pytest.raises(BackendUnavailable, match="no models while the variable CI is set"):
        await ProcessTransport(installation, home).ask(widened, timeout_s=PATIENCE_S)


async def test_a_folder_above_cannot_bring_another_index(installation: Installation, home: Home) -> None:
    await update(installation, home)
    hijack = home.root / ".qmd"
    hijack.mkdir()
    (hijack / "index.yml").write_text("collections: {}\n")

    assert len(await ProcessTransport(installation, home).ask(QUESTION, timeout_s=PATIENCE_S)) == 1


async def test_a_missing_collection_is_named(installation: Installation, home: Home) -> None:
    await update(installation, home)
    elsewhere = replace(QUESTION, collections=("nope",))

    with pytest.raises(BackendRejected, match="unknown collection: nope"):
        await ProcessTransport(installation, home).ask(elsewhere, timeout_s=PATIENCE_S)


@pytest.mark.parametrize(
    ("program", "error", "told"),
    [
        ("time.sleep(600)", BackendTimeout, "limit 1 s"),
        ("pass", BackendGarbled, "expected a JSON array"),
        ("print('[{]')", BackendGarbled, "expected a JSON array"),
        ("print('[{\"no\": 1}]')", BackendGarbled, "with file"),
        ("sys.stdout.write('x' * 50_000_000)", BackendGarbled, "at most 4 MiB"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", BackendUnavailable, "Node older than 22"),
        ("sys.exit('SqliteError: database is locked')", BackendUnavailable, "busy"),
        ("sys.exit('Error: out of luck')", BackendRejected, "out of luck"),
    ],
)
async def test_a_faulty_qmd_is_told_by_what_it_does(
    tmp_path: Path, home: Home, program: str, error: type[BackendError], told: str
) -> None:
    installation = faulty(tmp_path, program)
    timeout_s = 1.0 if error is BackendTimeout else PATIENCE_S

    with pytest.raises(error, match=told):
        await ProcessTransport(installation, home).ask(QUESTION, timeout_s=timeout_s)


async def test_noise_around_an_answer_does_no_harm(tmp_path: Path, home: Home) -> None:
    answer = '[{"file": "qmd://notes/a b.md", "score": 0.5, "line": 1, "snippet": "x"}]'
    installation = faulty(
        tmp_path, f"print('ggml: no GPU [0]'); print({answer!r}); print('bye', file=sys.stderr)"
    )

    hits = await ProcessTransport(installation, home).ask(QUESTION, timeout_s=PATIENCE_S)

    assert [hit.path for hit in hits] == ["a b.md"]
