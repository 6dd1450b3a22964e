"""The memory that a server keeps open: lent again as long as one that is opened now would be the same."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel

from composable_memory.errors import BackendUnavailable, ConfigError
from composable_memory.interfaces import (
    BackendServices,
    BackendSpec,
    Capability,
    EmbedderSpec,
)
from composable_memory.registry import Found, discover_backends
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.warm_memory import Request, WarmMemory
from composable_memory.testing import in_memory
from composable_memory.types import SearchAnswer, SearchOptions

OFF: Mapping[str, str] = {"COMPOSABLE_MEMORY__EMBEDDING__PROVIDER": "none"}


@pytest.fixture
def request_(workspace: Path, state_dir: Path, tmp_path: Path) -> Request:
    environ = {**OFF, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return Request(workspace=workspace, state_dir=state_dir, environ=environ, registry=discover_backends())


async def borrow(kept: WarmMemory, request: Request) -> Memory:
    async with kept.borrow(request) as memory:
        await memory.query("harbour")
        return memory


async def is_closed(memory: Memory) -> bool:
    try:
        await memory.query("harbour")
    except BackendUnavailable:
        return True
    return False


async def ready(kept: WarmMemory, request: Request) -> None:
    """Have the notes indexed: before, what they are is not chosen for good."""
    async with kept.borrow(request) as memory:
        await memory.sync()


async def test_it_is_lent_again_also_to_several_at_once(request_: Request) -> None:
    kept = WarmMemory()
    await ready(kept, request_)
    first = await borrow(kept, request_)

    others = await asyncio.gather(*(borrow(kept, request_) for _ in range(5)))

    assert all(one is first for one in others)
    await kept.close()
    assert await is_closed(first)


async def test_what_was_read_of_the_environment_counts_and_nothing_else(request_: Request) -> None:
    kept = WarmMemory()
    await ready(kept, request_)
    first = await borrow(kept, request_)

    same = await borrow(kept, replace(request_, environ={**request_.environ, "PWD": "/elsewhere"}))
    clock = {**request_.environ, "COMPOSABLE_MEMORY_NOW": "2026-01-02"}
    other = await borrow(kept, replace(request_, environ=clock))

    assert same is first
    assert other is not first
    assert await is_closed(first)
    await kept.close()


class Refreshable(in_memory.InMemoryBackend):
    """One that may stay open between commands."""

    async def refresh(self) -> bool:
        return True


def with_backend(request: Request, spec: BackendSpec) -> Request:
    """Return a request for a memory with one more backend."""
    offers = request.registry.backends.preceded_by([Found(id=spec.id, origin="a test", spec=spec)])
    environ = {
        **request.environ,
        "COMPOSABLE_MEMORY__BACKENDS": f'{{"builtin": {{}}, "{spec.id}": {{"enabled": true}}}}',
    }
    return replace(request, environ=environ, registry=replace(request.registry, backends=offers))


async def test_a_slow_opening_holds_up_nobody_who_asks_for_another_memory(
    request_: Request, tmp_path: Path
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def opened_slowly(_settings: BaseModel, _services: BackendServices) -> AsyncIterator[Refreshable]:
        begun.set()
        await goes_on.wait()
        yield Refreshable(backend_id="slow")

    spec = BackendSpec(
        id="slow",
        summary="opens when it is told to",
        settings=in_memory.InMemorySettings,
        open=opened_slowly,
        capabilities=frozenset({*Refreshable().capabilities, Capability.REFRESH}),
    )
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "MEMORY.md").write_text("The harbour opens at six.\n", "utf-8")
    other, slow = replace(request_, workspace=tmp_path / "other"), with_backend(request_, spec)
    kept, before = WarmMemory(), WarmMemory()
    await ready(before, request_)
    await before.close()

    waiting = [asyncio.create_task(borrow(kept, slow)) for _ in range(3)]
    await begun.wait()
    async with kept.borrow(other) as memory:
        assert (await memory.query("harbour")).results
    assert not any(one.done() for one in waiting)
    goes_on.set()
    first, *others = await asyncio.gather(*waiting)

    assert all(one is first for one in others)
    assert kept.opened == 2
    assert await is_closed(memory)
    await kept.close()
    assert await is_closed(first)


async def test_a_model_that_is_there_now_is_taken_by_the_next(request_: Request, tmp_path: Path) -> None:
    class Hashing(BaseModel):
        model: str | None = None

    other = EmbedderSpec(
        id="wordllama",
        summary="needs no model",
        settings=Hashing,
        open=lambda _settings, _services: nullcontext(in_memory.HashEmbedder(32)),
        local=True,
    )
    first_of_all = replace(
        other,
        id="local",
        open=lambda _settings, _services: nullcontext(in_memory.HashEmbedder(64)),
        lacks=lambda _settings, _services: None if (tmp_path / "model").exists() else "it has no model",
    )
    offers = request_.registry.embedders.preceded_by(
        Found(id=one.id, origin="a test", spec=one) for one in (first_of_all, other)
    )
    environ = {name: value for name, value in request_.environ.items() if name not in OFF}
    asked = replace(request_, environ=environ, registry=replace(request_.registry, embedders=offers))
    kept = WarmMemory()
    await ready(kept, asked)

    first, again = await borrow(kept, asked), await borrow(kept, asked)
    (tmp_path / "model").touch()
    now = await borrow(kept, asked)

    assert again is first
    assert now is not first
    assert now.embedder.embedder is not None
    assert now.embedder.embedder.dimensions == 64
    assert await is_closed(first)
    await kept.close()


class ReadsLate(Refreshable):
    """One that looks into the environment when it is asked, long after it was opened."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(backend_id="late")
        self._environ = environ

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        self._environ.get("WHOSE_TOKEN")
        return await super().answer(query, options)


