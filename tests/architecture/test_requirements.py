"""The manifest of requirements is true: the tests it names exist, nothing is promised twice or left open."""

import ast
from collections import Counter
from collections.abc import Mapping
from functools import cache

from tests._requirements import REQUIREMENTS
from tests.architecture.sources import ROOT

DOCUMENTS = {
    "architecture deep-dive",
    "composable memory architecture",
    "knowledge system overview",
    "memory architecture report",
    "our interfaces",
    "quick facts",
}

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LATE = {"own:hooks:day"}
"""Requirements that only tests marked `thorough` keep, which `make test` does not run."""


@cache
def names_in(path: str) -> Mapping[str, bool]:
    """Return the functions and classes of a file, methods as `Class::method`; True for what is thorough."""
    file = ROOT / path
    tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
    names = {}
    for node in tree.body:
        if isinstance(node, DEFINITIONS):
            names[node.name] = is_thorough(node)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}::{one.name}": is_thorough(node) or is_thorough(one)
                for one in node.body
                if isinstance(one, DEFINITIONS)
            }
    return names


def is_thorough(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    return any(ast.unparse(one) == "pytest.mark.thorough" for one in node.decorator_list)


def late(test: str) -> bool:
    path, _, name = test.partition("::")
    return names_in(path).get(name, False)


def test_a_requirement_is_kept_by_a_test_that_every_run_has() -> None:
    assert {one.id for one in REQUIREMENTS if one.tests and all(map(late, one.tests))} == LATE


def test_a_requirement_has_tests_that_exist_or_a_reason() -> None:
    missing = [
        f"{requirement.id}: {test}"
        for requirement in REQUIREMENTS
        for test in requirement.tests
        if test.partition("::")[2] not in names_in(test.partition("::")[0])
    ]

    assert missing == []
    assert [one.id for one in REQUIREMENTS if not one.tests and not one.reason] == []


def test_a_requirement_names_its_document_and_chapter() -> None:
    sources = {one.id: one.source.partition(", ") for one in REQUIREMENTS}

    assert [id_ for id_, (document, _, chapter) in sources.items() if not chapter] == []
    assert {document for document, _, _ in sources.values()} == DOCUMENTS
    assert [one.id for one in REQUIREMENTS if not one.sentence] == []


def test_no_requirement_stands_twice() -> None:
    counted = Counter(requirement.id for requirement in REQUIREMENTS)

    assert [id_ for id_, times in counted.items() if times > 1] == []


def test_every_contract_test_keeps_a_requirement() -> None:
    contracts = (ROOT / "composable_memory" / "testing" / "contracts").glob("*.py")
    paths = [path.relative_to(ROOT).as_posix() for path in contracts]
    written = {f"{path}::{name}" for path in paths for name in names_in(path) if "::test_" in name}
    named = {test for requirement in REQUIREMENTS for test in requirement.tests}

    assert sorted(written - named) == []
