"""What logging costs: CPU time of `emit` in its caller, and of the whole way to the file.

The least that could be done stands beside it: `orjson.dumps` of the finished mapping and one write.
"New texts" gives every event snippets never seen before, "known texts" the same ones again, as happens when
one question's snippets pass through several events.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time, thread_time

import orjson

from composable_memory_ops_logs import BackendResult, Candidate, EventDetail, OpsLog, QueryDelivered, trace
from composable_memory_ops_logs.events import OpsEvent
from composable_memory_ops_logs.wire import event_to_wire

WORDS = (
    "we decided that the key of the API stays small: one token, no secret, and notes in plain text".split()
)
CANDIDATES = 24

Make = Callable[[int], EventDetail]


def small(number: int) -> EventDetail:
    return QueryDelivered(result_count=2, paths=(f"memory/2026-01-{number % 28 + 1:02}.md", "MEMORY.md"))


def known_texts(_: int) -> EventDetail:
    return _answer(0)


def new_texts(number: int) -> EventDetail:
    return _answer(number)


def _answer(number: int) -> EventDetail:
    return BackendResult(
        weight=1.0,
        result_count=CANDIDATES,
        depth=CANDIDATES,
        results=[
            Candidate(
                path=f"memory/2026-01-{rank:02}-notes.md",
                start_line=rank * 12 + 1,
                end_line=rank * 12 + 12,
                score=1 / (rank + 1.1),
                rank=rank,
                source="memory",
                snippet_preview=_snippet(number, rank),
                content_hash=f"{number * 31 + rank:016x}",
            )
            for rank in range(1, CANDIDATES + 1)
        ],
    )


def _snippet(number: int, rank: int) -> str:
    return f"{number} {' '.join(WORDS[(rank + at) % len(WORDS)] for at in range(24))}"[:120]


async def emit_us(details: Sequence[EventDetail], folder: Path, redact: bool) -> tuple[float, float]:
    """Return microseconds of CPU an event: in the caller, and in the whole process."""
    async with OpsLog(folder, redact=redact) as log:
        log.emit(details[0])
        await log.flush()
        whole, caller = process_time(), thread_time()
        with trace():
            for detail in details:
                log.emit(detail)
        caller = thread_time() - caller
        await log.flush(30)
        whole = process_time() - whole
    return caller / len(details) * 1e6, whole / len(details) * 1e6


def bare_us(details: Sequence[EventDetail], folder: Path) -> float:
    """Return microseconds of CPU an event for dumping the finished mapping and writing it."""
    log, events = OpsLog(None), list[OpsEvent]()
    log.subscribe(events.append)
    for detail in details:
        log.emit(detail)
    wires = [event_to_wire(event) for event in events]
    descriptor = os.open(folder / "bare.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    started = process_time()
    for wire in wires:
        os.write(descriptor, orjson.dumps(wire) + b"\n")
    elapsed = process_time() - started
    os.close(descriptor)
    return elapsed / len(details) * 1e6


def row(name: str, make: Make, *, events: int, rounds: int, redact: bool) -> str:
    taken = []
    for number in range(rounds):
        details = [make(number * events + at) for at in range(events)]
        with tempfile.TemporaryDirectory() as folder:
            caller, whole = asyncio.run(emit_us(details, Path(folder), redact))
            taken.append((caller, whole, bare_us(details, Path(folder))))
    caller, whole, bare = (statistics.median(column) for column in zip(*taken, strict=True))
    return f"{name:34}{caller:10.1f}{whole:10.1f}{bare:10.1f}{whole / bare:10.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1000, help="events a round")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{'microseconds of CPU an event':34}{'caller':>10}{'whole':>10}{'bare':>10}{'ratio':>10}")
    for name, make, redact in (
        ("small", small, True),
        (f"{CANDIDATES} candidates, known texts", known_texts, True),
        (f"{CANDIDATES} candidates, new texts", new_texts, True),
        (f"{CANDIDATES} candidates, not redacted", new_texts, False),
    ):
        print(row(name, make, events=options.events, rounds=options.rounds, redact=redact))


if __name__ == "__main__":
    main()
