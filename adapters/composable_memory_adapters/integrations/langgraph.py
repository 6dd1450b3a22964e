"""A memory as a store of LangGraph: an agent's long-term items, kept as notes."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import eq, ge, gt, le, lt, ne
from pathlib import PurePosixPath
from typing import Any

from composable_memory import Memory
from composable_memory_adapters.integrations import needs_extra
from composable_memory_adapters.integrations.shared import AnyMemory, ask, ask_and_wait, find_passages
from composable_memory_adapters.integrations.store_notes import StoredItem, StoreNotes, namespace_folder

with needs_extra("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
    )

_OPERATORS = {"$eq": eq, "$ne": ne}
_COMPARISONS = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


class MemoryStore(BaseStore):
    """Keeps items as notes in `memory/store/` of the workspace, one note for each.

        graph = builder.compile(store=MemoryStore(memory))

    A person can read and edit them, and every search of the memory finds them. A search of the store with a
    query returns the matching items of its namespace, best first; without a query it returns all, the last
    changed first. `index=False` hides an item from queries of the store; a list of fields is ignored.
    Items do not expire: a `ttl` is rejected. The async methods also accept a memory of `open_memory`.
    """

    def __init__(self, memory: AnyMemory) -> None:
        self._memory = memory

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run several operations; all reads come before any write."""
        return ask_and_wait(self._memory, _answers, tuple(ops))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run several operations; all reads come before any write."""
        return await ask(self._memory, _answers, tuple(ops))


async def _answers(memory: Memory, ops: Sequence[Op]) -> list[Result]:
    notes = StoreNotes(memory.workspace_dir)
    results = [await _read(memory, notes, op) for op in ops]
    if puts := {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}:
        await asyncio.to_thread(_write, notes, [*puts.values()])
        await memory.sync()
    return results


async def _read(memory: Memory, notes: StoreNotes, op: Op) -> Result:
    match op:
        case GetOp():
            item = await asyncio.to_thread(notes.get, op.namespace, op.key)
            return _item(item) if item else None
        case SearchOp(query=str(query)) if query.strip():
            return await _found(memory, notes, op, query)
        case SearchOp():
            return await asyncio.to_thread(_listed, notes, op)
        case ListNamespacesOp():
            return await asyncio.to_thread(_namespaces, notes, op)
        case PutOp():
            return None
    raise TypeError(f"{type(op).__name__} is no operation of a store")


def _write(notes: StoreNotes, puts: Sequence[PutOp]) -> None:
    for op in puts:
        if op.value is None:
            notes.delete(op.namespace, op.key)
        else:
            notes.put(op.namespace, op.key, op.value, is_indexed=op.index is not False)


async def _found(memory: Memory, notes: StoreNotes, op: SearchOp, query: str) -> list[SearchItem]:
    """Return the items that a query finds; passages may share an item, and filters are applied afterwards."""
    wanted = {"paths": (f"{namespace_folder(op.namespace_prefix)}/**",), "weak": True}
    depth = max(100, 5 * (op.offset + op.limit))
    passages = await find_passages(memory, query, wanted | {"max_results": depth})
    scores: dict[PurePosixPath, float] = {}
    for one in passages:
        scores.setdefault(PurePosixPath(str(one.metadata["path"])), one.score)

    def read() -> list[SearchItem]:
        items = ((item, score) for path, score in scores.items() if (item := notes.read(path)))
        fitting = (
            _search_item(item, score)
            for item, score in items
            if item.is_indexed and _fits(item, op.namespace_prefix, op.filter)
        )
        return [*islice(fitting, op.offset, op.offset + op.limit)]

    return await asyncio.to_thread(read)


def _listed(notes: StoreNotes, op: SearchOp) -> list[SearchItem]:
    items = (one for one in notes.below(op.namespace_prefix) if _fits(one, op.namespace_prefix, op.filter))
    return [_search_item(one) for one in islice(items, op.offset, op.offset + op.limit)]


def _namespaces(notes: StoreNotes, op: ListNamespacesOp) -> list[tuple[str, ...]]:
    conditions = op.match_conditions or ()
    matching = (
        one.namespace
        for one in notes.below(())
        if all(_is_matched(condition, one.namespace) for condition in conditions)
    )
    return sorted({one[: op.max_depth] for one in matching})[op.offset : op.offset + op.limit]


def _is_matched(condition: MatchCondition, namespace: Sequence[str]) -> bool:
    path = condition.path
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return len(part) == len(path) and all(
        wanted in ("*", one) for one, wanted in zip(part, path, strict=True)
    )


def _fits(item: StoredItem, prefix: Sequence[str], wanted: Mapping[str, Any] | None) -> bool:
    return item.namespace[: len(prefix)] == tuple(prefix) and all(
        _is_equal(item.value.get(name), value) for name, value in (wanted or {}).items()
    )


def _is_equal(value: Any, wanted: Any) -> bool:
    """Compare as LangGraph's stores do: a mapping is compared key by key, and may contain operators."""
    if not isinstance(wanted, Mapping):
        return bool(value == (list(wanted) if isinstance(wanted, tuple) else wanted))
    if any(name.startswith("$") for name in wanted):
        return all(_compare(value, name, other) for name, other in wanted.items())
    return isinstance(value, Mapping) and all(_is_equal(value.get(name), one) for name, one in wanted.items())


def _compare(value: Any, operator: str, other: Any) -> bool:
    if operator in _OPERATORS:
        return bool(_OPERATORS[operator](value, other))
    if operator not in _COMPARISONS:
        raise ValueError(f"{operator} is no operator; there are {', '.join(_OPERATORS | _COMPARISONS)}")
    try:
        return bool(_COMPARISONS[operator](float(value), float(other)))
    except (TypeError, ValueError):  # one of them is not a number
        return False


def _item(one: StoredItem) -> Item:
    return Item(
        value=one.value,
        key=one.key,
        namespace=one.namespace,
        created_at=one.created_at,
        updated_at=one.updated_at,
    )


def _search_item(one: StoredItem, score: float | None = None) -> SearchItem:
    return SearchItem(
        namespace=one.namespace,
        key=one.key,
        value=one.value,
        created_at=one.created_at,
        updated_at=one.updated_at,
        score=score,
    )