async def test_one_that_reads_more_of_the_environment_later_is_not_lent_to_another(request_: Request) -> None:
    spec = BackendSpec(
        id="late",
        summary="reads its token when it is asked",
        settings=in_memory.InMemorySettings,
        open=lambda _settings, services: nullcontext(ReadsLate(services.environ)),
        capabilities=frozenset({*ReadsLate({}).capabilities, Capability.REFRESH}),
    )
    asked = with_backend(request_, spec)
    kept = WarmMemory()
    await ready(kept, asked)

    first, second = await borrow(kept, asked), await borrow(kept, asked)

    assert first is not second
    assert await is_closed(first)
    await kept.close()


async def test_one_in_use_is_closed_by_the_last_who_has_it(request_: Request) -> None:
    kept = WarmMemory()
    await ready(kept, request_)
    async with kept.borrow(request_) as first:
        few = {**request_.environ, "COMPOSABLE_MEMORY__QUERY__MAX_RESULTS": "1"}
        second = await borrow(kept, replace(request_, environ=few))
        assert second is not first
        assert len((await first.query("harbour")).results) > 0
        await kept.close()
        assert not await is_closed(first)

    assert await is_closed(first)
    assert await is_closed(second)


async def test_what_something_is_wrong_with_or_cannot_be_refreshed_is_opened_each_time(
    request_: Request,
) -> None:
    kept = WarmMemory()
    await ready(kept, request_)
    qmd = {
        **request_.environ,
        "COMPOSABLE_MEMORY__QMD__ENABLED": "true",
        "COMPOSABLE_MEMORY__QMD__COMMAND": "no-such",
    }
    asked = replace(request_, environ=qmd)

    first, second = await borrow(kept, asked), await borrow(kept, asked)

    assert first is not second
    assert await is_closed(first)
    assert await is_closed(second)
    with pytest.raises(ConfigError):
        await borrow(kept, replace(request_, workspace=request_.workspace / "nowhere"))
    assert not await is_closed(await borrow(kept, request_))
    await kept.close()
