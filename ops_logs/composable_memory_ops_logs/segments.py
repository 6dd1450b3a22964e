"""The files of a log: how they are named and read, and an index beside each.

A file has the lines of one UTC day, or of a whole month if an earlier version wrote it. The last file of a
day is open; closed ones are gzip files with one member per megabyte, which `zcat` can read. The index has the
time range and the traces of each member. It is rebuilt if it is missing or does not match the file; without
it everything is read. For an open file, it only records how much was written, so that lines lost at the end
are noticed. What cannot be read or written raises an `OSError`.
"""

import os
import re
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from composable_memory_ops_logs.line_format import is_whole, place_of
from composable_memory_ops_logs.private_files import BINARY, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

BLOCK_BYTES = 1024 * 1024
"""How much of a log to compress, and read, at a time."""
FIRST_MS, LAST_MS = 0, (1 << 63) - 1
DAMAGED = b"\xff"
"""Stands for lines that cannot be read any more; not an event."""
COMPRESSION_LEVEL = 3
"""Takes a third of the time of the default 6, for a tenth more bytes."""

_NAME = re.compile(r"(ops-(\d{4}-(?:0[1-9]|1[0-2])(?:-\d\d)?)(?:\.(\d{4,9}))?)(\.kept)?\.jsonl(\.gz)?")
_READ_BYTES = 64 * 1024


def day_of(ts: datetime) -> str:
    """Return the UTC day of a time as `YYYY-MM-DD`."""
    return ts.astimezone(UTC).isoformat()[:10]


class Segment(NamedTuple):
    """One file of a log, in any state: open, closed, or reduced to what has to be kept."""

    period: str
    """Its UTC day as `YYYY-MM-DD`, or its month."""
    number: int
    """Number of the file within its day, from 1; 0 for a file of an earlier version."""
    directory: Path

    @property
    def stem(self) -> str:
        """Return the common prefix of the names of its files."""
        return f"ops-{self.period}" + (f".{self.number:04}" if self.number else "")

    @property
    def open_path(self) -> Path:
        """Return the file that lines are appended to."""
        return self.directory / f"{self.stem}.jsonl"

    @property
    def closed_path(self) -> Path:
        """Return the compressed file; if it exists, it is complete and the open one is obsolete."""
        return self.directory / f"{self.stem}.jsonl.gz"

    @property
    def kept_path(self) -> Path:
        """Return what is kept of a file that was dropped; used if that one is gone."""
        return self.directory / f"{self.stem}.kept.jsonl.gz"

    def is_over(self, day: str) -> bool:
        """Return whether its day, or its month, was over when a day began."""
        return self.period < day[: len(self.period)]


