"""Late interaction: compares each word of a query with every word of a passage by contextual embeddings.

A passage is scored by the similarity of each query word to its nearest word, with rare words counting more
(Khattab and Zaharia, "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
over BERT", 2020), once in the whole passage and once in the best two neighbouring lines. The states (token
embeddings) of a line are computed once and cached by its text, so that only the query has to be read by the
model at search time.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from composable_memory.interfaces import RerankRequest, RerankServices
from composable_memory.supervision.resource import closing
from composable_memory_adapters.rerankers.token_states import (
    DIMENSIONS,
    MODEL,
    SCALE,
    States,
    TokenStates,
    lines_of,
)
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")
Numbers: TypeAlias = "npt.NDArray[np.float32]"
Places: TypeAlias = "npt.NDArray[np.intp]"

ID = "late-interaction"
FOLDER = "rerank"

LAST_LATIN = "\u024f"

FAR = 0.2
"""Any two words of a language are about this similar, whatever they mean."""

MEANING_SHARE = 0.25
"""Share of the similarity of two lines as a whole to the query as a whole; the rest is word by word."""

MULTIPLIED_AT_ONCE = 250_000
"""OpenBLAS uses its threads from 262,144 products on."""

READ_AT_ONCE = 16
"""Lines that a query may wait for, about 0.1 s; if more are unread, it is not reranked."""

LINES_A_TURN = 4
"""After this many lines read ahead, waiting queries get their turn."""

LINES_A_WRITE = 128
PASSAGES_KEPT = 4096
"""Passages whose states stay in memory, about 7 KB each."""

TABLES = """
CREATE TABLE IF NOT EXISTS states (line INTEGER PRIMARY KEY, states BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS made_by (model TEXT NOT NULL);
"""
STATES = "SELECT line, states FROM states WHERE line IN (SELECT value FROM json_each(?))"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """The states of a passage's words, line after line, and the number of words in each line."""

    states: States
    lines: Sequence[int]

    @classmethod
    def of(cls, lines: Sequence[States]) -> "_Passage":
        filled = [line for line in lines if len(line)]
        states = np.concatenate(filled) if filled else np.empty((0, DIMENSIONS), dtype=np.int8)
        return cls(states=states, lines=[len(line) for line in filled])


class LateInteraction:
    """Implements `Reranker` and `SupportsReadingAhead`; the first call loads the model, in its own thread."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=ID)
        self._model: TokenStates | None = None
        self._is_laid_out = False
        self._passages: OrderedDict[bytes, _Passage] = OrderedDict()

    async def rerank(self, request: RerankRequest) -> Sequence[float] | None:
        """Return how well each passage answers; None if too many of their lines are still unread.

        For a query in a script that the model cannot read, all passages score the same.

        Raises:
            BackendUnavailable: the model cannot be loaded.
            IndexProblem: the file of states cannot be used.
        """
        await self._lay_out()
        keys = [_key_of(passage) for passage in request.passages]
        states = {key: kept for key in keys if (kept := self._passages.get(key)) is not None}
        new = {key: text for key, text in zip(keys, request.passages, strict=True) if key not in states}
        if new:
            found = await self._states_of(new)
            if found is None:
                return None
            states |= found
        for key in keys:
            self._passages[key] = states[key]
            self._passages.move_to_end(key)
        while len(self._passages) > PASSAGES_KEPT:
            self._passages.popitem(last=False)
        return await self._in_thread(
            lambda model: _relevances(model, request.query, request.weights, [states[key] for key in keys])
        )

    async def read_ahead(self, passages: AsyncIterable[Sequence[str]]) -> None:
        """Read unread lines, a few at a time, and forget lines that no passage has."""
        await self._lay_out()
        seen: set[int] = set()
        async for batch in passages:
            lines = {_number_of(line): line for passage in batch for line in lines_of(passage)}
            seen.update(lines)
            known = await self._file.read(partial(_known, lines=[*lines]))
            new = [(number, line) for number, line in lines.items() if number not in known]
            for start in range(0, len(new), LINES_A_WRITE):
                await self._write(await self._read(new[start : start + LINES_A_WRITE]))
        await self._file.write(lambda connection: _forget_others(connection, seen))

    async def close(self) -> None:
        """Stop the thread after its current task."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def _lay_out(self) -> None:
        if not self._is_laid_out:
            await self._file.write(_lay_out)
            self._is_laid_out = True

    async def _states_of(self, passages: Mapping[bytes, str]) -> dict[bytes, _Passage] | None:
        """Return the states of passages: from the file, or for a few lines by reading them now."""
        lines = {key: [(_number_of(line), line) for line in lines_of(text)] for key, text in passages.items()}
        every = {number: line for numbered in lines.values() for number, line in numbered}
        known = await self._file.read(lambda connection: _stored(connection, {*every}))
        unread = {number: line for number, line in every.items() if number not in known}
        if len(unread) > READ_AT_ONCE:
            return None
        if unread:
            fresh = await self._read([*unread.items()])
            await self._write(fresh)
            known |= fresh
        return {
            key: _Passage.of([known[number] for number, _ in numbered]) for key, numbered in lines.items()
        }

    async def _read(self, lines: Sequence[tuple[int, str]]) -> dict[int, States]:
        states: dict[int, States] = {}
        for start in range(0, len(lines), LINES_A_TURN):
            part = lines[start : start + LINES_A_TURN]
            states |= await self._in_thread(partial(_read, lines=part))
        return states

    async def _write(self, states: Mapping[int, States]) -> None:
        rows = [(number, one.tobytes()) for number, one in states.items()]
        await self._file.write(
            lambda connection: connection.executemany("INSERT OR REPLACE INTO states VALUES (?, ?)", rows)
        )

    async def _in_thread(self, work: Callable[[TokenStates], T]) -> T:
        def run() -> T:
            if self._model is None:
                self._model = TokenStates()
            return work(self._model)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


@asynccontextmanager
async def open_late_interaction(services: RerankServices) -> AsyncIterator[LateInteraction]:
    """Yield the reranker; its states are in a separate file for each index."""
    path = services.state_dir / FOLDER / f"{services.collection}.sqlite"
    async with SqliteFile.open(path) as file, closing(LateInteraction(file)) as reranker:
        yield reranker


def _relevances(
    model: TokenStates, query: str, weights: Mapping[str, float], passages: Sequence[_Passage]
) -> list[float]:
    words, asked = model.of(query)
    relevances = np.zeros(len(passages))
    filled = np.array([len(one.lines) > 0 for one in passages])
    if words and filled.any() and _can_be_read(query):
        telling = np.array([weights.get(word, 0.0) for word in words], dtype=np.float32)
        if not telling.sum():
            telling[:] = 1.0
        lines = _Lines.of([one for one in passages if one.lines])
        relevances[filled] = _judged(asked.astype(np.float32), telling / telling.sum(), lines)
    return [float(one) for one in np.clip(relevances, 0.0, 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """The lines of all passages: the states of their words, and where each line and each passage begins.

    `beside` has for each line the next one of its passage; for the last line the one before it, if any.
    """

    states: Numbers
    begins: Places
    firsts: Places
    beside: Places

    @classmethod
    def of(cls, passages: Sequence[_Passage]) -> "_Lines":
        words = np.array([count for one in passages for count in one.lines])
        counts = np.array([len(one.lines) for one in passages])
        firsts = np.cumsum(counts) - counts
        beside = np.arange(1, len(words) + 1)
        lasts = firsts + counts - 1
        beside[lasts] = np.maximum(lasts - 1, firsts)
        return cls(
            states=np.concatenate([one.states for one in passages]).astype(np.float32),
            begins=np.cumsum(words) - words,
            firsts=firsts,
            beside=beside,
        )


def _judged(asked: Numbers, telling: Numbers, lines: _Lines) -> Numbers:
    """Score each passage by all of its lines and by the best two neighbouring ones."""
    nearest = np.maximum.reduceat(_products(asked, lines.states), lines.begins, axis=1)
    near = _nearness((nearest / SCALE**2).astype(np.float32))
    in_all = _weighted(telling, np.maximum.reduceat(near, lines.firsts, axis=1))
    in_two = np.maximum.reduceat(_weighted(telling, np.maximum(near, near[:, lines.beside])), lines.firsts)
    sums = np.add.reduceat(lines.states, lines.begins, axis=0)
    both = sums + sums[lines.beside]
    question = asked.sum(axis=0)
    lengths = np.linalg.norm(both, axis=1) * np.linalg.norm(question)
    alike = _nearness((np.vecdot(both, question) / np.maximum(lengths, 1e-9)).astype(np.float32))
    meaning = np.maximum.reduceat(alike, lines.firsts)
    judged = (1 - MEANING_SHARE) * (in_all + in_two) / 2 + MEANING_SHARE * meaning
    return judged.astype(np.float32)


def _products(asked: Numbers, states: Numbers) -> Numbers:
    """Return the products of each query word with each state.

    Computed in blocks that OpenBLAS does not spread over threads: its threads spin while they wait, and take
    more processor time than everything else.
    """
    count = max(1, MULTIPLIED_AT_ONCE // asked.size)
    return np.concatenate(
        [asked @ states[begin : begin + count].T for begin in range(0, len(states), count)], axis=1
    )


def _weighted(telling: Numbers, near: Numbers) -> Numbers:
    weighted: Numbers = np.einsum("w,wl->l", telling, near)
    return weighted


def _nearness(cosines: Numbers) -> Numbers:
    near: Numbers = np.clip((cosines - FAR) / (1 - FAR), 0.0, 1.0)
    return near


def _can_be_read(query: str) -> bool:
    """Return whether most letters are Latin; the model only knows single letters of other scripts."""
    letters = [character for character in query if character.isalpha()]
    return 2 * sum(character <= LAST_LATIN for character in letters) >= len(letters)


def _read(model: TokenStates, lines: Sequence[tuple[int, str]]) -> dict[int, States]:
    return {number: model.of(line)[1] for number, line in lines}


def _key_of(passage: str) -> bytes:
    return blake2b(passage.encode("utf-8", "replace"), digest_size=16).digest()


def _number_of(line: str) -> int:
    return int.from_bytes(blake2b(line.encode("utf-8", "replace"), digest_size=8).digest(), signed=True)


def _lay_out(connection: Connection) -> None:
    connection.execute(TABLES)
    if connection.execute("SELECT model FROM made_by").get != MODEL:
        connection.execute("DELETE FROM states")
        connection.execute("DELETE FROM made_by")
        connection.execute("INSERT INTO made_by VALUES (?)", (MODEL,))


def _stored(connection: Connection, lines: Iterable[int]) -> dict[int, States]:
    return {
        number: np.frombuffer(states, dtype=np.int8).reshape(-1, DIMENSIONS)
        for number, states in connection.execute(STATES, (json.dumps([*lines]),))
    }


def _known(connection: Connection, lines: Iterable[int]) -> set[int]:
    found = connection.execute(STATES.replace("line, states FROM", "line FROM"), (json.dumps([*lines]),))
    return {number for (number,) in found}


def _forget_others(connection: Connection, lines: Iterable[int]) -> None:
    kept = json.dumps([*lines])
    connection.execute("DELETE FROM states WHERE line NOT IN (SELECT value FROM json_each(?))", (kept,))
