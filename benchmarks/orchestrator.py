"""What the orchestrator itself costs: three backends that answer at once, 24 results each, everything logged.

Reports CPU time a query in all threads, beside `asyncio.gather` of three no-ops, and beside LangChain's
`EnsembleRetriever` and LlamaIndex's `QueryFusionRetriever` where they are installed, taken in turn within one
run. Neither of the two has deadlines, attributions or a log. Also shows how far a hanging backend moves the
answer past its deadline.

No answer is given twice before all others were. In the first rows every text is new when it is found: what
is kept of texts for next time helps nothing. In the others four of five were found by one of the last eight
questions. Of what was compared for one of some 200 questions in turn about one folder of notes, as much as
stands in the cache had been compared before: dialogues (LoCoMo) 87 to 92 %, paragraphs of an encyclopedia
(XQuAD) 80 to 88 %, abstracts of papers (Cranfield) 34 %.
"""

import argparse
import asyncio
import gc
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from composable_memory import Breaker, ComposableBackendEntry, ComposableMemoryManager, parse_query_intent
from composable_memory.testing.fakes import HangingBackend
from composable_memory.testing.in_memory import FakeBackend
from composable_memory.types import MemorySearchResult, SearchAnswer, SearchOptions
from composable_memory_ops_logs import OpsLog

RESULTS_EACH = 24
DIFFERENT_ANSWERS = 200
"""With more texts than are remembered to be without secrets, and than are remembered by their words."""
QUESTION = "which port does the dock controller use?"
VOCABULARY = [f"{a}{b}{c}" for c in ("", "s", "ing", "port", "ed", "le", "ry", "tion") for a in ("ha", "sto",
              "wi", "lan", "pre", "cu", "de", "mi", "o", "ga", "fre", "tu") for b in ("der", "no", "r", "st",
              "li", "ve", "mo", "sa", "gen", "th", "k", "ra", "nd", "el", "um", "c", "ber")]  # fmt: skip

Call = Callable[[], Awaitable[object]]


class Ready(FakeBackend):
    """Answers at once with results made beforehand; every third one stands in its neighbours' lists too.

    With `is_known` four of five results are those of one of eight answers.
    """

    def __init__(self, number: int, *, is_known: bool = False) -> None:
        super().__init__(f"ready{number}")
        self.answers = [
            SearchAnswer(
                results=tuple(
                    _result(number, at % 8 if is_known and (at + rank) % 5 else at, rank)
                    for rank in range(RESULTS_EACH)
                )
            )
            for at in range(DIFFERENT_ANSWERS)
        ]
        self._turns = cycle(self.answers)

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        del query, options
        return next(self._turns)


