"""Finds the backends and embedding providers that installed packages offer, and those handed over directly.

A package offers one through an entry point whose value is a `BackendSpec` or an `EmbedderSpec` and whose
name is the spec's id. One that cannot be imported is listed with its reason and does not stop the others.
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
"""Entry points of backends that have no section of their own: settings name one as the `kind` of theirs."""

EMBEDDER_GROUP = "composable_memory.embedders"
EXTRACTOR_GROUP = "composable_memory.extractors"
ORDER_GROUP = "composable_memory.embedder_orders"
"""Entry points whose values are ids of embedding providers, in the order in which they are asked."""

RERANKER_GROUP = "composable_memory.rerankers"
VECTOR_GROUP = "composable_memory.vectors"


class Spec(Protocol):
    """What every kind of spec has."""

    @property
    def id(self) -> str:
        """Return the id under which it is asked for."""
        ...

    @property
    def missing(self) -> Callable[[], str | None]:
        """Return the function that says what is lacking on this machine and how to get it."""
        ...


SpecT = TypeVar("SpecT", bound=Spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[SpecT]):
    """One offer, usable or not.

    `origin` names the distribution, its version and the object, or says that the spec was registered
    directly. `problem` says why there is no `spec`; `missing` what a sound one lacks on this machine.
    """

    id: str
    origin: str
    spec: SpecT | None = None
    problem: str | None = None
    missing: str | None = None


FoundBackend: TypeAlias = Found[BackendSpec]
FoundEmbedder: TypeAlias = Found[EmbedderSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unseen(Generic[SpecT]):
    """The offer of an installed package that nobody has imported yet."""

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
            return _inspected(self.kind, self.id, self.origin, self.entry.load())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the module of a stranger may raise anything
            return Found(id=self.id, origin=self.origin, problem=f"{type(error).__name__}: {error}")


class Offers(Generic[SpecT]):
    """What is on offer, in the order of precedence; one is imported when it is looked at for the first time.

    So who looks at all of them imports them all, and a command that needs one does not pay for the others.
    """

    def __init__(self, offers: Iterable[Found[SpecT] | _Unseen[SpecT]] = ()) -> None:
        self._offers = list(offers)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids, each once; imports nothing."""
        return tuple(dict.fromkeys(offer.id for offer in self._offers))

    def preceded_by(self, made: Iterable[Found[SpecT]]) -> "Offers[SpecT]":
        """Return these offers behind others that are known already; imports nothing."""
        return Offers([*made, *self._offers])

    def of(self, id_: str) -> Found[SpecT] | None:
        """Return what counts as the offer of this id, or None; imports no other."""
        places = (place for place, offer in enumerate(self._offers) if offer.id == id_)
        place = next(places, None)
        return None if place is None else self[place]

    def __len__(self) -> int:
        return len(self._offers)

    def __getitem__(self, place: int) -> Found[SpecT]:
        offer = self._offers[place]
        if isinstance(offer, _Unseen):
            offer = self._offers[place] = offer.imported()
        return offer

    def __iter__(self) -> Iterator[Found[SpecT]]:
        return (self[place] for place in range(len(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """Everything on offer, in the order of precedence. Of several with one id the first counts.

    `orders` are the words, such as `auto`, that stand for providers to be asked one after another.
    """

    backends: Offers[BackendSpec] = field(default_factory=Offers)
    kinds: Offers[BackendSpec] = field(default_factory=Offers)
    embedders: Offers[EmbedderSpec] = field(default_factory=Offers)
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def with_kinds(self, kinds: Mapping[str, str]) -> "Registry":
        """Return what is on offer, with the backends that settings make of a kind: `{"wiki": "mcp"}`.

        Imports the kinds, so call it in a thread where an event loop runs.
        """
        made = [self._made_of(id_, kind) for id_, kind in kinds.items()]
        return replace(self, backends=self.backends.preceded_by(made)) if made else self

    def _made_of(self, id_: str, kind: str) -> FoundBackend:
        found = self.kinds.of(kind) or self.backends.of(kind)
        if found is None:
            known = ", ".join([*self.kinds.ids, *self.backends.ids])
            problem = f"no installed package offers the kind {kind!r}; there are {known}"
            return Found(id=id_, origin="the settings", problem=problem)
        # What is kept of all its sections, the kind itself lists already.
        spec = found.spec and replace(found.spec, id=id_, kept=lambda _state_dir: ())
        return replace(found, id=id_, spec=spec)

    def backend(self, id_: str) -> FoundBackend | None:
        """Return what counts as the backend of this id, or None if nobody offers one."""
        return self.backends.of(id_)

    def backend_specs(self) -> list[BackendSpec]:
        """Import all backends and return those that can be used. Blocks."""
        return [found.spec for found in self.backends if found.spec is not None]

    def embedder(self, id_: str) -> FoundEmbedder | None:
        """Return what counts as the embedding provider of this id, or None if nobody offers one."""
        return self.embedders.of(id_)


def discover_backends(
    extra: Iterable[BackendSpec] = (), *, embedders: Iterable[EmbedderSpec] = ()
) -> Registry:
    """Find everything on offer: first what is handed over here, then ours, then that of other packages.

    Reads files, so call it in a thread where an event loop runs. A backend or a provider is imported when
    somebody looks at it; there are many, and a memory has few.
    """
    return Registry(
        backends=_found(BackendSpec, extra, BACKEND_GROUP),
        kinds=_found(BackendSpec, (), KIND_GROUP),
        embedders=_found(EmbedderSpec, embedders, EMBEDDER_GROUP),
        orders=dict(_orders()),
    )


def check_capabilities(manager: MemorySearchManager, spec: BackendSpec) -> None:
    """Compare what an opened backend has with what its spec declares.

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
    offers: list[Found[SpecT] | _Unseen[SpecT]] = [
        _inspected(kind, spec.id, "registered directly", spec) for spec in extra
    ]
    offers += [_Unseen(kind=kind, entry=entry) for entry in offered(group)]
    first: dict[str, Found[SpecT] | _Unseen[SpecT]] = {}
    for offer in offers:
        first.setdefault(offer.id, offer)
    return Offers(
        offer if first[offer.id] is offer else _shadowed(offer, first[offer.id].origin) for offer in offers
    )


def _orders() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every order that can be loaded, ours last, so that nobody replaces them."""
    for entry in reversed(offered(ORDER_GROUP)):
        with suppress(Exception):  # the module of a stranger may raise anything
            yield entry.name, tuple(entry.load())


def _shadowed(offer: Found[SpecT] | _Unseen[SpecT], first: str) -> Found[SpecT]:
    return Found(id=offer.id, origin=offer.origin, problem=f"the id is taken ({first})")


def _inspected(kind: type[SpecT], id_: str, origin: str, spec: object) -> Found[SpecT]:
    if not isinstance(spec, kind):
        problem = f"expected a {kind.__name__}, found a {type(spec).__name__}"
    elif spec.id != id_:
        problem = f"the entry point is called {id_!r}, its spec {spec.id!r}"
    else:
        return Found(id=id_, origin=origin, spec=spec, missing=spec.missing())
    return Found(id=id_, origin=origin, problem=problem)


def find_extractor(name: str) -> EntryPoint:
    """Return where an installed package offers an extractor; nothing of it is imported.

    Raises:
        ConfigError: no installed package offers one of this name.
    """
    installed = offered(EXTRACTOR_GROUP)
    for entry in installed:
        if entry.name == name:
            return entry
    names = ", ".join(sorted(entry.name for entry in installed)) or "none"
    raise ConfigError("extractor", f"no installed package offers {name!r}; offered are {names}")


def load_extractor(name: str = "heuristic") -> EntityExtractor:
    """Return the extractor that an installed package offers under this name; imports it.

    Raises:
        ConfigError: no installed package offers one of this name.
    """
    extractor: EntityExtractor = find_extractor(name).load()()
    return extractor


def load_vectors(id_: str) -> VectorSpec:
    """Import the store of vectors that an installed package offers under this id; reads files.

    Raises:
        ConfigError: no package offers one, or it cannot be used here.
    """
    return _load(VectorSpec, VECTOR_GROUP, id_, setting="vectors")


def load_reranker(id_: str) -> RerankerSpec:
    """Import the reranker that an installed package offers under this id; reads files.

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
