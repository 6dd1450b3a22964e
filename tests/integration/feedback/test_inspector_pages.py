"""Pages of the inspector about a memory of two backends that was judged, asked without a browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from composable_memory import Memory, MemoryContentObject, open_memory
from composable_memory.inspector.answer import write_report
from composable_memory.inspector.routes import routes
from composable_memory_feedback.replay import PolicyChange
from composable_memory_ops_logs import OpsLogError
from tests.integration.feedback.learners import Place, ask, judge
from tests.integration.remembering_backend import spec as remembering

BASE = "/w/notes"
SAID = MemoryContentObject(id="a", kind="message", text="Alice works at Acme.")


@asynccontextmanager
async def pages_of(memory: Memory) -> AsyncIterator[httpx.AsyncClient]:
    """Yield who asks for the pages of a memory, which are mounted as one of several."""
    served = httpx.ASGITransport(Starlette(routes=[Mount(BASE, routes=routes(memory))]))
    async with httpx.AsyncClient(transport=served, base_url=f"http://server{BASE}") as client:
        yield client


async def test_what_weights_would_do_is_replayed_over_the_latest_judged_queries(place: Place) -> None:
    async with place.memory() as memory, pages_of(memory) as client:
        await judge(memory, range(12))
        trace_id = await ask(memory, 11)
        given = {"weight.sure": "1", "weight.vague": "0.3"}

        of_one = await client.get(f"/trace/{trace_id}/replay", params=given, headers={"x-part": "1"})
        of_five = await client.get("/tuning/replay", params={**given, "latest": "5"})
        run = await memory.learning.replay(PolicyChange(fusion="rrf"), latest_judged=5)

    assert of_one.text.index("memory/item-11.md:1-3") < of_one.text.index("memory/around-11.md:1-3")
    assert "<html" not in of_one.text
    assert "5 of 5 rankings change" in of_five.text
    assert "Over 5 judged queries" in of_five.text
    assert "better" in of_five.text
    assert "<html" in of_five.text
    assert run.total == 5


async def test_without_a_log_it_is_said_what_is_missing(place: Place, tmp_path: Path) -> None:
    async with replace(place, log=False).memory() as memory, pages_of(memory) as client:
        page = await client.get("/?q=item+7")
        with pytest.raises(OpsLogError, match="ops_log"):
            await write_report(memory, await ask(memory, 7), tmp_path / "report.html")

    assert (page.status_code, "memory.ops_log.enabled" in page.text) == (200, True)


async def test_links_stay_within_a_workspace(place: Place) -> None:
    async with place.memory() as memory, pages_of(memory) as client:
        trace_id = await ask(memory, 7)
        for path in ("/", "/traces", "/tuning", "/backends", f"/trace/{trace_id}", "/?q=item+7"):
            page = (await client.get(path)).text
            links = [part.partition('"')[0] for part in page.split('href="')[1:] + page.split('action="')[1:]]
            others = [one for one in links if not one.startswith((BASE, "#", "data:,", "vscode:"))]
            assert others == [], path


async def test_the_graph_is_linked_and_shown_under_its_own_policy(workspace: Path, state_dir: Path) -> None:
    config = {
        "memory": {"backend": "remembering", "builtin": {"enabled": False}, "embedding": {"provider": "none"}}
    }
    async with open_memory(workspace, state_dir, config, backends=(remembering,), environ={}) as memory:
        await memory.ingest([SAID])
        async with pages_of(memory) as client:
            start, graph = await client.get("/"), await client.get("/graph")

    assert f'href="{BASE}/graph"' in start.text
    assert (graph.status_code, "Acme" in graph.text) == (200, True)
    policy = graph.headers["content-security-policy"]
    assert policy.removesuffix("; frame-ancestors 'none'") in graph.text
    assert "script-src 'sha256-" in policy


async def test_every_backend_has_what_mends_it_beside_what_is_wrong(place: Place) -> None:
    async with place.memory() as memory, pages_of(memory) as client:
        await ask(memory, 7)
        page = (await client.get("/backends")).text

    for name in ("sure", "vague"):
        assert f"<h2>{name}</h2>" in page
    assert page.count("No known problems.") == 2
    assert 'role="img"' in page
