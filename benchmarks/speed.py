"""How fast the builtin memory searches, as ratios to what the same machine does without it.

    python benchmarks/speed.py                     a minute, up to 10,000 passages
    python benchmarks/speed.py --full              100,000 passages
    python benchmarks/speed.py --million           a million passages, made in half an hour and kept
    python benchmarks/speed.py --only vectors
    python benchmarks/speed.py --only recall --data DIR   what the mapped vectors of real texts find
    python benchmarks/speed.py --all --qmd PROGRAM --data DIR   with other benchmarks of speed

Times are CPU times of the process, medians over queries, engines in turn within one run: on a busy machine
wall time says more about the neighbours. All data are generated, and the same in every run; those of
`--million` are kept. A further section is an async generator from `Scale` to tables, registered with
`@section`.
"""

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

# One thread for every library, so that all are compared on one core. It must be set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from composable_memory.content import EmbedderInput
from composable_memory_adapters.builtin.index_file import ensure_tables
from composable_memory_adapters.builtin.search import keyword_leg
from composable_memory_adapters.builtin.search.hybrid import CANDIDATES
from composable_memory_adapters.builtin.search.searcher import Searcher
from composable_memory_adapters.builtin.search.vector_search import VectorSearch
from composable_memory_adapters.builtin.settings import BuiltinSettings, VectorSettings
from composable_memory_adapters.builtin.store import index_meta
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.schema import checksum_of
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_adapters.text.query_terms import KeywordQuery, analyse
from composable_memory_adapters.vectors import sqlite_vec
from composable_memory_adapters.vectors.in_memory import (
    ExactVectors,
    Matrix,
    Neighbour,
    unit_rows,
)
from composable_memory_adapters.vectors.int8_file import Codes
from composable_memory_adapters.vectors.mapped import Filed
from composable_memory_ops_logs import utc_now

K = 24
DIMS = 256
"""Length of the vectors where a section does not say otherwise."""

CACHE = Path.home() / ".cache" / "composable-memory-benchmarks"
MILLION = 1_000_000
BATCH = 100_000
VOCABULARY = 50_000
WORDS_PER_PASSAGE = (60, 240)
PASSAGES_PER_NOTE = 20
EVERYDAY = (60, 4000)
"""The ranks of everyday words in the vocabulary; the most frequent of all say nothing."""

WRITES = 15
WRITTEN = 10 * MILLION
"""The ids of what is written while it is measured begin here."""
ROUNDS = 4
KNN_TABLE = "speed_vec"

BARE_FTS5 = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY bm25(chunks_fts) LIMIT ?"
STORE_VECTOR = """
INSERT INTO embedding_cache (id, provider, model, provider_key, hash, embedding, dims, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, 0)
"""
STORE_PASSAGE = """
INSERT INTO chunks (id, path, start_line, end_line, hash, text, embedding_id, checksum, updated_at)
VALUES (?, ?, 1, 20, ?, ?, ?, ?, 0)
"""
STORE_WORDS = "INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)"


# --- what to measure, and how it is shown ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much to measure, and where files may be put; those in `cache` stay."""

    passages: Sequence[int]
    vectors: Sequence[int]
    large: Sequence[int]
    queries: int
    folder: Path
    cache: Path
    data: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Figures to be printed as Markdown."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join([f"### {self.title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


Section = Callable[[Scale], AsyncIterator[Table]]
SECTIONS: dict[str, Section] = {}


def section(name: str) -> Callable[[Section], Section]:
    """Register a section under `name`."""

    def register(measure: Section) -> Section:
        SECTIONS[name] = measure
        return measure

    return register


