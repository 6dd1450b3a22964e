"""The source files of the four houses, parsed once, for the tests of the architecture."""

import ast
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["HOUSES", "ROOT", "Import", "Module", "modules"]

ROOT = Path(__file__).parents[2]

HOUSES = {
    "composable_memory": ROOT / "composable_memory",
    "composable_memory_adapters": ROOT / "adapters" / "composable_memory_adapters",
    "composable_memory_feedback": ROOT / "feedback" / "composable_memory_feedback",
    "composable_memory_ops_logs": ROOT / "ops_logs" / "composable_memory_ops_logs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported module, and whether only the type checker sees it."""

    name: str
    line: int
    is_for_types: bool

    @property
    def top(self) -> str:
        """Return the name of the package that is imported from."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One parsed source file of ours."""

    name: str
    path: Path
    tree: ast.Module
    nodes: Sequence[ast.AST]
    imports: Sequence[Import]

    @property
    def is_public(self) -> bool:
        """Say whether no part of the name begins with an underscore."""
        return not any(part.startswith("_") for part in self.name.split("."))


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the four houses."""
    gc.disable()  # it takes longer than all else, and finds nothing to collect
    try:
        return tuple(
            _parsed(_name(house, folder, path), path)
            for house, folder in HOUSES.items()
            for path in sorted(folder.rglob("*.py"))
        )
    finally:
        gc.enable()


def _parsed(name: str, path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tuple(ast.walk(tree))
    blocks = [node for node in nodes if isinstance(node, ast.If) and _is_type_checking(node.test)]
    typing_only = {id(node) for block in blocks for part in block.body for node in ast.walk(part)}
    imports = tuple(_imports(nodes, typing_only))
    return Module(name=name, path=path, tree=tree, nodes=nodes, imports=imports)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute) and ast.unparse(test).endswith("TYPE_CHECKING")


def _imports(nodes: Sequence[ast.AST], typing_only: set[int]) -> Iterator[Import]:
    """Yield what is imported, at the top of a module and inside functions."""
    for node in nodes:
        names: Sequence[str] = ()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            assert isinstance(node, (ast.Import, ast.ImportFrom))
            yield Import(name=name, line=node.lineno, is_for_types=id(node) in typing_only)


def _name(house: str, folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((house, *(part for part in parts if part != "__init__")))
