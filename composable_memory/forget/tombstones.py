"""What was forgotten in a workspace, as keyed hashes: it can be recognised, but not read.

The key is a file beside them that is in no backup, export or log, so the hashes alone do not allow guessing
short texts; with the whole state folder one can only confirm a guess. For the first words of a statement, two
bytes of hash are kept as well, which reveal nothing and save most comparisons.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from composable_memory.errors import BackendUnavailable
from composable_memory.forget.statement_matching import (
    Statement,
    Words,
    can_be_quoted,
    joined_spans,
    statements_of,
    without,
    words_with_places,
)
from composable_memory.types import MemorySource
from composable_memory_ops_logs.private_files import make_private_folder, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

FOLDER = "forgotten"
"""In the state folder, with a subfolder for each workspace."""
INSTEAD = "[forgotten]"
CHECKSUM = "checksum"
"""In the first line of the file: a keyed hash of the rest, which reveals damage to either."""
KEY_BYTES = 32
KEPT_CHARS = 4000
BEGINNING = 2
"""How many words the short hash covers; no quotation is shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """Hashes of one statement: of all its words, and of the `length` words of its sentence, if quotable."""

    words: str
    said: str = ""
    length: int = 0
    beginning: str = ""


class Tombstones:
    """The tombstones of a workspace at one moment."""

    def __init__(self, key: bytes, stones: Sequence[Tombstone]) -> None:
        self.stones = tuple(stones)
        self._key = key
        self._words = {one.words for one in stones}
        self._said = {one.said: one.length for one in stones if one.said}
        self._lengths: dict[str, set[int]] = {}
        for one in stones:
            if one.said:
                self._lengths.setdefault(one.beginning, set()).add(one.length)
        # The same passages are found again and again; whole notes and transcripts are not cached.
        self._hidden: Callable[[str, MemorySource], str] = lru_cache(maxsize=2048)(self._hide)

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Tombstones":
        """Return tombstones for known texts, for temporary use."""
        bare = cls(b"", ())
        found = (one for text in texts for one in statements_of(text) if one.is_recognisable)
        return cls(b"", [bare.stone_of(one) for one in found])

    def __bool__(self) -> bool:
        return bool(self.stones)

    @property
    def digest(self) -> str:
        """Return a hash that identifies this set of tombstones; empty if there are none."""
        return self.hash((one.words for one in self.stones), size=4) if self.stones else ""

    def hide(self, text: str, source: MemorySource) -> str:
        """Return a text with forgotten parts blanked, and the same number of lines.

        In notes, whole lines are blanked; in what was said in a session, also words within a line.
        """
        if not self.stones:
            return text
        return self._hidden(text, source) if len(text) <= KEPT_CHARS else self._hide(text, source)

    def hide_in_excerpt(self, text: str) -> str:
        """Return a text whose end may be cut off, without forgotten parts, even if those are cut off too."""
        if not self.stones:
            return text
        return self._without_quotations(self._hide(text, "memory"), is_excerpt=True)

    def covers(self, one: Statement) -> bool:
        """Return whether a statement was forgotten."""
        return self.hash(one.words) in self._words

    def stone_of(self, one: Statement) -> Tombstone:
        """Return the tombstone for a statement."""
        if not can_be_quoted(one.said):
            return Tombstone(words=self.hash(one.words))
        return Tombstone(
            words=self.hash(one.words),
            said=self.hash(one.said),
            length=len(one.said),
            beginning=self._beginning(one.said),
        )

    def hash(self, words: Iterable[str], *, size: int = 16) -> str:
        """Return the keyed hash of some words."""
        return blake2b(" ".join(words).encode(errors="replace"), digest_size=size, key=self._key).hexdigest()

    def _hide(self, text: str, source: MemorySource) -> str:
        if source == "sessions":
            return self._without_quotations(text)
        lines = text.split("\n")
        for one in statements_of(text):
            if self.covers(one):
                lines[one.start_line - 1 : one.end_line] = [""] * (one.end_line - one.start_line + 1)
        return "\n".join(lines)

    def _without_quotations(self, text: str, *, is_excerpt: bool = False) -> str:
        lines = text.split("\n")
        for number, line in enumerate(lines):
            places = [*words_with_places(line)]
            words = tuple(place.word for place in places)
            quoted = [False] * len(words)
            for at in range(len(words) - BEGINNING + 1):
                for size in self._lengths.get(self._beginning(words[at : at + BEGINNING]), ()):
                    # The last word may be cut too, so equal length does not mean equal words.
                    is_cut = is_excerpt and number == len(lines) - 1 and at + size >= len(words)
                    if is_cut or self._said.get(self.hash(words[at : at + size])) == size:
                        end = min(at + size, len(words))
                        quoted[at:end] = [True] * (end - at)
            if any(quoted):
                lines[number] = without(line, joined_spans(places, quoted), INSTEAD)
        return "\n".join(lines)

    def _beginning(self, words: Words) -> str:
        return self.hash(words[:BEGINNING], size=2)


_NONE = Tombstones(b"", ())


