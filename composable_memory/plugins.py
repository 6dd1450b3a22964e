"""Finds the backends and embedding providers that installed packages offer, and those handed over directly.

A package offers one through an entry point whose value is a `BackendSpec` or an `EmbedderSpec` and whose
name is the spec's id. One that cannot be imported is listed with its reason and does not stop the others.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, Protocol, TypeAlias, TypeVar

from composable_memory.errors import BackendError
from composable_memory.interfaces import CAPABILITY_PROTOCOLS, BackendSpec, EmbedderSpec, MemorySearchManager

__all__ = [
    "BACKEND_GROUP",
    "EMBEDDER_GROUP",
    "Found",
    "FoundBackend",
    "FoundEmbedder",
    "Registry",
    "Spec",
    "check_capabilities",
    "discover_backends",
]

BACKEND_GROUP = "composable_memory.backends"
EMBEDDER_GROUP = "composable_memory.embedders"
OWN_DISTRIBUTION = "composable-memory"


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
class Registry:
    """Everything on offer, in the order of precedence. Of several with one id the first counts."""

    backends: tuple[FoundBackend, ...] = ()
    embedders: tuple[FoundEmbedder, ...] = ()

    def backend(self, id_: str) -> FoundBackend | None:
        """Return what counts as the backend of this id, or None if nobody offers one."""
        return next((found for found in self.backends if found.id == id_), None)

    def embedder(self, id_: str) -> FoundEmbedder | None:
        """Return what counts as the embedding provider of this id, or None if nobody offers one."""
        return next((found for found in self.embedders if found.id == id_), None)


def discover_backends(
    extra: Iterable[BackendSpec] = (), *, embedders: Iterable[EmbedderSpec] = ()
) -> Registry:
    """Import everything on offer: first what is handed over here, then ours, then that of other packages.

    Imports modules and reads files, so call it in a thread where an event loop runs.
    """
    installed = entry_points()
    return Registry(
        backends=_found(BackendSpec, extra, installed.select(group=BACKEND_GROUP)),
        embedders=_found(EmbedderSpec, embedders, installed.select(group=EMBEDDER_GROUP)),
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


def _found(
    kind: type[SpecT], extra: Iterable[SpecT], installed: Iterable[EntryPoint]
) -> tuple[Found[SpecT], ...]:
    offers = [_inspected(kind, spec.id, "registered directly", spec) for spec in extra]
    offers += [_loaded(kind, entry) for entry in sorted(installed, key=_precedence)]
    first: dict[str, Found[SpecT]] = {}
    for offer in offers:
        first.setdefault(offer.id, offer)
    return tuple(offer if first[offer.id] is offer else _shadowed(offer, first[offer.id]) for offer in offers)


def _precedence(entry: EntryPoint) -> tuple[bool, str, str]:
    """Put our own entry points first, so that no other package takes their ids; the rest in a fixed order."""
    owner = entry.dist.name if entry.dist else ""
    return owner != OWN_DISTRIBUTION, owner, entry.name


def _shadowed(offer: Found[SpecT], first: Found[SpecT]) -> Found[SpecT]:
    return Found(id=offer.id, origin=offer.origin, problem=f"the id is taken ({first.origin})")


def _loaded(kind: type[SpecT], entry: EntryPoint) -> Found[SpecT]:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown package"
    origin = f"{package}, {entry.value}"
    try:
        return _inspected(kind, entry.name, origin, entry.load())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the module of a stranger may raise anything
        return Found(id=entry.name, origin=origin, problem=f"{type(error).__name__}: {error}")


def _inspected(kind: type[SpecT], id_: str, origin: str, spec: object) -> Found[SpecT]:
    if not isinstance(spec, kind):
        problem = f"expected a {kind.__name__}, found a {type(spec).__name__}"
    elif spec.id != id_:
        problem = f"the entry point is called {id_!r}, its spec {spec.id!r}"
    else:
        return Found(id=id_, origin=origin, spec=spec, missing=spec.missing())
    return Found(id=id_, origin=origin, problem=problem)
