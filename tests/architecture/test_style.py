"""What every module keeps: its private names, an explanation of its public ones, and no swallowed errors."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module

from tests.architecture.sources import Module, modules

INTEGRATIONS = "composable_memory_adapters.integrations."

CATCH_ALL = {
    "composable_memory.cli": "the top of a face: what nobody foresaw becomes a message and an exit code",
    "composable_memory.cli.command_group": "a plug-in whose commands cannot be imported leaves all others",
    "composable_memory.cli.command_server": "what nobody foresaw, the client meets again and tells",
    "composable_memory.cli.hook": "a hook must not break the agent that calls it, whatever happens",
    "composable_memory.ingest.pipeline": "a part handed in by a caller may raise anything",
    "composable_memory.supervision.backoff": "which errors may pass, the caller decides; others go on",
    "composable_memory.supervision.deadline": "the error of a stranger may raise again when it is told",
    "composable_memory.runtime.backends": "a plug-in that cannot be opened keeps nobody else out",
    "composable_memory.runtime.blocking": "what ends a thread is raised in the one that waits for it",
    "composable_memory.registry": "the module of a stranger may raise anything when it is imported",
    "composable_memory.query.manager": "the status of a stranger may raise, and the others go on",
    "composable_memory.query.routing": "a parser or a condition of a stranger must not take the answer down",
    "composable_memory_adapters.builtin.notes.document_reader": "a broken page of a PDF may raise anything",
    "composable_memory_adapters.builtin.search.reranking": "a reranker of a stranger may raise anything",
    "composable_memory_adapters.builtin.search.vector_search": "a store of a stranger may raise anything",
    "composable_memory_adapters.external.mcp_source": "the library tells a broken session in many ways",
    "composable_memory_adapters.external.retrievers": "the retriever of a stranger may raise anything",
    "composable_memory_ops_logs.log": "a listener of a stranger may raise anything, and emit never does",
}
"""The modules that may catch `Exception`, and why: where the code of others ends, and at the top."""


def public_modules() -> list[Module]:
    return [module for module in modules() if module.is_public]


def importable_modules() -> list[Module]:
    """Return all public ones but those that need a framework of agents; `make frameworks` tries them."""
    return [module for module in public_modules() if not module.name.startswith(INTEGRATIONS)]


def test_a_package_lists_each_public_definition_once() -> None:
    wrong = []
    for module in importable_modules():
        listed = list(getattr(import_module(module.name), "__all__", ()))
        wrong += [f"{module.name}.{name}" for name in set(listed) if listed.count(name) > 1]
        if module.path.name == "__init__.py":
            defined = {node.name for node in module.tree.body if isinstance(node, _DEFINITION)}
            public = {name for name in defined if not name.startswith("_")}
            wrong += [f"{module.name}.{name}" for name in sorted(public - set(listed))]

    assert wrong == []


def test_a_leading_underscore_keeps_a_name_in_its_module() -> None:
    taken = [
        f"{module.name}: {node.module}.{alias.name}"
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("composable_memory")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]

    assert taken == []


def test_listed_names_exist() -> None:
    imported = [import_module(module.name) for module in importable_modules()]

    assert [
        f"{module.__name__}.{name}"
        for module in imported
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ] == []


def test_public_things_have_docstrings() -> None:
    assert [module.name for module in public_modules() if not ast.get_docstring(module.tree)] == []
    assert [
        f"{module.name}.{name}"
        for module in public_modules()
        for name, node in _public_things(module.tree)
        if not ast.get_docstring(node)
    ] == []


def test_only_known_places_catch_everything() -> None:
    catching = {
        module.name
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node)
    }

    assert sorted(catching) == sorted(CATCH_ALL)


_DEFINITION = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _public_things(
    node: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in node.body:
        if isinstance(child, _DEFINITION) and not child.name.startswith("_") and not _is_overload(child):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from _public_things(child, f"{prefix}{child.name}.")


def _is_overload(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = "" if handler.type is None else ast.unparse(handler.type)
    return handler.type is None or re.search(r"\b(Base)?Exception\b", caught) is not None
