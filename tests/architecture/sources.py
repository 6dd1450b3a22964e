"""The source files of the four houses, parsed once, for the tests of the architecture."""

import ast
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

    @property
    def is_public(self) -> bool:
        """Say whether no part of the name begins with an underscore."""
        return not any(part.startswith("_") for part in self.name.split("."))

    def imports(self) -> Iterator[Import]:
        """Yield what the module imports, at its top and inside functions."""
        typing_only = {id(node) for block in self._type_checking_blocks() for node in ast.walk(block)}
        for node in ast.walk(self.tree):
            names: Sequence[str] = ()
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                assert isinstance(node, (ast.Import, ast.ImportFrom))
                yield Import(name=name, line=node.lineno, is_for_types=id(node) in typing_only)

    def _type_checking_blocks(self) -> Iterator[ast.stmt]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                yield from node.body


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the four houses."""
    return tuple(
        Module(name=_name(house, folder, path), path=path, tree=ast.parse(path.read_text(encoding="utf-8")))
        for house, folder in HOUSES.items()
        for path in sorted(folder.rglob("*.py"))
    )


def _name(house: str, folder: Path, path: Path) -> str:
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join((house, *(part for part in parts if part != "__init__")))
