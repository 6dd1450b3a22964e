"""What every test gets: a clean environment, a loop that may not block, notes, a place for state, a log."""

import asyncio
import ctypes
import gc
import os
import random
import signal
import sys
import tempfile
import tomllib
from collections.abc import Generator, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from uuid import uuid4

import apsw
import hypothesis
import pytest
from blockbuster import BlockBuster, BlockBusterFunction

from composable_memory.interfaces import BackendServices, EmbedderServices
from composable_memory.testing import FIXED_NOW, SEED_NOTES
from composable_memory.testing.contracts.opening import COVERAGE
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_adapters.rerankers import spec as late_interaction
from composable_memory_ops_logs import MemorySink, OpsLog
from tests.needs import NEEDS, REQUIRED, absent, needs_of
from tests.notes import write_notes
from tests.postgres_server import PostgresServer, make_tables
from tests.postgres_server import missing as postgres_server_missing
from tests.postgres_server import running as running_postgres

HOUSES = [
    "composable_memory",
    "composable_memory_adapters",
    "composable_memory_feedback",
    "composable_memory_ops_logs",
]
APSW_CALLS = (
    (apsw.Connection, "execute"),
    (apsw.Connection, "executemany"),
    (apsw.Cursor, "execute"),
    (apsw.Cursor, "executemany"),
    (apsw.Cursor, "fetchall"),
)
# From `linux/capability.h`, `linux/prctl.h` and `linux/securebits.h`.
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 1 << 2
CAPABILITY_VERSION_3 = 0x20080522
CAP_DAC_OVERRIDE = 1 << 1
CAP_DAC_READ_SEARCH = 1 << 2

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a shell; all that the tests start would ignore it as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)

IN_MEMORY = Path("/dev/shm")
ROOM = 2 << 30
ABSENT = pytest.StashKey[set[str]]()
"""What tests need that were left out for want of it."""
if IN_MEMORY.is_dir() and not {"TMPDIR", "TEMP", "TMP"} & os.environ.keys():
    # On a disk, most of the time of a run is waiting until indexes, ledgers and logs are flushed to it.
    # A folder that is too small, or from which no program may be run, as some tests write one, is left alone.
    shared = os.statvfs(IN_MEMORY)
    if shared.f_bavail * shared.f_frsize >= ROOM and not shared.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)

# The same examples in every run: a red run is never just an unlucky one. `make explore` looks for new ones.
# Where thorough tests are left out, half of them are drawn.
hypothesis.settings.register_profile(
    "fixed", max_examples=40, deadline=None, derandomize=True, database=None, print_blob=True
)
hypothesis.settings.register_profile("short", hypothesis.settings.get_profile("fixed"), max_examples=20)
hypothesis.settings.register_profile("explore", max_examples=1_000, deadline=None, print_blob=True)