def _result(number: int, at: int, rank: int) -> MemorySearchResult:
    """Return a result such as the builtin memory gives."""
    owner = 0 if rank % 3 == 0 else number
    random = Random(f"{owner} {at} {rank}")
    frequent_first = [1 / place for place in range(1, len(VOCABULARY) + 1)]
    text = " ".join(random.choices(VOCABULARY, frequent_first, k=160))
    return MemorySearchResult(
        path=f"memory/{at % 25:02}/{owner}-{rank:02}.md",
        start_line=1 + 20 * (at // 25),
        end_line=20 + 20 * (at // 25),
        score=1.0 - rank / RESULTS_EACH,
        snippet=text[:700],
        highlights=((4, 9), (40, 44), (200, 207), (420, 430)),
        text=text,
        title="Dock controller",
        headings=("Ports", "Dock"),
        metadata={"by_words": 0.61, "by_meaning": 0.48},
    )


async def no_op() -> None:
    return None


async def gather_no_ops() -> None:
    await asyncio.gather(no_op(), no_op(), no_op())


def ensemble(backends: Sequence[Ready]) -> Call:
    """Return a question to LangChain's `EnsembleRetriever`.

    Raises:
        ImportError: it is not installed.
    """
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    class Retriever(BaseRetriever):
        turns: Iterator[list[Document]]

        def _get_relevant_documents(
            self, query: str, *, run_manager: CallbackManagerForRetrieverRun
        ) -> list[Document]:
            del query, run_manager
            return next(self.turns)

        async def _aget_relevant_documents(self, query: str, *, run_manager: object) -> list[Document]:
            del query, run_manager
            return next(self.turns)

    def documents(answer: SearchAnswer) -> list[Document]:
        return [Document(page_content=one.snippet, metadata={"path": one.path}) for one in answer.results]

    retrievers = [Retriever(turns=cycle([*map(documents, one.answers)])) for one in backends]
    asked = EnsembleRetriever(retrievers=retrievers, weights=[1 / 3] * 3)
    return lambda: asked.ainvoke(QUESTION)


def fusion(backends: Sequence[Ready]) -> Call:
    """Return a question to LlamaIndex's `QueryFusionRetriever`.

    Raises:
        ImportError: it is not installed.
    """
    from llama_index.core.llms import MockLLM
    from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

    class Retriever(BaseRetriever):
        def __init__(self, answers: Sequence[SearchAnswer]) -> None:
            super().__init__()
            self.turns = cycle(
                [
                    [(TextNode(text=one.snippet, id_=one.path), one.score) for one in answer.results]
                    for answer in answers
                ]
            )

        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            del query_bundle
            return [NodeWithScore(node=node, score=score) for node, score in next(self.turns)]

        async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return self._retrieve(query_bundle)

    asked = QueryFusionRetriever(
        [Retriever(one.answers) for one in backends], llm=MockLLM(), num_queries=1, similarity_top_k=6
    )
    return lambda: asked.aretrieve(QUESTION)


async def cpu_us(call: Call, repeats: int) -> float:
    started = process_time()
    for _ in range(repeats):
        await call()
    return (process_time() - started) / repeats * 1e6


async def cost(rounds: int, repeats: int, folder: Path) -> dict[str, list[float]]:
    backends = [Ready(number) for number in range(3)]
    async with OpsLog(folder) as log:
        calls: dict[str, tuple[Call, int]] = {"gather of three no-ops": (gather_no_ops, 1)}
        for texts, found in (
            ("", backends),
            (", 4 of 5 texts found before", [Ready(number, is_known=True) for number in range(3)]),
        ):
            calls |= _orchestrators(found, log, texts)
        for name, peer in (
            ("LangChain EnsembleRetriever", ensemble),
            ("LlamaIndex QueryFusionRetriever", fusion),
        ):
            with suppress(ImportError):
                calls[name] = (peer(backends), 1)
        gc.collect()
        gc.freeze()  # or each collection would look through the peers' modules
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for name, (call, inner) in [*calls.items()] * (rounds + 1):
            samples[name].append(await cpu_us(call, max(1, repeats // inner)) / inner)
    return {name: taken[1:] for name, taken in samples.items()}  # the first round warms up


def _orchestrators(backends: Sequence[Ready], log: OpsLog, texts: str) -> dict[str, tuple[Call, int]]:
    entries = [ComposableBackendEntry(id=one.id, manager=one) for one in backends]
    silent = ComposableMemoryManager(entries, ops_log=OpsLog(None))
    logging = ComposableMemoryManager(entries, intent_parser=parse_query_intent, ops_log=log)

    async def logged_queries() -> None:
        for _ in range(16):
            await logging.query(QUESTION)
        await log.flush()

    return {
        f"orchestrator, no log file{texts}": (lambda: silent.query(QUESTION), 1),
        f"orchestrator, intent parsed, every event on disk{texts}": (logged_queries, 16),
    }


async def overrun_ms(deadline_s: float, rounds: int) -> list[float]:
    manager = ComposableMemoryManager(
        [
            ComposableBackendEntry(id="ready", manager=Ready(0)),
            ComposableBackendEntry(id="hanging", manager=HangingBackend(), timeout_s=deadline_s),
        ],
        make_breaker=lambda: Breaker(threshold=10**9),
    )
    overruns = []
    for _ in range(rounds):
        started = perf_counter()
        await manager.query("anything")
        overruns.append((perf_counter() - started - deadline_s) * 1000)
    return sorted(overruns)


async def main(rounds: int, repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        samples = await cost(rounds, repeats, Path(folder))
    base, *_ = samples.values()
    print(f"| {RESULTS_EACH} results from each of 3 backends | CPU µs a query | x gather (least to most) |")
    print("|---|---|---|")
    for name, taken in samples.items():
        times = sorted(one / other for one, other in zip(taken, base, strict=True))
        spread = f"{statistics.median(times):.1f} ({times[0]:.1f} to {times[-1]:.1f})"
        print(f"| {name} | {statistics.median(taken):.0f} | {spread} |")
    late = await overrun_ms(0.05, 40)
    print(f"\nA backend that hangs, deadline 50 ms: past the deadline by {statistics.median(late):.1f} ms "
          f"(median), {late[-1]:.1f} ms (worst of {len(late)}).")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="how often each row is measured, in turn")
    parser.add_argument("--repeats", type=int, default=320, help="queries a measurement")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.rounds, arguments.repeats))
