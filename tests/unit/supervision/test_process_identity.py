"""A process is told from another one of the same number, and from one that has ended."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from composable_memory.supervision.process_identity import host, is_gone, start_of

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process


def test_a_process_that_runs_is_not_gone(other: subprocess.Popen[bytes]) -> None:
    assert not is_gone(other.pid, on_host=host(), started=start_of(other.pid))


def test_a_process_that_has_ended_is_gone(other: subprocess.Popen[bytes]) -> None:
    started = start_of(other.pid)

    other.kill()
    other.wait()

    assert is_gone(other.pid, on_host=host(), started=started)


@needs_proc
def test_a_process_that_ended_and_was_not_looked_after_is_gone(other: subprocess.Popen[bytes]) -> None:
    started = start_of(other.pid)

    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)

    assert is_gone(other.pid, on_host=host(), started=started)


@needs_proc
def test_another_process_of_the_same_number_is_not_the_same() -> None:
    assert is_gone(os.getpid(), on_host=host(), started="1")


@needs_proc
def test_two_processes_began_at_times_that_can_be_told(other: subprocess.Popen[bytes]) -> None:
    assert start_of(other.pid) != start_of(os.getpid())


@needs_proc
def test_a_process_began_at_one_time_only() -> None:
    assert start_of(os.getpid()) == start_of(os.getpid())


def test_of_another_host_nothing_is_certain() -> None:
    assert not is_gone(2**22 + 1, on_host=f"not-{host()}", started=None)


def test_a_number_that_no_process_can_have_is_gone() -> None:
    assert is_gone(2**70, on_host=host(), started=None)


def test_when_a_process_began_that_is_not_there_cannot_be_told() -> None:
    assert start_of(2**22 + 1) is None