class Forgotten:
    """The tombstones in the state folder of a workspace; reads and writes files: call it in a thread.

    Writers must hold `lock_path`. Changes by other processes are noticed.
    """

    def __init__(self, state_dir: Path, workspace_id: str) -> None:
        self.folder = state_dir / FOLDER / workspace_id
        self.lock_path = self.folder / "lock"
        self.journal_path = self.folder / "under-way.json"
        self._stones_path = self.folder / "tombstones.jsonl"
        self._followers_path = self.folder / "followers.json"
        self.pending: Mapping[str, str] = {}
        """The backends that have yet to forget something, with the reasons, as of the last attempt."""
        self._state: tuple[int, ...] | None = None
        self._now = _NONE

    @property
    def known(self) -> Tombstones:
        """Return the tombstones as last read, without reading."""
        return self._now

    def now(self) -> Tombstones:
        """Return the present tombstones.

        Raises:
            BackendUnavailable: their file, or their key, is damaged.
        """
        try:
            found = self._stones_path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._state, self._now = None, _NONE
            return self._now
        state = (found.st_mtime_ns, found.st_size, found.st_ino)
        if state != self._state:
            try:
                key, data = self.key(), self._stones_path.read_bytes()
                head, _, rest = data.partition(b"\n")
                written = json.loads(head)
                if CHECKSUM not in written:  # written by an earlier version
                    rest = data
                elif written[CHECKSUM] != _checksum(rest, key):
                    raise ValueError("it, or the key beside it, was changed")
                stones = [Tombstone(**json.loads(line)) for line in rest.splitlines()]
            except (TypeError, ValueError) as error:
                # Without tombstones forgotten text would come back, so refuse to go on.
                problem = f"{self._stones_path}, which says what was forgotten, is damaged ({error})"
                fix = "restore it from a backup, or delete it and forget again whatever reappears"
                raise BackendUnavailable("forget", problem, fix=fix, operation="read") from error
            self._now, self._state = Tombstones(key, stones), state
        return self._now

    def hide(self, text: str, source: MemorySource) -> str:
        """Return a text with forgotten parts blanked, and the same number of lines."""
        return self.now().hide(text, source)

    def digest(self) -> str:
        """Return a hash that identifies everything forgotten so far; empty if nothing was."""
        return self.now().digest

    def holds(self, text: str) -> bool:
        """Return whether a text contains something forgotten."""
        return self.hide(self.hide(text, "memory"), "sessions") != text

    def hashing(self) -> Tombstones:
        """Return tombstones that can hash, even if nothing was forgotten yet."""
        return Tombstones(self.key(), self.now().stones)

    def bury(self, statements: Iterable[Statement]) -> Sequence[Tombstone]:
        """Store tombstones for those statements that can be recognised; return these tombstones."""
        before = self.hashing()
        stones = [before.stone_of(one) for one in statements if one.is_recognisable]
        self.require_all_to_follow()
        self._write([*dict.fromkeys((*before.stones, *stones))])
        return stones

    def is_unfinished(self, backend_ids: Iterable[str]) -> bool:
        """Return whether something has yet to be forgotten, in the notes or by one of these backends."""
        return self.journal_path.exists() or bool(self.behind(backend_ids))

    def behind(self, backend_ids: Iterable[str]) -> frozenset[str]:
        """Return the backends that are behind: something was forgotten while they were not open."""
        calls, followed = self._followers()
        return frozenset(one for one in backend_ids if followed.get(one, 0) < calls)

    def require_all_to_follow(self) -> None:
        """Make all backends follow again, including those not open now."""
        calls, followed = self._followers()
        self._write_followers(calls + 1, followed)

    def follow(self, backend_ids: Iterable[str]) -> None:
        """Record that some backends have followed."""
        calls, followed = self._followers()
        self._write_followers(calls, {**followed, **dict.fromkeys(backend_ids, calls)})

    def _followers(self) -> tuple[int, Mapping[str, int]]:
        """Return the number of times there was something to follow, and how far each backend has come."""
        try:
            wire = json.loads(self._followers_path.read_bytes())
            return int(wire["calls"]), {one: int(calls) for one, calls in wire["followed"].items()}
        except (AttributeError, FileNotFoundError, LookupError, NotADirectoryError, TypeError, ValueError):
            return int(bool(self.now())), {}  # unknown who has followed: all do so again

    def _write_followers(self, calls: int, followed: Mapping[str, int]) -> None:
        wire = {"calls": calls, "followed": followed}
        replace_file(self._followers_path, json.dumps(wire).encode(), survives="power cut")

    def lift(self, text: str) -> bool:
        """Allow the lines of a text to be remembered again; return whether one of them was forgotten."""
        before = self.now()
        said = {before.hash(one.words) for one in statements_of(text)} if before else set()
        kept = [one for one in before.stones if not said & {one.words, one.said}]
        if len(kept) == len(before.stones):
            return False
        self._write(kept)
        return True

    def key(self) -> bytes:
        """Return the key of this workspace; the first call creates it."""
        path = self.folder / "key"
        with suppress(FileNotFoundError):
            if len(known := path.read_bytes()) == KEY_BYTES:
                return known
        make_private_folder(self.folder)
        fresh = path.with_name(f"key.{os.urandom(6).hex()}")
        replace_file(fresh, os.urandom(KEY_BYTES), survives="power cut")
        try:
            os.link(fresh, path)  # fails if another process was first, whose key is then used
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
        return path.read_bytes()

    def _write(self, stones: Sequence[Tombstone]) -> None:
        lines = (json.dumps(asdict(one), separators=(",", ":")) for one in stones)
        rest = "".join(f"{line}\n" for line in lines).encode()
        head = json.dumps({CHECKSUM: _checksum(rest, self.key())}).encode()
        replace_file(self._stones_path, head + b"\n" + rest, survives="power cut")


def _checksum(data: bytes, key: bytes) -> str:
    return blake2b(data, digest_size=16, key=key[:KEY_BYTES]).hexdigest()
