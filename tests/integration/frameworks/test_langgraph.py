"""The store of LangGraph: against its own store in memory, in a graph, and as notes."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, GetOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from composable_memory import BlockingMemory, open_memory, open_memory_sync
from composable_memory.errors import InvalidArgument, MemoryPathError
from composable_memory_adapters.integrations.langgraph import MemoryStore
from tests.integration.frameworks.conftest import KEYWORDS

NAMESPACES = [
    ("users",),
    ("users", "ana"),
    ("users", "Ana"),
    ("users", "bo"),
    ("teams", "ana"),
    ("a b/c", "Ü"),
]
KEYS = ["likes", "Likes", "a/../b", "x" * 200, "ключ", "con", ".hidden", "1", "true"]
VALUES: list[dict[str, Any]] = [
    {},
    {"text": "likes green tea"},
    {
        "text": "two\nlines: # no heading\n",
        "n": 1,
        "deep": {"list": [1, 2.5, None, True, "2026-05-03", "no"]},
    },
    {"text": "  blanks \t ", "n": 7, "color": "red", "emoji": "🚢", "big": 10**30, "tiny": 1e-300},
    {"n": "7", "": {"": ""}, "odd": "\u2028\x85\x07", "crlf": "one\r\ntwo\rthree"},
]


@pytest.fixture
def store(memory: BlockingMemory) -> MemoryStore:
    return MemoryStore(memory)


def told(results: list[Any]) -> list[object]:
    """Return results without their times, and searches without their order."""
    plain: list[object] = []
    for one in results:
        if isinstance(one, list) and one and hasattr(one[0], "key"):
            plain.append(sorted((item.namespace, item.key, repr(item.value), item.score) for item in one))
        else:
            plain.append((one.namespace, one.key, repr(one.value)) if hasattr(one, "key") else one)
    return plain


def operations(chance: random.Random) -> Iterator[Any]:
    """Return what a program may ask of a store."""
    for _ in range(chance.randint(1, 6)):
        namespace, key = chance.choice(NAMESPACES), chance.choice(KEYS)
        wanted = [
            None,
            {"n": 1},
            {"n": {"$ne": 1}},
            {"deep": {"list": [1, 2.5, None, True, "2026-05-03", "no"]}},
        ]
        yield chance.choice(
            [
                PutOp(namespace, key, chance.choice(VALUES)),
                PutOp(namespace, key, chance.choice(VALUES)),
                PutOp(namespace, key, None),
                GetOp(namespace, key),
                SearchOp(namespace[: chance.randint(0, 2)], filter=chance.choice(wanted), limit=100),
            ]
        )


@pytest.mark.parametrize("seed", range(4))
def test_it_answers_as_the_store_in_memory_does(seed: int, store: MemoryStore) -> None:
    chance, reference = random.Random(seed), InMemoryStore()
    for _ in range(25):
        ops = [*operations(chance)]
        assert told(store.batch(ops)) == told(reference.batch(ops)), ops


def test_namespaces_are_listed_as_the_store_in_memory_lists_them(store: MemoryStore) -> None:
    reference = InMemoryStore()
    for namespace in NAMESPACES:
        for one in (store, reference):
            one.put(namespace, "likes", {"text": "tea"})
    asked: list[dict[str, Any]] = [
        {"prefix": ("users",)},
        {"prefix": ("users", "*")},
        {"suffix": ("ana",)},
        {"suffix": ("*", "ana"), "prefix": ("teams",)},
        {"prefix": ("users", "ana", "*")},
        {"max_depth": 1, "limit": 1, "offset": 1},
    ]

    answers = [store.list_namespaces(**one) for one in asked]
    assert answers == [reference.list_namespaces(**one) for one in asked]


def test_a_query_finds_the_items_of_its_namespace_best_first(store: MemoryStore) -> None:
    store.put(("users", "ana"), "tea", {"text": "Ana drinks green tea in the morning."})
    store.put(("users", "ana"), "dock", {"text": "Ana repaired the dock crane.", "kind": "work"})
    store.put(("users", "bo"), "tea", {"text": "Bo drinks green tea."})
    store.put(("users", "ana"), "secret", {"text": "Ana hides her green tea."}, index=False)

    found = store.search(("users", "ana"), query="who drinks green tea?")
    assert found[0].key == "tea"
    assert {one.namespace for one in found} == {("users", "ana")}
    assert "secret" not in {one.key for one in found}
    assert found[0].score
    both = store.search(("users",), query="green tea")
    assert [one.score for one in both] == sorted((one.score or 0.0 for one in both), reverse=True)
    assert {one.namespace for one in both} == {("users", "ana"), ("users", "bo")}
    assert len(store.search(("users",), query="green tea", limit=1, offset=1)) == 1
    (work,) = store.search(("users",), query="Ana", filter={"kind": "work"})
    assert work.key == "dock"


def test_an_item_keeps_when_it_was_created_and_the_last_change_is_listed_first(store: MemoryStore) -> None:
    for key in ("one", "two", "one"):
        store.put(("times",), key, {"text": key})
    one, two = store.search(("times",))

    assert (one.key, two.key) == ("one", "two")
    assert one.created_at < two.created_at <= two.updated_at < one.updated_at


def test_an_item_is_a_note_that_a_person_can_edit(
    store: MemoryStore, memory: BlockingMemory, workspace: Path
) -> None:
    store.put(("users", "ana"), "likes", {"text": "Green tea.\nNo sugar."})
    note = workspace / "memory" / "store" / "users" / "ana" / "likes.md"
    assert "text: |-\n  Green tea.\n  No sugar.\n" in note.read_text(encoding="utf-8")
    assert memory.query("green tea").results[0].path == "memory/store/users/ana/likes.md"

    note.write_text(note.read_text(encoding="utf-8").replace("Green", "Black"), encoding="utf-8")
    changed = store.get(("users", "ana"), "likes")
    assert changed
    assert changed.value == {"text": "Black tea.\nNo sugar."}

    store.delete(("users", "ana"), "likes")
    assert not note.exists()
    assert not [one for one in memory.query("black tea sugar").results if "likes" in one.path]


def test_what_is_no_item_is_left_alone(store: MemoryStore, workspace: Path) -> None:
    folder = workspace / "memory" / "store" / "users"
    folder.mkdir(parents=True)
    (folder / "own.md").write_text("# A note of mine\n", encoding="utf-8")
    (folder / "broken.md").write_text("---\ntype: store\nkey: [\n---\n\ntext: tea\n", encoding="utf-8")
    store.put(("users",), "likes", {"text": "tea"})
    (folder / "copy.md").write_bytes((folder / "likes.md").read_bytes())

    assert [one.key for one in store.search(("users",))] == ["likes"]
    assert [store.get(("users",), key) for key in ("own", "broken", "copy")] == [None] * 3
    store.delete(("users",), "likes")
    assert (folder / "own.md").exists()


def test_a_folder_that_leads_outside_is_refused(store: MemoryStore, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (workspace / "memory" / "store").symlink_to(tmp_path / "outside")

    with pytest.raises(MemoryPathError, match="store/users/likes"):
        store.put(("users",), "likes", {"text": "tea"})
    assert [*(tmp_path / "outside").rglob("*")] == []


def test_values_that_cannot_be_kept_and_times_to_live_are_refused(store: MemoryStore) -> None:
    with pytest.raises(InvalidArgument, match="value"):
        store.put(("users",), "likes", {"text": object()})
    with pytest.raises(NotImplementedError, match="TTL"):
        store.put(("users",), "likes", {"text": "tea"}, ttl=1)
    assert store.get(("users",), "likes") is None


async def test_many_puts_at_once_are_all_kept(store: MemoryStore, workspace: Path) -> None:
    await asyncio.gather(
        *(store.aput(("users",), f"key{number % 20}", {"text": f"tea {number}"}) for number in range(60))
    )

    kept = await store.asearch(("users",), limit=100)
    assert {int(one.value["text"].split()[1]) % 20 for one in kept} == set(range(20))
    assert len([*(workspace / "memory" / "store").rglob("*")]) == 21  # a folder and its items, no drafts


def test_workspaces_are_kept_apart(store: MemoryStore, tmp_path: Path, state_dir: Path) -> None:
    store.put(("users",), "likes", {"text": "green tea"})
    (tmp_path / "other").mkdir()
    with open_memory_sync(tmp_path / "other", state_dir, KEYWORDS) as memory:
        other = MemoryStore(memory)

        assert other.get(("users",), "likes") is None
        assert other.search((), query="green tea") == []


async def test_a_graph_remembers_across_threads_on_this_loop(workspace: Path, state_dir: Path) -> None:
    async def act(state: MessagesState, runtime: Runtime) -> dict[str, Any]:
        store, said = runtime.store, str(state["messages"][-1].content)
        assert isinstance(store, BaseStore)
        found = await store.asearch(("users", "ana"), query=said)
        if not found:
            await store.aput(("users", "ana"), "tea", {"text": said})
        answer = found[0].value["text"] if found else "noted"
        return {"messages": [ToolMessage(answer, tool_call_id="1")]}

    builder = StateGraph(MessagesState)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    builder.add_edge("act", END)
    answers = []
    async with open_memory(workspace, state_dir, KEYWORDS) as memory:
        graph = builder.compile(store=MemoryStore(memory))
        for question in ("Ana drinks green tea.", "What tea does Ana drink?"):
            state = await graph.ainvoke({"messages": [("user", question)]})
            answers.append(state["messages"][-1].content)

    assert answers == ["noted", "Ana drinks green tea."]
