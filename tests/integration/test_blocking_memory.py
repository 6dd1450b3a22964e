"""A memory for programs without an event loop, with the real builtin backend."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from composable_memory import BlockingMemory, Memory, open_memory_sync
from composable_memory.errors import BackendTimeout, BackendUnavailable, ConfigError, MemoryPathError
from composable_memory.tools.search import MemorySearchRequest, memory_search
from composable_memory.types import MAX_SNIPPET_CHARS, QueryRequest, SearchOptions
from composable_memory_ops_logs import trace
from tests.variants import variants

KEYWORDS = {"memory": {"embedding": {"provider": "none"}}}
QUESTION = "which port does the dock controller use?"
ROOT = Path(__file__).parents[2]
LONG = "\n".join(f"Crane {number} was inspected by team {number % 7}." for number in range(30))

BEGIN = """
import asyncio, os, sys, warnings
from composable_memory import open_memory_sync
from composable_memory.errors import BackendUnavailable
memory = open_memory_sync(sys.argv[1], sys.argv[2], {"memory": {"embedding": {"provider": "none"}}})
memory.sync()
ask = lambda: memory.query("which port does the dock controller use?").results[0].citation
"""
IN_A_LOOP = """
async def notebook():
    return ask()
print(asyncio.run(notebook()))
memory.close()
"""
NEVER_CLOSED = "print(ask())"
FORKED = """
warnings.simplefilter("ignore")
if not (child := os.fork()):
    memory.close()
    try:
        ask()
    except BackendUnavailable as error:
        os._exit(7 if "in the parent process" in str(error) else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ask())
memory.close()
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "memory").mkdir(parents=True)
    (folder / "MEMORY.md").write_text("The dock controller listens on port 8443.", encoding="utf-8")
    (folder / "memory" / "2026-05-04.md").write_text(f"{LONG}\n", encoding="utf-8")
    return folder


@pytest.fixture
def memory(notes: Path, state_dir: Path) -> Iterator[BlockingMemory]:
    with open_memory_sync(notes, state_dir, KEYWORDS) as opened:
        opened.sync()
        yield opened


def test_questions_are_answered_with_the_citation_and_the_whole_passage(memory: BlockingMemory) -> None:
    best = memory.query(QUESTION).results[0]
    long = memory.search("crane inspected team")[0]

    assert (best.citation, best.text) == ("MEMORY.md#L1", "The dock controller listens on port 8443.")
    assert long.citation == f"{long.path}#L{long.start_line}-L{long.end_line}"
    assert len(long.text) > MAX_SNIPPET_CHARS >= len(long.snippet)
    assert memory.context_pack(QUESTION).sources[0].citation == "MEMORY.md#L1"
    assert memory.read_file("MEMORY.md").text == "The dock controller listens on port 8443."
    assert memory.status().files == 2


def test_where_the_settings_want_no_citations_results_have_none(notes: Path, state_dir: Path) -> None:
    with open_memory_sync(notes, state_dir, KEYWORDS) as memory:
        memory.sync()
        group = QueryRequest(query=QUESTION, options=SearchOptions(session_key="chat:group:42"))
        answers = [
            memory.query(group).results,
            memory.query(QUESTION, session_key="chat:group:42").results,
            memory.search(QUESTION, group.options),
            memory.context_pack(group).sources,
        ]
        alone = memory.query(QUESTION, session_key="agent:main:main").results

    assert [[one.citation for one in results] for results in answers] == [[None]] * 4
    assert alone[0].citation


def test_any_coroutine_function_that_takes_a_memory_can_be_called(memory: BlockingMemory) -> None:
    reply = memory.call(memory_search, MemorySearchRequest(query=QUESTION))

    assert reply.results[0].path == "MEMORY.md"


def test_threads_share_it(memory: BlockingMemory) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda _: memory.query(QUESTION).results[0].citation, range(64))]

    assert answers == ["MEMORY.md#L1"] * 64


@pytest.mark.parametrize(
    ("program", "said"),
    variants(
        [(IN_A_LOOP, "MEMORY.md#L1\n"), (NEVER_CLOSED, "MEMORY.md#L1\n"), (FORKED, "7 MEMORY.md#L1\n")],
        (NEVER_CLOSED, "MEMORY.md#L1\n"),
    ),
    ids=["where a loop runs", "never closed", "after a fork"],
)
def test_a_program_ends_and_says_nothing_of_it(program: str, said: str, notes: Path, state_dir: Path) -> None:
    houses = ":".join(str(ROOT / one) for one in (".", "adapters", "feedback", "ops_logs"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGIN + program, str(notes), str(state_dir)],
        env={"PYTHONPATH": houses},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_the_trace_of_the_caller_goes_on(memory: BlockingMemory) -> None:
    with trace() as trace_id:
        assert memory.query(QUESTION).trace_id == trace_id
    assert memory.query(QUESTION).trace_id != trace_id


def test_an_interrupt_cancels_the_call_and_leaves_it_usable(memory: BlockingMemory) -> None:
    began, cancelled = threading.Event(), threading.Event()

    async def hang(_: Memory) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    def interrupt() -> None:
        began.wait(30)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        memory.call(hang)

    assert cancelled.wait(30)
    assert memory.query(QUESTION).results


def test_errors_reach_the_caller(memory: BlockingMemory) -> None:
    with pytest.raises(MemoryPathError, match="elsewhere"):
        memory.read_file("../elsewhere.md")


def test_what_cannot_be_opened_is_told_at_once_and_leaves_nothing(notes: Path, state_dir: Path) -> None:
    with pytest.raises(ConfigError, match="not_there"):
        open_memory_sync(notes / "not_there", state_dir)

    left = [one for one in threading.enumerate() if one.name == "memory"]
    for one in left:
        one.join(30)
    assert not any(one.is_alive() for one in left)


def test_a_closed_memory_says_so_also_to_who_waits(memory: BlockingMemory) -> None:
    began = threading.Event()

    async def hang(_: Memory) -> None:
        began.set()
        await asyncio.Event().wait()

    pool = ThreadPoolExecutor(1)
    waiting: Future[None] = pool.submit(memory.call, hang)
    began.wait(30)
    memory.close()
    memory.close()
    with pytest.raises(BackendUnavailable, match="closed in the meantime"):
        waiting.result(30)
    pool.shutdown(wait=False)
    with pytest.raises(BackendUnavailable, match="it is closed; open it again"):
        memory.query(QUESTION)


def test_closing_has_an_end(memory: BlockingMemory) -> None:
    began, release = threading.Event(), threading.Event()

    async def stay(_: Memory) -> None:
        began.set()
        while not release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    memory.submit(stay)
    began.wait(30)
    try:
        with pytest.raises(BackendTimeout, match="close"):
            memory.close(timeout_s=0.1)
    finally:
        release.set()
    memory.close()


def test_it_cannot_wait_for_itself(memory: BlockingMemory) -> None:
    async def ask_again(_: Memory) -> object:
        return memory.query(QUESTION)

    with pytest.raises(BackendUnavailable, match="wait for itself"):
        memory.call(ask_again)
