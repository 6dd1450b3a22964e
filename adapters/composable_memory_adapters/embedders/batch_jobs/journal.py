"""The journal of jobs on disk, so that a restart fetches what was paid for.

A record holds the name of the job and the hashes of its texts: no text, no key. Every job has a file of its
own, so that processes never overwrite each other's records. A job whose record is lost is only paid for
again. A record is kept for as long as the provider keeps the results: whoever is stopped before vectors were
stored, or has to rebuild an index, finds them there.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ValidationError

from composable_memory.interfaces import Clock
from composable_memory_ops_logs.private_files import replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job at the provider, and the hashes of the texts that it embeds."""

    id: str
    texts: frozenset[str]


class JobJournal:
    """The records of the jobs of one source of vectors, in files that only their owner can read.

    `source` names what gives these vectors and begins the names of the files. They are written whole or not
    at all, in threads. A record is dropped after `lifetime`.
    """

    def __init__(self, folder: Path, source: str, *, lifetime: timedelta, clock: Clock) -> None:
        self._folder = folder
        self._source = source
        self._lifetime = lifetime
        self._clock = clock

    async def jobs(self) -> list[RecordedJob]:
        """Return all recorded jobs that may still be of use; make the folder for more.

        Raises:
            OSError: there is no such folder, and none can be made.
        """
        return await asyncio.to_thread(lambda: list(self._read_all()))

    async def record(self, job: RecordedJob) -> None:
        """Record a job; cancelling the call does not keep it from being recorded.

        Raises:
            OSError: the record cannot be written.
        """
        record = _Record(job=job.id, created=self._clock(), texts=sorted(job.texts))
        content = record.model_dump_json().encode()
        await asyncio.to_thread(replace_file, self._file(job.id), content, survives="kill")

    async def forget(self, job: RecordedJob) -> None:
        """Remove the record of a job.

        Raises:
            OSError: it cannot be removed.
        """
        await asyncio.to_thread(partial(self._file(job.id).unlink, missing_ok=True))

    def _file(self, job: str) -> Path:
        digest = sha256(job.encode()).hexdigest()[:16]
        return self._folder / f"{self._source}-{digest}.json"

    def _read_all(self) -> Iterator[RecordedJob]:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        oldest = self._clock() - self._lifetime
        for partial_file in self._folder.glob(f".{self._source}-*.new"):  # left by a process that was killed
            _delete_if_older(partial_file, oldest)
        for file in sorted(self._folder.glob(f"{self._source}-*.json")):
            record = _read(file)
            if record is not None and oldest <= record.created:
                yield RecordedJob(id=record.job, texts=frozenset(record.texts))
            else:
                file.unlink(missing_ok=True)


class _Record(BaseModel):
    job: str
    created: AwareDatetime
    texts: list[str]


def _read(file: Path) -> _Record | None:
    """Return a record; None if it is damaged, or another process has just dropped it."""
    with suppress(FileNotFoundError, ValidationError):
        return _Record.model_validate_json(file.read_bytes())
    return None


def _delete_if_older(file: Path, oldest: datetime) -> None:
    with suppress(FileNotFoundError):
        if file.stat().st_mtime < oldest.timestamp():
            file.unlink()
