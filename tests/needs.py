"""What some tests need and `make test` does not install; where it is not there, they are left out.

A test says so with `pytest.mark.needs("datasette")`, or by a fixture that is in `OF_FIXTURES`. The variable
`COMPOSABLE_MEMORY_TEST_REQUIRED` names needs, separated by blanks, without which no test may run at all.
"""

import os
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.chromium import AXE, executable
from tests.models.make_minilm_gguf import lacking
from tests.postgres_server import PGBOUNCER

__all__ = ["FRAMEWORKS", "NEEDS", "REQUIRED", "absent", "needs_of"]

REQUIRED = frozenset(os.environ.get("COMPOSABLE_MEMORY_TEST_REQUIRED", "").split())
FRAMEWORKS = ("agents", "langchain", "langgraph", "llama_index", "pydantic_ai")
_ENVIRONMENT = Path(sys.prefix)
_SERVERS = _ENVIRONMENT / "mcp-servers"


class Need(NamedTuple):
    """How to get what is needed, and whether it is there."""

    made_by: str
    is_there: Callable[[], bool]


def _has_llama() -> bool:
    has_model = "COMPOSABLE_MEMORY_TEST_GGUF" in os.environ or not lacking()
    return find_spec("llama_cpp") is not None and has_model


def _has_qmd() -> bool:
    own = "COMPOSABLE_MEMORY_TEST_QMD_COMMAND" in os.environ
    return own or (_ENVIRONMENT / "qmd/node_modules/.bin/qmd").exists()


NEEDS = {
    "agents": Need("npm install, see .ci/full", lambda: "COMPOSABLE_MEMORY_TEST_AGENTS" in os.environ),
    "basic-memory": Need("make basic-memory", (_SERVERS / "basic-memory").is_dir),
    "chromium": Need("apt-get install chromium; make axe", lambda: AXE.exists() and executable() is not None),
    "datasette": Need("make datasette", (_SERVERS / "datasette").is_dir),
    "frameworks": Need("make frameworks", lambda: all(map(find_spec, FRAMEWORKS))),
    "llama": Need("make llama", _has_llama),
    "mcp-clients": Need("make mcp-clients", (_ENVIRONMENT / "mcp-clients").is_dir),
    "mcp-servers": Need("make mcp-servers", (_SERVERS / "npm").is_dir),
    "pgbouncer": Need("apt-get install pgbouncer", lambda: PGBOUNCER is not None),
    "qmd": Need("make qmd", _has_qmd),
}
OF_FIXTURES = {
    "mcporter_command": "qmd",
    "minilm": "llama",
    "page": "chromium",
    "pooled_url": "pgbouncer",
    "qmd_command": "qmd",
}


@cache
def absent(need: str) -> bool:
    """Return whether something is not there, which is looked up once."""
    return not NEEDS[need].is_there()


def needs_of(item: pytest.Item) -> Iterable[str]:
    """Return what a test needs."""
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
    marked = (one for mark in item.iter_markers("needs") for one in mark.args)
    return {*marked, *(OF_FIXTURES[one] for one in fixtures if one in OF_FIXTURES)}
