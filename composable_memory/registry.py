"""Finds the backends and embedding providers of installed packages, and those passed in directly.

A package offers one through an entry point whose value is a `BackendSpec` or an `EmbedderSpec` and whose name
is the spec's id. One that cannot be imported is listed with the reason and does not affect the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from importlib.metadata import EntryPoint
from typing import Generic, Protocol, TypeAlias, TypeVar

from composable_memory.entry_points import offered, package_of
from composable_memory.errors import BackendError, ConfigError
from composable_memory.interfaces import (
    CAPABILITY_PROTOCOLS,
    BackendSpec,
    EmbedderSpec,
    EntityExtractor,
    MemorySearchManager,
    RerankerSpec,
    VectorSpec,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

BACKEND_GROUP = "composable_memory.backends"
KIND_GROUP = "composable_memory.backend_kinds"
"""Entry points of backends without a section of their own: settings name one as the `kind` of a section."""

EMBEDDER_GROUP = "composable_memory.embedders"
EXTRACTOR_GROUP = "composable_memory.extractors"
ORDER_GROUP = "composable_memory.embedder_orders"
"""Entry points whose values are ids of embedding providers, in order of preference."""

RERANKER_GROUP = "composable_memory.rerankers"
VECTOR_GROUP = "composable_memory.vectors"


class Spec(Protocol):
    """What every kind of spec has."""

    @property
    def id(self) -> str:
        """Return the id of the spec."""
        ...

    @property
    def missing(self) -> Callable[[], str | None]:
        """Return the function that says what is missing on this machine and how to get it."""
        ...


SpecT = TypeVar("SpecT", bound=Spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[SpecT]):
    """One offer, usable or not.

    `origin` names the distribution, its version and the object, or says that the spec was passed in directly.
    `problem` says why there is no `spec`; `missing` what a valid one lacks on this machine.
    """

    id: str
    origin: str
    spec: SpecT | None = None
    problem: str | None = None
    missing: str | None = None


FoundBackend: TypeAlias = Found[BackendSpec]
FoundEmbedder: TypeAlias = Found[EmbedderSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotImported(Generic[SpecT]):
    """The offer of an installed package that was not imported yet."""

    kind: type[SpecT]
    entry: EntryPoint

    @property
    def id(self) -> str:
        return self.entry.name

    @property
    def origin(self) -> str:
        package = " ".join(package_of(self.entry.dist)).strip() or "unknown package"
        return f"{package}, {self.entry.value}"

    def imported(self) -> Found[SpecT]:
        try:
            return _inspect(self.kind, self.id, self.origin, self.entry.load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a third-party module may raise anything
            return Found(id=self.id, origin=self.origin, problem=f"{type(error).__name__}: {error}")


class Offers(Generic[SpecT]):
    """The available offers, in order of precedence; each is imported on first access.

    So iterating over all of them imports all, and a command that needs one does not pay for the others.
    """

    def __init__(self, offers: Iterable[Found[SpecT] | _NotImported[SpecT]] = ()) -> None:
        self._offers = list(offers)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the distinct ids; imports nothing."""
        return tuple(dict.fromkeys(offer.id for offer in self._offers))

    def preceded_by(self, made: Iterable[Found[SpecT]]) -> "Offers[SpecT]":
        """Return these offers after others that are already known; imports nothing."""
        return Offers([*made, *self._offers])

    def of(self, id_: str) -> Found[SpecT] | None:
        """Return the first offer with this id, or None; imports no other."""
        places = (place for place, offer in enumerate(self._offers) if offer.id == id_)
        place = next(places, None)
        return None if place is None else self[place]

    def __len__(self) -> int:
        return len(self._offers)

    def __getitem__(self, place: int) -> Found[SpecT]:
        offer = self._offers[place]
        if isinstance(offer, _NotImported):
            offer = self._offers[place] = offer.imported()
        return offer

    def __iter__(self) -> Iterator[Found[SpecT]]:
        return (self[place] for place in range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All available offers, in order of precedence. Of several with one id the first counts.

    `orders` are words, such as `auto`, that stand for providers in order of preference.
    """

    backends: Offers[BackendSpec] = field(default_factory=Offers)
    kinds: Offers[BackendSpec] = field(default_factory=Offers)
    embedders: Offers[EmbedderSpec] = field(default_factory=Offers)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def with_kinds(self, kinds: Mapping[str, str]) -> "Registry":
        """Return a registry that adds the backends that settings make of a kind: `{"wiki": "mcp"}`.

        Imports the kinds: call it in a thread when an event loop is running.
        """
        made = [self._of_kind(id_, kind) for id_, kind in kinds.items()]
        return replace(self, backends=self.backends.preceded_by(made)) if made else self

    def _of_kind(self, id_: str, kind: str) -> FoundBackend:
        found = self.kinds.of(kind) or self.backends.of(kind)
        if found is None:
            known = ", ".join([*self.kinds.ids, *self.backends.ids])
            problem = f"no installed package provides the kind {kind!r}; known kinds: {known}"
            return Found(id=id_, origin="the settings", problem=problem)
        # The kind itself already lists the stored data of all its sections.
        spec = found.spec and replace(found.spec, id=id_, kept=lambda _state_dir: ())
        return replace(found, id=id_, spec=spec)

    def backend(self, id_: str) -> FoundBackend | None:
        """Return the backend with this id, or None."""
        return self.backends.of(id_)

    def backend_specs(self) -> list[BackendSpec]:
        """Import all backends and return those that are usable. Blocks."""
        return [found.spec for found in self.backends if found.spec is not None]

    def embedder(self, id_: str) -> FoundEmbedder | None:
        """Return the embedding provider with this id, or None."""
        return self.embedders.of(id_)


def discover_backends(
    extra: Iterable[BackendSpec] = (), *, embedders: Iterable[EmbedderSpec] = ()
) -> Registry:
    """Find everything available: first what is passed in, then ours, then other packages'.

    Reads files: call it in a thread when an event loop is running. A backend or provider is only imported on
    first access; there are many, and a memory has few.
    """
    return Registry(
        backends=_found(BackendSpec, extra, BACKEND_GROUP),
        kinds=_found(BackendSpec, (), KIND_GROUP),
        embedders=_found(EmbedderSpec, embedders, EMBEDDER_GROUP),
        orders=dict(_orders()),
    )


def check_capabilities(manager: MemorySearchManager, spec: BackendSpec) -> None:
    """Check that an opened backend has what its spec declares.

    Raises:
        BackendError: a method is missing.
    """
    _require(manager, MemorySearchManager, spec.id, "has to be a MemorySearchManager")
    for capability in sorted(spec.capabilities):
        if protocol := CAPABILITY_PROTOCOLS.get(capability):
            _require(manager, protocol, spec.id, f"declares the capability {capability.value!r}")


def _require(manager: object, protocol: type, backend_id: str, claim: str) -> None:
    promised = [name for name in vars(protocol) if not name.startswith("_")]
    missing = [f"{name}()" for name in promised if not callable(getattr(manager, name, None))]
    if missing:
        raise BackendError(backend_id, "open", f"it {claim}, but has no {', '.join(missing)}")


def _found(kind: type[SpecT], extra: Iterable[SpecT], group: str) -> Offers[SpecT]:
    offers: list[Found[SpecT] | _NotImported[SpecT]] = [
        _inspect(kind, spec.id, "registered directly", spec) for spec in extra
    ]
    offers += [_NotImported(kind=kind, entry=entry) for entry in offered(group)]
    first: dict[str, Found[SpecT] | _NotImported[SpecT]] = {}
    for offer in offers:
        first.setdefault(offer.id, offer)
    return Offers(
        offer if first[offer.id] is offer else _shadowed(offer, first[offer.id].origin) for offer in offers
    )


def _orders() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every order that can be loaded, ours last, so that nobody can override them."""
    for entry in reversed(offered(ORDER_GROUP)):
        with suppress(Exception):  # a third-party module may raise anything
            yield entry.name, tuple(entry.load())


def _shadowed(offer: Found[SpecT] | _NotImported[SpecT], first: str) -> Found[SpecT]:
    return Found(id=offer.id, origin=offer.origin, problem=f"the id is taken ({first})")


def _inspect(kind: type[SpecT], id_: str, origin: str, spec: object) -> Found[SpecT]:
    if not isinstance(spec, kind):
        problem = f"expected a {kind.__name__}, found a {type(spec).__name__}"
    elif spec.id != id_:
        problem = f"the entry point is named {id_!r}, but its spec {spec.id!r}"
    else:
        return Found(id=id_, origin=origin, spec=spec, missing=spec.missing())
    return Found(id=id_, origin=origin, problem=problem)


def find_extractor(name: str) -> EntryPoint:
    """Return the entry point of an extractor without importing it.

    Raises:
        ConfigError: no installed package offers one with this name.
    """
    installed = offered(EXTRACTOR_GROUP)
    for entry in installed:
        if entry.name == name:
            return entry
    names = ", ".join(sorted(entry.name for entry in installed)) or "none"
    raise ConfigError("extractor", f"no installed package provides {name!r}; installed: {names}")


def load_extractor(name: str = "heuristic") -> EntityExtractor:
    """Import the extractor with this name and return it.

    Raises:
        ConfigError: no installed package offers one with this name.
    """
    extractor: EntityExtractor = find_extractor(name).load()()
    return extractor


def load_vectors(id_: str) -> VectorSpec:
    """Import the vector store with this id; reads files.

    Raises:
        ConfigError: no package offers one, or it cannot be used here.
    """
    return _load(VectorSpec, VECTOR_GROUP, id_, setting="vectors")


def load_reranker(id_: str) -> RerankerSpec:
    """Import the reranker with this id; reads files.

    Raises:
        ConfigError: no package offers one, or it cannot be used here.
    """
    return _load(RerankerSpec, RERANKER_GROUP, id_, setting="rerank")


def _load(kind: type[SpecT], group: str, id_: str, *, setting: str) -> SpecT:
    offers = _found(kind, (), group)
    found = offers.of(id_)
    if found is None:
        known = ", ".join(offers.ids) or "none"
        problem = f"no installed package offers {id_!r} in the group {group} ({known} there)"
        raise ConfigError(setting, problem)
    if found.spec is None or found.missing:
        raise ConfigError(setting, f"{found.origin}: {found.problem or found.missing}")
    return found.spec
