"""The face of the package: few names, each from the room that it is at home in, imported when it is used."""

import ast
import inspect
from importlib import import_module

import pytest

import composable_memory
from composable_memory import BlockingMemory, Memory
from tests.architecture.sources import ROOT

FACE = ast.parse((ROOT / "composable_memory" / "__init__.py").read_text(encoding="utf-8"))
ROOMS = {
    alias.name: node.module
    for block in FACE.body
    if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
    for node in block.body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
"""Each name, and where a type checker finds it."""


def test_the_face_is_small_and_sorted() -> None:
    names = composable_memory.__all__

    assert names == sorted(set(names))
    assert len(names) <= 45


def test_what_a_type_checker_sees_is_what_is_offered() -> None:
    assert ROOMS.keys() | {"__version__"} == set(composable_memory.__all__)


def test_every_name_comes_from_its_room() -> None:
    for name, room in ROOMS.items():
        assert getattr(composable_memory, name) is getattr(import_module(room), name)


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'composable_memory' has no attribute 'GraphitiMemory'"):
        _ = import_module("composable_memory").GraphitiMemory


def test_a_blocking_memory_has_every_method_of_a_memory() -> None:
    """A method that is missing needs one line in `composable_memory.runtime.blocking`."""
    left_out = {"facts_of", "backends_to_back_up"}  # they return what has to be awaited: `call` does that
    wanted = {
        name: inspect.signature(method)
        for name, method in vars(Memory).items()
        if inspect.isfunction(method) and not name.startswith("_") and name not in left_out
    }

    assert {name: inspect.signature(getattr(BlockingMemory, name, object)) for name in wanted} == wanted