class Times:
    """Milliseconds by name: CPU time of the whole process, and wall time."""

    def __init__(self) -> None:
        self._cpu: dict[str, list[float]] = {}
        self._wall: dict[str, list[float]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Take the time of what happens inside."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self._cpu.setdefault(name, []).append((time.process_time() - cpu) * 1000)
        self._wall.setdefault(name, []).append((time.perf_counter() - wall) * 1000)

    def cpu(self, name: str, percentile: float = 50) -> float:
        """Return a percentile of the CPU time."""
        return float(np.percentile(self._cpu[name], percentile))

    def wall(self, name: str, percentile: float) -> float:
        """Return a percentile of the wall time."""
        return float(np.percentile(self._wall[name], percentile))


# --- vector engines against the plain product ---


@section("vectors")
async def vector_engines(scale: Scale) -> AsyncIterator[Table]:
    """Compare each engine with the product of a float32 matrix and the query."""
    for count in scale.vectors:
        for dims in (256, 384):
            path = scale.folder / f"vectors-{count}-{dims}.sqlite"
            async with SqliteFile.open(path) as file:
                space, matrix = _space(dims), clustered_vectors(count, dims, seed=1)
                await _store_vectors(file, space, matrix)
                await file.write(partial(_fill_knn_table, matrix=matrix))
                asked = clustered_vectors(scale.queries, dims, seed=2)
                yield await file.read(partial(_compare_engines, matrix=matrix, asked=asked))


def _compare_engines(connection: Connection, matrix: Matrix, asked: Matrix) -> Table:
    count, dims = matrix.shape
    sqlite_vec.load(connection)
    exact = ExactVectors(dims)
    exact.add(range(1, count + 1), matrix)
    filed = Filed(codes=Codes.of(range(1, count + 1), matrix), gone=np.empty(0, dtype=np.intp))
    engines: dict[str, Callable[[Matrix], list[Neighbour]]] = {
        "numpy product": lambda query: _plain_product(matrix, query),
        "exact": lambda query: exact.search(query, K),
        "mapped": lambda query: filed.search(query, K),
        "sqlite-vec": lambda query: sqlite_vec.nearest(connection, KNN_TABLE, query.tobytes(), K),
    }
    times, recall = Times(), dict.fromkeys(engines, 0.0)
    for query in asked:
        truth = {id_ for id_, _ in _plain_product(matrix, query)}
        for name, search in engines.items():
            with times.of(name):
                found = search(query)
            recall[name] += len(truth & {id_ for id_, _ in found}) / (K * len(asked))
    table = Table(
        title=f"{count:,} vectors of {dims} numbers, the {K} nearest",
        columns=("engine", "CPU ms", "x product", "x sqlite-vec", f"recall@{K}"),
    )
    for name in engines:
        table.rows.append(
            (
                name,
                f"{times.cpu(name):.3f}",
                f"{times.cpu(name) / times.cpu('numpy product'):.2f}",
                f"{times.cpu(name) / times.cpu('sqlite-vec'):.3f}",
                f"{recall[name]:.4f}",
            )
        )
    return table


@section("recall")
async def recall(scale: Scale) -> AsyncIterator[Table]:
    """Compare the mapped vectors of real texts with the product, for the questions of each set by itself."""
    if scale.data is None:
        return
    sets = sorted(path.parent for path in scale.data.glob("*/queries.jsonl"))
    matrix = await _embedded([*dict.fromkeys(text for one in sets for text in _pieces(one))])
    filed = Filed(codes=Codes.of(range(1, len(matrix) + 1), matrix), gone=np.empty(0, dtype=np.intp))
    table = Table(
        title=f"{len(matrix):,} vectors of real texts, the {K} nearest",
        columns=("set", "questions", "product CPU ms", "mapped x product", f"recall@{K}"),
    )
    for one in sets:
        rows = (one / "queries.jsonl").read_text("utf-8").splitlines()
        times, found = Times(), 0.0
        asked = await _embedded([json.loads(row)["question"] for row in rows])
        for query in asked:
            with times.of("product"):
                truth = {id_ for id_, _ in _plain_product(matrix, query)}
            with times.of("mapped"):
                nearest = filed.search(query, K)
            found += len(truth & {id_ for id_, _ in nearest}) / K
        product = times.cpu("product")
        ratio = f"{times.cpu('mapped') / product:.2f}"
        table.rows.append((one.name, str(len(asked)), f"{product:.2f}", ratio, f"{found / len(asked):.4f}"))
    yield table


def _pieces(folder: Path) -> Iterator[str]:
    """Yield the notes of a set line by line, and in pieces of 20 and of 60 words that overlap."""
    for path in sorted(folder.rglob("*.md")):
        text = path.read_text("utf-8")
        yield from (line.strip() for line in text.splitlines() if line.strip())
        words = text.split()
        for length, step in ((20, 8), (60, 20)):
            yield from (" ".join(words[start : start + length]) for start in range(0, len(words), step))


async def _embedded(texts: Sequence[str]) -> Matrix:
    embedder = WordLlamaEmbedder()
    try:
        vectors = await embedder.embed_batch([EmbedderInput(text=text) for text in texts])
    finally:
        await embedder.close()
    return unit_rows(np.array(vectors, dtype=np.float32))


def _plain_product(matrix: Matrix, query: Matrix) -> list[Neighbour]:
    products = matrix @ query
    places = np.argpartition(-products, K)[:K] if len(products) > K else np.arange(len(products))
    places = places[np.argsort(-products[places])]
    return [(int(place) + 1, float(products[place])) for place in places]


def _fill_knn_table(connection: Connection, matrix: Matrix) -> None:
    sqlite_vec.load(connection)
    sqlite_vec.create_table(connection, KNN_TABLE, matrix.shape[1])
    sqlite_vec.insert(
        connection, KNN_TABLE, ((row, vector.tobytes()) for row, vector in enumerate(matrix, 1))
    )


# --- the keyword leg against the bare statement ---


@section("keywords")
async def keywords(scale: Scale) -> AsyncIterator[Table]:
    """Compare the keyword leg with the FTS5 statement that it cannot do without, for as many passages."""
    table = Table(
        title="Keyword search",
        columns=("passages", "questions", "leg CPU ms", "bare FTS5 CPU ms", "x bare", "goal"),
    )
    for count in scale.passages:
        async with generated_index(scale.folder, count) as file:
            for kind, ranks in (("rare words", (2000, 20_000)), ("everyday words", EVERYDAY)):
                asked = [analyse(question) for question in questions(scale.queries, ranks)]
                times = await file.read(partial(_time_keywords, asked=asked))
                leg, bare = times.cpu("leg"), times.cpu("bare")
                ratio, goal = f"{leg / bare:.2f}", "1.35" if count >= BATCH else "2.1"
                table.rows.append((f"{count:,}", kind, f"{leg:.2f}", f"{bare:.2f}", ratio, goal))
    yield table


def _time_keywords(connection: Connection, asked: Sequence[KeywordQuery]) -> Times:
    times = Times()
    keyword_leg.prepare(connection)
    for query in asked:
        connection.execute(
            BARE_FTS5, (query.match_any(), CANDIDATES)
        ).fetchall()  # brings the pages into the cache
        with times.of("leg"):
            keyword_leg.search(connection, query)
        with times.of("bare"):
            connection.execute(BARE_FTS5, (query.match_any(), CANDIDATES)).fetchall()
    return times


# --- a whole search against its legs ---


@section("search")
async def search(scale: Scale) -> AsyncIterator[Table]:
    """Compare a warm hybrid search with the sum of its legs, each from the question on, up to its candidates.

    The legs read no texts and cut no snippets, which the search does for six results. Where transcripts are a
    source, notes are looked for among them by themselves, though there are only notes here.
    """
    table = Table(
        title="Warm hybrid search, six results",
        columns=(
            "passages",
            "engine",
            "sources",
            "wall p50 ms",
            "wall p95 ms",
            "CPU ms",
            "keyword leg",
            "vector leg",
            "x legs",
            "goal",
            "load ms",
        ),
    )
    for count in scale.passages:
        async with generated_index(scale.folder, count) as file:
            for sources in (("memory",), ("memory", "sessions")):
                table.rows.append(await _time_search(file, scale.queries, count, sources))
    yield table


async def _time_search(file: SqliteFile, queries: int, count: int, sources: Sequence[str]) -> Sequence[str]:
    times, searcher = Times(), _searcher(file, sources)
    vectors = VectorSearch(
        file, settings=VectorSettings(), embedder=QueryEmbedder(), space=_space(DIMS), embed_timeout_s=10.0
    )
    with times.of("load"):
        await searcher.warm()
    await vectors.warm()
    engine = ""
    for question in questions(queries, EVERYDAY):
        await searcher.answer(question)  # brings the pages into the cache
        with times.of("search"):
            answer = await searcher.answer(question)
        with times.of("keyword"):
            await file.read(partial(_keyword_search, words=analyse(question)))
        with times.of("vector"):
            if (vector := await vectors.embed(question)) is not None:
                await vectors.near(vector, CANDIDATES)
        engine = answer.engines["vector"]
    return (
        f"{count:,}",
        engine,
        " and ".join(sources),
        f"{times.wall('search', 50):.1f}",
        f"{times.wall('search', 95):.1f}",
        f"{times.cpu('search'):.2f}",
        f"{times.cpu('keyword'):.2f}",
        f"{times.cpu('vector'):.2f}",
        f"{times.cpu('search') / (times.cpu('keyword') + times.cpu('vector')):.2f}",
        "1.2" if count >= BATCH else "1.4",
        f"{times.wall('load', 50):.0f}",
    )


def _keyword_search(connection: Connection, words: KeywordQuery) -> keyword_leg.KeywordAnswer:
    keyword_leg.prepare(connection)
    return keyword_leg.search(connection, words)


class QueryEmbedder:
    """Gives each question one of a few vectors that resemble those of the passages."""

    id = "generated"
    model = "clusters"
    dimensions = DIMS

    def __init__(self) -> None:
        matrix = clustered_vectors(64, DIMS, seed=3)
        self._vectors: list[list[float]] = [vector.tolist() for vector in matrix]

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        return self._vectors[sha256(input.text.encode()).digest()[0] % len(self._vectors)]

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        return [await self.embed(one) for one in inputs]


# --- a million passages ---


@section("million")
async def million(scale: Scale) -> AsyncIterator[Table]:
    """Measure what people feel where there are a million passages, or as many as there are."""
    for count in scale.large:
        async with generated_index(scale.folder, 1000) as file:
            searcher = _searcher(file)
            await searcher.answer(questions(1, EVERYDAY)[0])
            empty = _own_memory()
            await searcher.close()
        async with generated_index(scale.cache, count) as file:
            made = _searcher(file)
            await made.warm()  # writes the file of vectors where there is none
            await made.close()
            yield await _felt(file, scale, empty, count)


async def _felt(file: SqliteFile, scale: Scale, empty: float, count: int) -> Table:
    table = Table(title=f"{count:,} passages, hybrid", columns=("what", "measured", "goal"))
    searcher, times = _searcher(file), Times()
    asked = questions(scale.queries, EVERYDAY)
    with times.of("first"):
        await searcher.answer(asked[0])
    for question in asked:
        await searcher.answer(question)  # brings the pages into the cache
        with times.of("warm"):
            await searcher.answer(question)
    memory = _own_memory() - empty
    for number, question in enumerate(asked[:WRITES]):
        await file.write(partial(_write_one, number=number))
        with times.of("after"):
            await searcher.answer(question)
        with times.of("again"):
            await searcher.answer(question)
    await file.write(_remove_written)
    after = times.cpu("after") - times.cpu("again")
    table.rows.extend(
        [
            (
                "first question",
                f"{times.cpu('first'):.0f} ms CPU, {times.wall('first', 50):.0f} ms wall",
                "500 ms",
            ),
            (
                "warm question, p50 / p95",
                f"{times.cpu('warm'):.1f} / {times.cpu('warm', 95):.1f} ms CPU",
                "50 / 110 ms CPU",
            ),
            ("the question after a note was written, above a warm one", f"{after:.1f} ms CPU", "30 ms"),
            ("memory above an index of 1,000, without mapped files", f"{memory:.0f} MB", "150 MB"),
        ]
    )
    for at_once in (8, 32):
        rate, busy, p95 = await _at_once(searcher, asked, at_once)
        measured = f"{rate:.1f} a second, {busy:.1f} a second of CPU, p95 {p95:.2f} s"
        table.rows.append((f"{at_once} at once", measured, "20 a second, p95 2.5 s of 32"))
    await searcher.close()
    return table


async def _at_once(searcher: Searcher, asked: Sequence[str], count: int) -> tuple[float, float, float]:
    """Return questions a second, a second of CPU, and the seconds that 95 of 100 stay within."""
    took: list[float] = []

    async def ask(number: int) -> None:
        for place in range(ROUNDS):
            began = time.perf_counter()
            await searcher.answer(asked[(number * ROUNDS + place) % len(asked)])
            took.append(time.perf_counter() - began)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(ask, range(count)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return len(took) / wall, len(took) / cpu, float(np.percentile(took, 95))


def _searcher(file: SqliteFile, sources: Sequence[str] = ("memory",)) -> Searcher:
    settings = BuiltinSettings.model_validate({"sources": sources})
    return Searcher(file, settings=settings, clock=utc_now, embedder=QueryEmbedder(), space=_space(DIMS))


def _write_one(connection: Connection, number: int) -> None:
    """Store a passage as a sync does, with a vector of its own."""
    row = WRITTEN + number
    (vector,) = clustered_vectors(1, DIMS, seed=row)
    space = _space(DIMS)
    identity = (space.provider, space.model, space.provider_key)
    connection.execute(STORE_VECTOR, (row, *identity, f"{row:064x}", vector.tobytes(), DIMS))
    text = f"a note written as number {number}"
    connection.execute(STORE_PASSAGE, _passage(row, "memory/new.md", text))
    connection.execute(STORE_WORDS, (row, text))
    index_meta.bump_revision(connection)


def _remove_written(connection: Connection) -> None:
    connection.execute("DELETE FROM chunks_fts WHERE rowid >= ?", (WRITTEN,))
    connection.execute("DELETE FROM chunks WHERE id >= ?", (WRITTEN,))
    connection.execute("DELETE FROM embedding_cache WHERE id >= ?", (WRITTEN,))
    index_meta.bump_revision(connection)


def _own_memory() -> float:
    """Return the megabytes that are this process's alone and of no file; NaN where Linux does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text("utf-8").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:")), math.nan)


# --- generated data ---


@asynccontextmanager
async def generated_index(folder: Path, count: int) -> AsyncIterator[SqliteFile]:
    """Yield an index of `count` passages with vectors; made when it is asked for first."""
    path = folder / f"index-{count}-checked.sqlite"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        unfinished.unlink(missing_ok=True)
        async with SqliteFile.open(unfinished) as file:
            for batch, first in enumerate(range(0, count, BATCH), 1):
                more = min(BATCH, count - first)
                await _store_vectors(file, _space(DIMS), clustered_vectors(more, DIMS, seed=batch), first)
                await file.write(partial(_store_passages, texts=passages(more, seed=batch), first=first))
        unfinished.rename(path)
    async with SqliteFile.open(path) as file:
        yield file


async def _store_vectors(file: SqliteFile, space: EmbeddingSpace, matrix: Matrix, first: int = 0) -> None:
    await ensure_tables(file)
    identity = (space.provider, space.model, space.provider_key)
    rows = (
        (row, *identity, f"{row:064x}", vector.tobytes(), space.dims)
        for row, vector in enumerate(matrix, first + 1)
    )
    await file.write(lambda connection: connection.executemany(STORE_VECTOR, rows).close())


def _passage(row: int, path: str, text: str) -> tuple[int, str, str, str, int, int]:
    digest = sha256(text.encode()).hexdigest()
    checksum = checksum_of(path, "memory", 1, 20, 0, digest, title="", headings="")
    return row, path, digest, text, row, checksum


def _store_passages(connection: Connection, texts: Sequence[str], first: int) -> None:
    rows = [
        _passage(row, f"memory/{row // PASSAGES_PER_NOTE:06}.md", text)
        for row, text in enumerate(texts, first + 1)
    ]
    connection.executemany(STORE_PASSAGE, rows)
    connection.executemany(STORE_WORDS, [*enumerate(texts, first + 1)])
    index_meta.bump_revision(connection)


def _space(dims: int) -> EmbeddingSpace:
    return EmbeddingSpace(provider="generated", model="clusters", provider_key=f"clusters-{dims}", dims=dims)


def clustered_vectors(count: int, dims: int, *, seed: int) -> Matrix:
    """Return unit vectors that lie in clusters of fewer dimensions, as those of texts do.

    The clusters are the same for every `seed`.
    """
    latent, clusters = 160, 500
    fixed, random = np.random.default_rng(0), np.random.default_rng(seed)
    centres = fixed.standard_normal((clusters, latent), dtype=np.float32)
    spread = fixed.standard_normal((latent, dims), dtype=np.float32)
    points = centres[random.integers(clusters, size=count)]
    points += 1.2 * random.standard_normal((count, latent), dtype=np.float32)
    noise = random.standard_normal((count, dims), dtype=np.float32)
    return unit_rows(points @ spread + noise)


def vocabulary() -> list[str]:
    """Return invented words, the most frequent ones first."""
    random = np.random.default_rng(0)
    syllables = [
        onset + vowel for onset in "bdfgklmnprstvz" for vowel in ("a", "e", "i", "o", "u", "ar", "en")
    ]
    lengths = random.integers(2, 5, size=VOCABULARY)
    words = dict.fromkeys("".join(random.choice(syllables, size=length)) for length in lengths)
    return list(words)


def passages(count: int, seed: int) -> list[str]:
    """Return texts in which the n-th word of the vocabulary is n times rarer than the first."""
    words, random = vocabulary(), np.random.default_rng(seed)
    frequency = np.cumsum(1 / (np.arange(len(words)) + 2.7))
    lengths = random.integers(*WORDS_PER_PASSAGE, size=count)
    drawn = np.searchsorted(frequency, random.random(int(lengths.sum())) * frequency[-1]).tolist()
    ends = np.cumsum(lengths).tolist()
    return [
        _in_lines([words[place] for place in drawn[end - length : end]])
        for end, length in zip(ends, lengths.tolist(), strict=True)
    ]


def _in_lines(words: Sequence[str]) -> str:
    return "\n".join(" ".join(words[start : start + 12]) for start in range(0, len(words), 12))


def questions(count: int, ranks: tuple[int, int]) -> list[str]:
    """Return questions with four words of these ranks in the vocabulary."""
    words, random = vocabulary(), np.random.default_rng(2)
    chosen = random.integers(*ranks, size=(count, 4)).tolist()
    return ["what did {} and {} say about {} {}".format(*(words[rank] for rank in row)) for row in chosen]


# --- the command ---


async def run(names: Sequence[str], scale: Scale) -> None:
    """Print the tables of the named sections as they are ready."""
    for name in names:
        async for table in SECTIONS[name](scale):
            print(table, flush=True)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description="Measure how fast the builtin memory searches.")
    parser.add_argument("--full", action="store_true", help="measure 100,000 passages and vectors as well")
    large = {"type": int, "nargs": "?", "const": MILLION, "metavar": "COUNT"}
    parser.add_argument("--million", **large, help="measure a million passages as well, or so many")
    parser.add_argument("--all", action="store_true", help="run the benchmarks of what else takes time, too")
    parser.add_argument("--qmd", metavar="PROGRAM", help="an installed QMD, for --all")
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help="sets of questions, for `recall` and QMD's answers"
    )
    parser.add_argument("--cache", type=Path, default=CACHE, help="where these are kept")
    parser.add_argument("--only", default="", help=f"sections, with commas; of {', '.join(SECTIONS)}")
    parser.add_argument("--queries", type=int, default=25, help="questions for each figure")
    arguments = parser.parse_args()
    names = [name for name in arguments.only.split(",") if name] or list(SECTIONS)
    if unknown := set(names) - set(SECTIONS):
        parser.error(f"unknown section {min(unknown)!r}; there are {', '.join(SECTIONS)}")
    more = (100_000,) if arguments.full else ()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="composable-memory-speed-") as folder:
        scale = Scale(
            passages=(1000, 10_000, *more),
            vectors=(10_000, *more),
            large=(arguments.million,) if arguments.million else (),
            queries=arguments.queries,
            folder=Path(folder),
            cache=arguments.cache,
            data=arguments.data,
        )
        asyncio.run(run(names, scale))
    if arguments.all:
        run_others(arguments.qmd, arguments.data)


def run_others(qmd: str | None, data: Path | None) -> None:
    """Print what the other benchmarks of speed print, each in a process of its own."""
    others = [["orchestrator.py"], ["indexing.py"], ["watching.py"]]
    others.append(["cold_start.py", *(("--qmd", qmd) if qmd else ())])
    if qmd and data:
        others.append(["qmd.py", "--data", str(data), "--command", qmd])
    for script, *options in others:
        print(f"### {script}\n", flush=True)
        subprocess.run([sys.executable, str(Path(__file__).with_name(script)), *options], check=False)
        print(flush=True)


if __name__ == "__main__":
    main()