def segments_in(directory: Path) -> list[Segment]:
    """Return the segments of a log in a directory, oldest first; empty if it does not exist."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - creating a Path for every file would dominate the time
    except FileNotFoundError:
        return []
    matches = filter(None, map(_NAME.fullmatch, names))
    return sorted({Segment(match[2], int(match[3] or 0), directory) for match in matches})


# --- the index ----------------------------------------------------------------------------------------------

_MAGIC = b"cmemidx1"
_HEAD = struct.Struct("<8sIQ32sI")  # magic, checksum of the rest, bytes covered, their last ones, blocks
_BLOCK = struct.Struct("<QQQQQQ")
_LENGTH_MAGIC = b"cmemlen1"
_LENGTH = struct.Struct("<8sQ")  # magic, bytes written to the open file; a checksum of both follows
_KEY_BYTES = 16
_ENTRY_BYTES = _KEY_BYTES + 4
_NO_TRACE = bytes(_KEY_BYTES)
_ANY_SPAN = FIRST_MS, LAST_MS, _NO_TRACE
"""Stands for a line that cannot be parsed."""


class Block(NamedTuple):
    """Consecutive complete lines: their place, and their time range in milliseconds."""

    start: int
    """Their offset in the uncompressed lines."""
    size: int
    at: int
    """Their offset on disk."""
    stored: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The blocks of a file, and the blocks in which each trace has lines."""

    blocks: tuple[Block, ...] = ()
    entries: bytes = b""
    """Sorted: the first 16 bytes of a trace id, followed by the number of a block."""

    def with_damaged_end(self) -> "Index":
        """Return the index of a file whose last blocks are gone."""
        last = self.blocks[-1] if self.blocks else Block(0, 0, 0, 0, FIRST_MS, LAST_MS)
        gone = Block(
            last.start + last.size, len(DAMAGED), last.at + last.stored, 0, first_ms=FIRST_MS, last_ms=LAST_MS
        )
        entry = _NO_TRACE + len(self.blocks).to_bytes(4, "big")
        return Index(blocks=(*self.blocks, gone), entries=entry + self.entries)

    def wanted(self, *, since_ms: int, until_ms: int, trace: bytes | None) -> list[Block]:
        """Return the blocks that may contain lines of a time range, and of a trace with this prefix.

        Lines that cannot be parsed may belong to any.
        """
        blocks = self.blocks
        if trace is not None:
            numbers = self._numbers(trace) | self._numbers(_NO_TRACE)
            blocks = tuple(blocks[number] for number in sorted(numbers))
        return [one for one in blocks if one.last_ms >= since_ms and one.first_ms <= until_ms]

    def _numbers(self, trace: bytes) -> set[int]:
        places = range(len(self.entries) // _ENTRY_BYTES)
        wanted = trace[:_KEY_BYTES]
        first = bisect_left(places, wanted, key=lambda place: self._key(place)[: len(wanted)])
        last = bisect_right(places, wanted, key=lambda place: self._key(place)[: len(wanted)])
        ends = (place * _ENTRY_BYTES + _ENTRY_BYTES for place in range(first, last))
        return {int.from_bytes(self.entries[end - 4 : end], "big") for end in ends}

    def _key(self, place: int) -> bytes:
        return self.entries[place * _ENTRY_BYTES : place * _ENTRY_BYTES + _KEY_BYTES]


class IndexBuilder:
    """Builds an index from the blocks of a file, one after another."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._entries: list[bytes] = []

    def add(self, lines: bytes, *, at: int, stored: int) -> None:
        """Add complete lines with their place on disk."""
        start = self._blocks[-1].start + self._blocks[-1].size if self._blocks else 0
        spans = [_span_of(line) for line in lines.split(b"\n") if line]
        first = min((first for first, _, _ in spans), default=LAST_MS)
        last = max((last for _, last, _ in spans), default=FIRST_MS)
        number = len(self._blocks).to_bytes(4, "big")
        self._entries += [key + number for key in {key for _, _, key in spans}]
        self._blocks.append(Block(start, len(lines), at, stored, first, last))

    def add_damaged(self, *, at: int, stored: int) -> None:
        """Add an unreadable part; it counts as one line."""
        start = self._blocks[-1].start + self._blocks[-1].size if self._blocks else 0
        self._blocks.append(Block(start, len(DAMAGED), at, stored, FIRST_MS, LAST_MS))

    def index(self) -> Index:
        """Return the index of all blocks so far."""
        return Index(blocks=tuple(self._blocks), entries=b"".join(sorted(self._entries)))


def _span_of(line: bytes) -> tuple[int, int, bytes]:
    """Return the time range and the trace of a line; any time for one that cannot be parsed."""
    try:
        if not is_whole(line):
            return _ANY_SPAN
        wire = orjson.loads(line)
        last = _ms(wire["ts"])
        answers = wire["detail"].get("backends", ()) if wire["action"] == "query.merged" else ()
        first = min((_ms(one["ts"]) for one in answers), default=last)
        return min(first, last), max(first, last), _trace_key(wire["traceId"])
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return _ANY_SPAN


def _ms(text: str) -> int:
    return max(FIRST_MS, int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000))


def _trace_key(trace_id: str) -> bytes:
    return trace_id.encode(errors="replace")[:_KEY_BYTES].ljust(_KEY_BYTES, b"\0")


def write_index(path: Path, index: Index, file: BinaryIO) -> None:
    """Write the index of an open file atomically; concurrent readers see the old one, or none."""
    stored = index.blocks[-1].at + index.blocks[-1].stored if index.blocks else 0
    rest = b"".join(_BLOCK.pack(*block) for block in index.blocks) + index.entries
    head = _HEAD.pack(_MAGIC, zlib.crc32(rest), stored, _last_bytes(file, stored), len(index.blocks))
    replace_file(path, head + rest, survives="kill")


def read_index(path: Path, file: BinaryIO) -> Index | None:
    """Return the index of a closed file; None if it is missing, damaged or does not match the file."""
    try:
        data = path.read_bytes()
        magic, checksum, stored, last, count = _HEAD.unpack_from(data)
        rest = data[_HEAD.size :]
        size = os.fstat(file.fileno()).st_size
        if magic != _MAGIC or zlib.crc32(rest) != checksum or last != _last_bytes(file, stored):
            return None
        if size != stored:
            return None
        end = count * _BLOCK.size
        return Index(blocks=tuple(map(Block._make, _BLOCK.iter_unpack(rest[:end]))), entries=rest[end:])
    except (OSError, struct.error):
        return None


def note_length(segment: Segment, length: int) -> None:
    """Record how much was written to an open file, in the file that later has its index.

    It is recorded after the lines: a process that is killed in between leaves a length that is too small,
    which does not count as a loss.
    """
    noted = _LENGTH.pack(_LENGTH_MAGIC, length)
    descriptor = os.open(index_path(segment.open_path), os.O_WRONLY | os.O_CREAT | BINARY, 0o600)
    try:
        os.write(descriptor, noted + zlib.crc32(noted).to_bytes(4, "little"))
    finally:
        os.close(descriptor)


def noted_length(segment: Segment) -> int:
    """Return how much was written to an open file; 0 if not recorded."""
    try:
        with index_path(segment.open_path).open("rb", buffering=0) as file:
            data = file.read(_LENGTH.size + 4)
        magic, length = _LENGTH.unpack(data[:-4])
    except (OSError, struct.error):
        return 0
    is_sound = magic == _LENGTH_MAGIC and data[-4:] == zlib.crc32(data[:-4]).to_bytes(4, "little")
    return int(length) if is_sound else 0


def _has_lost_blocks(path: Path, file: BinaryIO, found: Index) -> bool:
    """Return whether the index beside a closed file is valid, and for this file when it was longer.

    Such an index is not replaced, so that readers of the file notice the loss.
    """
    try:
        data = path.read_bytes()
        magic, checksum, stored, _, _ = _HEAD.unpack_from(data)
        first = _BLOCK.unpack_from(data, _HEAD.size)
    except (OSError, struct.error):
        return False
    if magic != _MAGIC or zlib.crc32(data[_HEAD.size :]) != checksum:
        return False
    is_longer = os.fstat(file.fileno()).st_size < stored
    return is_longer and (not found.blocks or first == found.blocks[0])


def _last_bytes(file: BinaryIO, end: int) -> bytes:
    file.seek(max(0, end - 32))
    return file.read(min(32, end)).ljust(32, b"\0")


# --- reading ------------------------------------------------------------------------------------------------


def lines_backwards(
    segment: Segment,
    *,
    since_ms: int = FIRST_MS,
    until_ms: int = LAST_MS,
    trace: bytes | None = None,
    end: int | None = None,
) -> Iterator[bytes]:
    """Yield the lines of a file that may be wanted, last line first, holding one block in memory at a time.

    `trace` is the prefix of a trace id as written in the file. `end` is the offset in its lines at which to
    begin.
    """
    opened = _opened(segment)
    if opened is None:
        return
    path, file = opened
    with file:
        if path.suffix != ".gz":
            noted = noted_length(segment)  # first: the file may be written to meanwhile
            size = os.fstat(file.fileno()).st_size
            yield from _open_lines_backwards(file, *((size, noted) if end is None else (end, 0)))
            return
        index = _index_of(path, file)
        for block in reversed(index.wanted(since_ms=since_ms, until_ms=until_ms, trace=trace)):
            if end is None or block.start < end:
                lines = _read_block(file, block)
                yield from reversed((lines if end is None else lines[: end - block.start]).split(b"\n"))


def lines_forwards(segment: Segment, start: int, most: int) -> bytes:
    """Return complete lines from an offset in a file's lines on, about `most` bytes at most."""
    opened = _opened(segment)
    if opened is None:
        return b""
    path, file = opened
    with file:
        if path.suffix != ".gz":
            file.seek(start)
            data = file.read(most)
            # A line longer than that is not an event; it is skipped in pieces.
            return data if len(data) == most and b"\n" not in data else data[: data.rfind(b"\n") + 1]
        index = _index_of(path, file)
        block = next((one for one in index.blocks if one.start + one.size > start), None)
        return b"" if block is None else _read_block(file, block)[start - block.start :]


def closed_blocks(path: Path) -> Iterator[bytes]:
    """Yield the lines of a compressed file, one block at a time; unreadable parts are left out."""
    with path.open("rb") as file:
        for block in _index_of(path, file).blocks:
            if (lines := _read_block(file, block)) != DAMAGED:
                yield lines


def open_size(segment: Segment, *, or_else: int) -> int:
    """Return the size of an open file; `or_else` if it is closed."""
    try:
        return segment.open_path.stat().st_size
    except FileNotFoundError:
        return or_else


def _opened(segment: Segment) -> tuple[Path, BinaryIO] | None:
    """Open whatever exists of a file; another process may just be closing or dropping it."""
    for path in (segment.closed_path, segment.open_path, segment.closed_path, segment.kept_path):
        with suppress(FileNotFoundError):
            return path, path.open("rb")
    return None


def _index_of(path: Path, file: BinaryIO) -> Index:
    """Return the index of a closed file, rebuilt if there is no valid one."""
    beside = index_path(path)
    known = read_index(beside, file)
    if known is not None:
        return known
    index, is_whole = _index_of_members(file)
    if is_whole and _has_lost_blocks(beside, file, index):
        return index.with_damaged_end()
    if is_whole:
        with suppress(OSError):  # it is rebuilt next time
            write_index(beside, index, file)
    return index


def index_path(path: Path) -> Path:
    """Return the path of a file's index."""
    return path.with_name(f"{path.name.removesuffix('.gz').removesuffix('.jsonl')}.idx")


def _whole_lines(file: BinaryIO) -> bytes:
    """Read about a block, up to the end of a line."""
    lines = file.read(BLOCK_BYTES)
    return lines if lines.endswith(b"\n") else lines + file.readline()


def _index_of_members(file: BinaryIO) -> tuple[Index, bool]:
    """Build the index of a compressed file; False if a part of it cannot be read."""
    builder, at, waiting = IndexBuilder(), 0, b""
    end = file.seek(0, os.SEEK_END)
    file.seek(0)
    while at < end:
        member, lines, taken = zlib.decompressobj(wbits=31), list[bytes](), 0
        try:
            while not member.eof:
                data = waiting or file.read(_READ_BYTES)
                if not data:
                    raise EOFError
                lines.append(member.decompress(data))
                waiting = member.unused_data
                taken += len(data) - len(waiting)
        except (EOFError, zlib.error):
            builder.add_damaged(at=at, stored=end - at)
            return builder.index(), False
        builder.add(b"".join(lines), at=at, stored=taken)
        at += taken
    return builder.index(), True


def _read_block(file: BinaryIO, block: Block) -> bytes:
    file.seek(block.at)
    try:
        return zlib.decompress(file.read(block.stored), wbits=31)
    except zlib.error:
        return DAMAGED


def _open_lines_backwards(file: BinaryIO, end: int, noted: int) -> Iterator[bytes]:
    """Yield the lines of an open file up to an offset, last line first; `DAMAGED` where some are gone."""
    lines = _split_backwards(file, end)
    last = next(lines)  # empty, unless a line was truncated, which reveals the loss by itself
    missing = noted - end if noted >= end and not last else None  # None: unknown
    for line in chain([last], lines):
        yield line
        end -= len(line)
        if (place := place_of(line)) is not None:
            if missing not in (None, place - end):
                yield DAMAGED
            missing = place - end
        end -= len(b"\n")
    if missing:
        yield DAMAGED


def _split_backwards(file: BinaryIO, end: int) -> Iterator[bytes]:
    """Yield the lines of a file up to an offset, last line first."""
    position = end
    pieces: list[bytes] = []  # of a line whose beginning is not found yet, last piece first
    while position > 0:
        size = min(_READ_BYTES, position)
        position -= size
        file.seek(position)
        first, *lines = file.read(size).split(b"\n")
        if lines:
            lines[-1] = b"".join([lines[-1], *reversed(pieces)])
            pieces = []
            yield from reversed(lines)
        pieces.append(first)
    yield b"".join(reversed(pieces))


# --- compressing --------------------------------------------------------------------------------------------


class BlockWriter:
    """Writes lines into a compressed file, one member per block, and builds its index."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._builder = IndexBuilder()

    def add(self, lines: bytes) -> None:
        """Write complete lines as a separate member."""
        compressor = zlib.compressobj(level=COMPRESSION_LEVEL, wbits=31)
        data = compressor.compress(lines) + compressor.flush()
        at = self._out.tell()
        self._out.write(data)
        self._builder.add(lines, at=at, stored=len(data))

    def index(self) -> Index:
        """Return the index of what was written."""
        return self._builder.index()


def blocks_of(file: BinaryIO, noted: int = 0) -> Iterator[bytes]:
    """Yield the lines of an open file in blocks, and a damaged one if some are gone.

    `noted` is how much was written to it.
    """
    at = missing = 0
    line = b"\n"
    while block := _whole_lines(file):
        lines: list[bytes] = []
        for line in block.splitlines(keepends=True):
            if (place := place_of(line)) is not None and place - at != missing:
                missing = place - at
                lines.append(DAMAGED + b"\n")
            lines.append(line)
            at += len(line)
        yield b"".join(lines)
    if at + missing < noted and line.endswith(b"\n"):
        yield DAMAGED + b"\n"
