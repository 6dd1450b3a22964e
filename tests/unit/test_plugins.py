"""Which backends and providers are found, what is said of those that cannot be used, and what is promised."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from composable_memory.config.settings import SettingsModel
from composable_memory.errors import BackendError
from composable_memory.interfaces import BackendSpec, Capability, EmbedderSpec, MemorySearchManager
from composable_memory.registry import (
    BACKEND_GROUP,
    EMBEDDER_GROUP,
    Found,
    FoundBackend,
    Registry,
    check_capabilities,
    discover_backends,
)
from composable_memory.testing.in_memory import FakeBackend, InMemoryBackend
from composable_memory.testing.in_memory import spec as in_memory
from tests.installed_packages import install

MODULE = """
from composable_memory.interfaces import BackendSpec, EmbedderSpec
from composable_memory.config.settings import SettingsModel

def backend(id_, **more):
    return BackendSpec(id=id_, summary="a memory", settings=SettingsModel, open=None, **more)

notes = backend("notes")
needy = backend("needy", missing=lambda: "no such tool; install it")
asking = backend("asking", missing=lambda: 1 / 0)
vectors = EmbedderSpec(id="vectors", summary="vectors", settings=SettingsModel, open=None, local=True)
number = 3
"""


class Site:
    """A folder where packages are installed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, package: str, *, module: str, group: str = BACKEND_GROUP, **entries: str) -> None:
        """Install version 1.0 of a package with one module of this text; entries map names to attributes."""
        name = package.replace("-", "_") + "_of_this_test"
        lines = [f"[{group}]", *(f"{entry} = {name}:{attribute}" for entry, attribute in entries.items())]
        install(self.folder, package, "\n".join(lines), **{name: module})


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path)
    for name in [name for name in sys.modules if name.endswith("_of_this_test")]:
        del sys.modules[name]


def backend(id_: str) -> FoundBackend:
    found = discover_backends().backend(id_)
    assert found is not None
    return found


def test_a_backend_of_an_installed_package_is_found(site: Site) -> None:
    site.install("acme", module=MODULE, notes="notes")
    found = backend("notes")

    assert found.spec is not None
    assert (found.spec.id, found.problem, found.missing) == ("notes", None, None)
    assert found.origin == "acme 1.0, acme_of_this_test:notes"


def test_a_package_that_is_installed_meanwhile_is_found(site: Site) -> None:
    site.install("acme", module=MODULE, notes="notes")
    backend("notes")
    site.install("zeta", module=MODULE, needy="needy")

    assert backend("needy").spec is not None


def test_a_provider_of_an_installed_package_is_found(site: Site) -> None:
    site.install("acme", module=MODULE, group=EMBEDDER_GROUP, vectors="vectors")
    registry = discover_backends()

    found = registry.embedder("vectors")
    assert found is not None
    assert isinstance(found.spec, EmbedderSpec)
    assert registry.backend("vectors") is None


def test_a_provider_is_imported_when_it_is_looked_at(site: Site) -> None:
    site.install("acme", module=MODULE, group=EMBEDDER_GROUP, vectors="vectors")
    site.install("zeta", module="raise RuntimeError('no licence')", group=EMBEDDER_GROUP, broken="spec")
    embedders = discover_backends().embedders

    assert {"vectors", "broken"} <= set(embedders.ids)
    assert "acme_of_this_test" not in sys.modules

    assert embedders.of("vectors") is embedders.of("vectors")
    assert "acme_of_this_test" in sys.modules
    assert "zeta_of_this_test" not in sys.modules
    assert "RuntimeError: no licence" in [found.problem for found in embedders]


def test_a_provider_whose_id_is_taken_is_not_imported(site: Site) -> None:
    site.install("acme", module=MODULE, group=EMBEDDER_GROUP, vectors="vectors")
    site.install("zeta", module=MODULE, group=EMBEDDER_GROUP, vectors="vectors")

    problems = [found.problem for found in discover_backends().embedders if found.id == "vectors"]
    assert problems == [None, "the id is taken (acme 1.0, acme_of_this_test:vectors)"]
    assert "zeta_of_this_test" not in sys.modules


