"""What a server wrote before it ended becomes a reason, and something to do."""

from pathlib import Path

import pytest

from composable_memory_adapters.graphiti.database.requirements import Reason, read_reason

WARNING = "7:C 22 Nov 2026 05:12:54 # WARNING Memory overcommit must be enabled!\n"


def reason_of(folder: Path, text: str, *, since: int | None = 0) -> Reason | None:
    log = folder / "server.log"
    log.write_text(WARNING + text, encoding="utf-8")
    return read_reason(log, since=since, data_dir=folder)


@pytest.mark.parametrize(
    ("said", "what", "fix"),
    [
        (
            "# Module /x/falkordb.so failed to load: libgomp.so.1: cannot open shared object file: none",
            "the system lacks libgomp.so.1, which the graph server needs",
            "apt-get install libgomp1, or dnf install libgomp; or use a shared server",
        ),
        (
            "redis-server: error while loading shared libraries: libodd.so.3: cannot open shared object file",
            "the system lacks libodd.so.3",
            "install it, or use a shared server",
        ),
        (
            "# Module /x/falkordb.so failed to load: /lib/libm.so.6: version `GLIBC_2.35' not found",
            "older than GLIBC_2.35",
            "run on a newer system",
        ),
        (
            "# Module /x/falkordb.so failed to load: file too short",
            "FalkorDB cannot be loaded: file too short",
            "reinstall it",
        ),
        ("# Error writing: No space left on device\n# Exiting...", "is full or fails", "make room"),
        (
            "# Bad file format reading the append only file appendonly.aof.1.incr.aof: make a backup",
            "appendonlydir/appendonly.aof.1.incr.aof is damaged",
            "redis-check-aof --fix",
        ),
        (
            "# Can't handle RDB format version 15\n# Error reading the RDB base file, AOF loading aborted",
            "were written by a newer server",
            "use the Python environment that wrote them",
        ),
        ("7:M 22 Nov 2026 05:12:54 # Out of luck.\n", "the graph server ended: Out of luck.", "server.log"),
    ],
)
def test_the_log_tells_what_is_wrong_and_what_helps(tmp_path: Path, said: str, what: str, fix: str) -> None:
    reason = reason_of(tmp_path, said)

    assert reason is not None
    assert what in reason.what
    assert fix in reason.fix


def test_what_was_written_at_an_earlier_start_does_not_count(tmp_path: Path) -> None:
    earlier = "# No space left on device\n"

    assert reason_of(tmp_path, earlier, since=len(WARNING + earlier)) is None
    assert reason_of(tmp_path, earlier, since=None) is None


def test_a_log_that_tells_nothing_gives_no_reason(tmp_path: Path) -> None:
    assert reason_of(tmp_path, "") is None
    assert read_reason(tmp_path / "none.log", since=0, data_dir=tmp_path) is None