def pytest_configure(config: pytest.Config) -> None:
    """Choose how many examples Hypothesis draws."""
    config.stash[ABSENT] = set()
    usual = "short" if config.option.markexpr == "not thorough" else "fixed"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to test where something required is missing, or an installation older than `pyproject.toml`."""
    if missing := sorted(filter(absent, REQUIRED)):
        pytest.exit(f"COMPOSABLE_MEMORY_TEST_REQUIRED names what is not there: {', '.join(missing)}", 1)
    project = tomllib.loads((session.config.rootpath / "pyproject.toml").read_text("utf-8"))["project"]
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    wanted = {(group, name, value) for group, names in groups.items() for name, value in names.items()}
    installed = {(one.group, one.name, one.value) for one in distribution("composable-memory").entry_points}
    if wanted != installed:
        pytest.exit("the installation is older than pyproject.toml: run `pip install --no-deps -e .`", 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what is collected here: millions of objects that live to the end.

    It took a third of the time of the collection, and a quarter of a second for every `gc.collect` of a test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the workers of `-n auto`: one more than cores, as tests wait for processes and disks."""
    return (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs tests in another order."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run tests in random order")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need what is not there; `--shuffle` them, each module and class still at once."""
    left_out = {item: missing for item in items if (missing := list(filter(absent, needs_of(item))))}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    config.stash[ABSENT].update(*left_out.values())
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    chance = random.Random(seed)
    drawn: dict[object, float] = {}
    for item in items:
        for node in item.listchain():
            drawn.setdefault(node, chance.random())
    items.sort(key=lambda item: [drawn[node] for node in item.listchain()])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was missing from a worker to the run."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["absent"] = [*session.config.stash[ABSENT]]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what was missing from a worker."""
    node.config.stash[ABSENT].update(getattr(node, "workeroutput", {}).get("absent", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was missing, and how to get it."""
    missing = config.stash[ABSENT]
    for need in sorted(missing):
        terminalreporter.write_line(f"left out: tests that need {need} ({NEEDS[need].made_by})")


@pytest.fixture(autouse=True, scope="session")
def _our_code_may_not_block() -> Iterator[None]:
    """Turn a blocking call on an event loop into an error, when it comes out of our own packages.

    A test itself may write a file while the loop waits; what it tests may not.
    """
    watch = BlockBuster(HOUSES)
    for kind, method in APSW_CALLS:
        watch.functions[f"apsw.{kind.__name__}.{method}"] = BlockBusterFunction(
            kind, method, scanned_modules=HOUSES
        )
    # Since Python 3.13 this is how `os.path.realpath` looks at the disk.
    watch.functions["os.lstat"] = BlockBusterFunction(None, "os.lstat", scanned_modules=HOUSES)
    for function in watch.functions.values():
        for file, name in COVERAGE:
            function.can_block_in(file, name)
    watch.activate()
    yield
    watch.deactivate()


@pytest.fixture(autouse=True)
def _clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("COMPOSABLE_MEMORY"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(home))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    # A model that is not in its package must be missed at once, not looked for on a network.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def permissions_bind() -> Iterator[None]:
    """Let the permissions of files bind the superuser too, for the tests of what may not be read or written.

    It holds for the thread of the test and all that this starts: name it in `usefixtures`, which comes first.
    """
    if os.geteuid() != 0:
        yield
        return
    if sys.platform != "linux":
        pytest.skip("permissions do not bind the superuser here")
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()

    def require(result: int) -> None:
        assert result == 0, os.strerror(ctypes.get_errno())

    # Without this bit, access(2) asks what the superuser could do, not what this thread can.
    require(libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    require(libc.capget(header, data))
    before = data[0]
    data[0] &= ~(CAP_DAC_OVERRIDE | CAP_DAC_READ_SEARCH)
    require(libc.capset(header, data))
    try:
        yield
    finally:
        data[0] = before
        require(libc.capset(header, data))
        require(libc.prctl(PR_SET_SECUREBITS, 0, 0, 0, 0))


@pytest.fixture
def rerank_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test find the packages of the extra `rerank`, which `make test` keeps apart.

    Where they are found, every search is reranked: other tests look at the default.
    """
    if late_interaction.missing() is not None:
        monkeypatch.syspath_prepend(Path(sys.prefix, "rerank"))
        if (missing := late_interaction.missing()) is not None:
            pytest.fail(f"{missing}; `make test` puts it where tests find it")


@pytest.fixture(scope="session", autouse=True)
def word_vectors() -> Iterator[WordLlamaEmbedder]:
    """Return the packaged embedder, loaded once for the memories of all tests: a process shares its model.

    Each of hundreds of tests would load it again, for as long as the rest of many of them takes.
    """
    embedder = WordLlamaEmbedder()
    asyncio.run(embedder.embed(EmbedderInput(text="")))
    yield embedder
    asyncio.run(embedder.close())


@pytest.fixture
def embedder_services(services: BackendServices) -> EmbedderServices:
    """Return what an embedding provider is handed, with an environment without keys."""
    return EmbedderServices(
        state_dir=services.state_dir, environ={}, ops_log=services.ops_log, clock=services.clock
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a folder with the seeded notes."""
    return write_notes(tmp_path / "workspace", SEED_NOTES)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """Return an empty folder for indexes and logs."""
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def events() -> MemorySink:
    """Return the sink that keeps what is emitted to `ops_log`."""
    return MemorySink()


@pytest.fixture
def ops_log(events: MemorySink) -> OpsLog:
    """Return a log whose events end in `events`, and in no file."""
    log = OpsLog(None, clock=lambda: FIXED_NOW)
    log.subscribe(events)
    return log


@pytest.fixture
def services(workspace: Path, state_dir: Path, ops_log: OpsLog) -> BackendServices:
    """Return what a backend gets when it opens: the seeded workspace, no embedder."""
    return BackendServices(
        workspace_dir=workspace,
        state_dir=state_dir,
        agent_id="main",
        workspace_id="notes",
        ops_log=ops_log,
        clock=lambda: FIXED_NOW,
        embedder_problem="no embedder is configured",
        is_long_lived=False,  # or a test that is slow would find syncs that it did not ask for
    )


# --- PostgreSQL ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server for all tests of a process; see `team_settings`."""
    if (reason := postgres_server_missing()) is not None:
        pytest.skip(reason)
    with running_postgres() as server:
        server.run("CREATE EXTENSION vector", "CREATE ROLE team LOGIN")
        yield server


@pytest.fixture
async def team_settings(postgres_server: PostgresServer) -> PostgresSettings:
    """Settings of a schema of its own with all tables, as a role that sees nothing without a workspace."""
    return await make_tables(postgres_server, f"test_{uuid4().hex[:12]}")