def test_what_a_backend_lacks_on_this_machine_is_listed(site: Site) -> None:
    site.install("acme", module=MODULE, needy="needy")

    assert backend("needy").missing == "no such tool; install it"


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("import surely_not_installed", "ModuleNotFoundError: No module named 'surely_not_installed'"),
        ("def", "SyntaxError: "),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("", "AttributeError: "),
    ],
)
def test_a_package_that_cannot_be_imported_is_listed_and_does_not_stop_others(
    site: Site, module: str, problem: str
) -> None:
    site.install("aaa-broken", module=module, broken="spec")
    site.install("acme", module=MODULE, notes="notes")

    assert backend("broken").spec is None
    assert str(backend("broken").problem).startswith(problem)
    assert backend("notes").spec is not None


@pytest.mark.parametrize(
    ("entry", "attribute", "problem"),
    [
        ("number", "number", "expected a BackendSpec, found a int"),
        ("vectors", "vectors", "expected a BackendSpec, found a EmbedderSpec"),
        ("other", "notes", "the entry point is named 'other', but its spec 'notes'"),
        ("asking", "asking", "ZeroDivisionError: division by zero"),
    ],
)
def test_an_offer_that_is_not_what_it_should_be_is_listed(
    site: Site, entry: str, attribute: str, problem: str
) -> None:
    site.install("acme", module=MODULE, **{entry: attribute})

    assert (backend(entry).spec, backend(entry).problem) == (None, problem)


def test_of_two_packages_with_one_id_the_first_counts_and_the_other_is_listed(site: Site) -> None:
    site.install("zeta", module=MODULE, notes="notes")
    site.install("acme", module=MODULE, notes="notes")

    first, second = (found for found in discover_backends().backends if found.id == "notes")
    assert first.origin.startswith("acme 1.0")
    assert second == Found(
        id="notes",
        origin="zeta 1.0, zeta_of_this_test:notes",
        problem="the id is taken (acme 1.0, acme_of_this_test:notes)",
    )


def test_no_package_takes_an_id_of_ours(site: Site) -> None:
    site.install("aaa", module=MODULE, notes="notes")
    site.install("composable-memory", module=MODULE, notes="notes")

    assert backend("notes").origin.startswith("composable-memory 1.0")


def test_a_spec_that_is_handed_over_comes_before_installed_ones(site: Site) -> None:
    site.install("acme", module=MODULE, notes="notes")
    mine = replace(in_memory, id="notes")
    registry = discover_backends([mine])

    assert registry.backend("notes") == Found(id="notes", origin="registered directly", spec=mine)
    assert registry.backends[0].spec is mine


def test_a_provider_may_be_handed_over() -> None:
    mine = EmbedderSpec(id="mine", summary="mine", settings=SettingsModel, open=cast("Any", None), local=True)

    assert discover_backends(embedders=[mine]).embedders[0].spec is mine


def test_an_id_that_nobody_offers_is_none() -> None:
    assert Registry().backend("nobody") is None
    assert Registry().embedder("nobody") is None


def with_capabilities(*capabilities: Capability) -> BackendSpec:
    return replace(in_memory, id="notes", capabilities=frozenset(capabilities))


def test_a_backend_that_keeps_its_promises_passes() -> None:
    check_capabilities(InMemoryBackend(), with_capabilities(Capability.ANSWER, Capability.READ_FILE))


def test_a_declared_capability_without_its_method_is_refused() -> None:
    with pytest.raises(BackendError) as caught:
        check_capabilities(InMemoryBackend(), with_capabilities(Capability.ANSWER, Capability.SYNC))

    assert [one for one in ("'notes'", "'sync'", "sync()") if one not in str(caught.value)] == []


def test_what_is_no_memory_is_refused() -> None:
    lacking = cast("MemorySearchManager", FakeBackend("notes"))

    with pytest.raises(BackendError, match=r"has to be a MemorySearchManager, but has no search\(\)"):
        check_capabilities(lacking, with_capabilities())
