"""The routes of the inspector; the only module here that needs `starlette`, of the extra `mcp`."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from composable_memory.entry_points import offered
from composable_memory.errors import ComposableMemoryError
from composable_memory.inspector.markup import asset, el
from composable_memory.inspector.pages import RATINGS, Inspector
from composable_memory.inspector.tuning import (
    asked_on_another_day,
    change_of,
    days_of,
    judged_view,
    ranking_view,
    weights_of,
)
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs import OpsLogError, utc_now

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

ASSETS = {"inspector.css": "text/css", "inspector.js": "text/javascript"}
ACTOR = "inspector"
PAGES = "composable_memory.pages"
"""Entry points of functions that draw a neighbourhood: `(neighbourhood, centre=None, now=…) -> str`."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

Handler = Callable[[Inspector, Request, dict[str, str]], Awaitable[str | Response | None]]
"""Returns a page, or None for "not found"; the form comes from the URL or the body."""


def routes(memory: "Memory") -> Sequence[BaseRoute]:
    """Return the routes of the pages of an open memory."""
    pages: dict[str, Handler] = {
        "/": lambda page, _, form: page.search(form),
        "/traces": lambda page, _, form: page.traces(form),
        "/trace/{id}": lambda page, request, form: page.trace(request.path_params["id"], form),
        "/trace/{id}/replay": _rank_again,
        "/tuning": lambda page, *_: page.tuning(),
        "/tuning/replay": _try_weights,
        "/backends": lambda page, _, form: page.backends(form),
        "/graph": _graph,
    }
    changes: dict[str, Handler] = {"/trace/{id}/judge": _judge, "/tuning/adopt": _adopt}
    return [
        Route("/assets/{name}", _asset),
        *(Route(path, partial(_answer, memory, handler)) for path, handler in pages.items()),
        *(Route(path, partial(_answer, memory, one), methods=["POST"]) for path, one in changes.items()),
    ]


async def _answer(memory: "Memory", handler: Handler, request: Request) -> Response:
    page = Inspector(memory, str(request.scope.get("root_path", "")))
    given = (
        (await request.body()).decode("utf-8", "replace") if request.method == "POST" else request.url.query
    )
    try:
        found = await handler(page, request, dict(parse_qsl(given)))
        status = 200
    except (ComposableMemoryError, FeedbackError, OpsLogError, ValueError) as error:
        said = el("p", str(error), class_="problem")
        found, status = said if _is_part(request) else page.framed("That did not work", None, said), 400
    if found is None:
        found, status = page.framed("Not found", None, el("p", "There is nothing here.")), 404
    if isinstance(found, Response):
        return found
    return HTMLResponse(found, status, {"content-security-policy": POLICY, "cache-control": "no-store"})


def _is_part(request: Request) -> bool:
    """Return whether the page's script is asking, which inserts the answer into the page."""
    return request.headers.get("x-part") == "1"


def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        return Response(status_code=404)
    return Response(asset(name), media_type=ASSETS[name], headers={"cache-control": "no-cache"})


async def _rank_again(page: Inspector, request: Request, form: dict[str, str]) -> str:
    learning, trace_id = page.memory.learning, request.path_params["id"]
    change, depth = change_of(form), learning.settings.depth
    if days := days_of(form):
        run = await asked_on_another_day(page.memory, trace_id, change, days=days, k=depth)
    else:
        run = await learning.replay(change, traces=[trace_id], keep=1)
    return _part(page, request, ranking_view(run, depth))


async def _try_weights(page: Inspector, request: Request, form: dict[str, str]) -> str:
    learning, latest = page.memory.learning, form.get("latest", "")
    change = change_of(form, (await learning.weights.report()).table)
    run = await learning.replay(change, latest_judged=int(latest) if latest.isdecimal() else None, keep=5)
    return _part(page, request, judged_view(run, page.base))


async def _adopt(page: Inspector, request: Request, form: dict[str, str]) -> str:
    table = await page.memory.learning.weights.set(
        weights_of(form), reason="tried in the inspector", actor=ACTOR
    )
    said = el("p", f"Weights {table.version} are active from now on.", class_="why")
    return said if _is_part(request) else await page.tuning(said)


async def _judge(page: Inspector, request: Request, form: dict[str, str]) -> Response:
    trace_id = request.path_params["id"]
    relevance = float(form.get("relevance", "nan"))
    one = await page.memory.learning.judging.judge(
        trace_id, form.get("result", ""), relevance=relevance, by=ACTOR
    )
    if not _is_part(request):
        return RedirectResponse(f"{page.base}/trace/{trace_id}", 303)
    word = next((word for _, word, value in RATINGS if value == one.relevance), f"{one.relevance:g}")
    return HTMLResponse(el("span", f"Judged: {word.lower()}"))


async def _graph(page: Inspector, _: Request, form: dict[str, str]) -> Response | None:
    """Return the page drawn by the package of the backend with facts; it sets its own security policy."""
    about = form.get("about")
    near = await page.memory.facts_of().neighbourhood(about)

    def draw() -> str | None:
        for entry in offered(PAGES):
            if entry.name == "graph":
                return str(entry.load()(near, centre=about, now=utc_now()))
        return None

    html = await asyncio.to_thread(draw)
    if html is None:
        return None
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)
    own = policy[1] if policy else POLICY
    return HTMLResponse(html, headers={"content-security-policy": f"{own}; frame-ancestors 'none'"})


def _part(page: Inspector, request: Request, part: str) -> str:
    return part if _is_part(request) else page.framed("What if", None, part)
