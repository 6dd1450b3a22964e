"""The memory that a server keeps open: lent again as long as one that is opened now would be the same."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory.errors import BackendUnavailable, ConfigError
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.registry import Found, discover_backends
from composable_memory.runtime.kept_memory import KeptMemory, Request
from composable_memory.runtime.memory import Memory
from composable_memory.testing import fakes
from composable_memory.types import SearchAnswer, SearchOptions

OFF: Mapping[str, str] = {"COMPOSABLE_MEMORY__EMBEDDING__PROVIDER": "none"}


@pytest.fixture
def request_(workspace: Path, state_dir: Path, tmp_path: Path) -> Request:
    environ = {**OFF, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    return Request(workspace=workspace, state_dir=state_dir, environ=environ, registry=discover_backends())


async def lent(kept: KeptMemory, request: Request) -> Memory:
    async with kept.lent(request) as memory:
        await memory.query("harbour")
        return memory


async def is_closed(memory: Memory) -> bool:
    try:
        await memory.query("harbour")
    except BackendUnavailable:
        return True
    return False


async def ready(kept: KeptMemory, request: Request) -> None:
    """Have the notes indexed: before, what they are is not chosen for good."""
    async with kept.lent(request) as memory:
        await memory.sync()


async def test_it_is_lent_again_also_to_several_at_once(request_: Request) -> None:
    kept = KeptMemory()
    await ready(kept, request_)
    first = await lent(kept, request_)

    others = await asyncio.gather(*(lent(kept, request_) for _ in range(5)))

    assert all(one is first for one in others)
    await kept.close()
    assert await is_closed(first)


async def test_what_was_read_of_the_environment_counts_and_nothing_else(request_: Request) -> None:
    kept = KeptMemory()
    await ready(kept, request_)
    first = await lent(kept, request_)

    same = await lent(kept, replace(request_, environ={**request_.environ, "PWD": "/elsewhere"}))
    clock = {**request_.environ, "COMPOSABLE_MEMORY_NOW": "2026-01-02"}
    other = await lent(kept, replace(request_, environ=clock))

    assert same is first
    assert other is not first
    assert await is_closed(first)
    await kept.close()


class ReadsLate(fakes.InMemoryBackend):
    """One that looks into the environment when it is asked, long after it was opened."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__(backend_id="late")
        self._environ = environ

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        self._environ.get("WHOSE_TOKEN")
        return await super().answer(query, options)

    async def refresh(self) -> bool:
        return True


async def test_one_that_reads_more_of_the_environment_later_is_not_lent_to_another(request_: Request) -> None:
    spec = BackendSpec(
        id="late",
        summary="reads its token when it is asked",
        settings=fakes.InMemorySettings,
        open=lambda _settings, services: nullcontext(ReadsLate(services.environ)),
        capabilities=frozenset({*ReadsLate({}).capabilities, Capability.REFRESH}),
    )
    known = request_.registry
    offers = known.backends.preceded_by([Found(id="late", origin="a test", spec=spec)])
    environ = {
        **request_.environ,
        "COMPOSABLE_MEMORY__BACKENDS": '{"builtin": {}, "late": {"enabled": true}}',
    }
    asked = replace(request_, environ=environ, registry=replace(known, backends=offers))
    kept = KeptMemory()
    await ready(kept, asked)

    first, second = await lent(kept, asked), await lent(kept, asked)

    assert first is not second
    assert await is_closed(first)
    await kept.close()


async def test_one_in_use_is_closed_by_the_last_who_has_it(request_: Request) -> None:
    kept = KeptMemory()
    await ready(kept, request_)
    async with kept.lent(request_) as first:
        few = {**request_.environ, "COMPOSABLE_MEMORY__QUERY__MAX_RESULTS": "1"}
        second = await lent(kept, replace(request_, environ=few))
        assert second is not first
        assert len((await first.query("harbour")).results) > 0
        await kept.close()
        assert not await is_closed(first)

    assert await is_closed(first)
    assert await is_closed(second)


async def test_what_something_is_wrong_with_or_cannot_be_refreshed_is_opened_each_time(
    request_: Request,
) -> None:
    kept = KeptMemory()
    await ready(kept, request_)
    qmd = {
        **request_.environ,
        "COMPOSABLE_MEMORY__QMD__ENABLED": "true",
        "COMPOSABLE_MEMORY__QMD__COMMAND": "no-such",
    }
    asked = replace(request_, environ=qmd)

    first, second = await lent(kept, asked), await lent(kept, asked)

    assert first is not second
    assert await is_closed(first)
    assert await is_closed(second)
    with pytest.raises(ConfigError):
        await lent(kept, replace(request_, workspace=request_.workspace / "nowhere"))
    assert not await is_closed(await lent(kept, request_))
    await kept.close()
