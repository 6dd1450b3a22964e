"""Chooses the embedding provider, opens it, and records why others were passed over.

A word such as `auto` stands for an order of providers, of which the first usable one is taken; local ones of
other packages come last. A provider named in the settings is never replaced silently: only the configured
fallback may stand in for it, and says so.
"""

import asyncio
import difflib
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from pydantic import BaseModel

from composable_memory.config.layers import LoadedSettings, validate_provider_options
from composable_memory.errors import ComposableMemoryError, ConfigError
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices, EmbedderSpec
from composable_memory.registry import FoundEmbedder, Registry
from composable_memory.types import FallbackStatus, MemoryProviderStatus
from composable_memory_ops_logs import BackendDegraded, OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass

SECTION = "memory.embedding"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A provider that was considered but not chosen, and why."""

    id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.id}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderOffer:
    """A provider as available here: `settings` is None if it cannot be loaded.

    `lacks` is what is missing for it to be chosen automatically: a key or a model.
    """

    found: FoundEmbedder
    settings: BaseModel | None = None
    lacks: str | None = None

    @property
    def id(self) -> str:
        """Return the provider's id."""
        return self.found.id

    @property
    def is_local(self) -> bool:
        """Return whether it works offline."""
        return self.found.spec is not None and self.found.spec.local

    @property
    def unusable(self) -> str | None:
        """Return why it cannot be opened on this machine at all; None if no reason is known."""
        return self.found.problem or self.found.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderAttempt:
    """The result of one word of the settings: the provider to open, and those passed over on the way."""

    asked: str
    chosen: EmbedderOffer | None = None
    passed_over: tuple[PassedOver, ...] = ()

    @property
    def problem(self) -> str:
        """Return why no provider was chosen."""
        if self.asked == "none":
            return f"embedding is off ({SECTION}.provider: none)"
        return "; ".join(map(str, self.passed_over)) or "no local embedding provider is installed"


class EmbedderOffers:
    """All available providers, in order of precedence; each is loaded once, when first accessed."""

    def __init__(self, loaded: LoadedSettings, registry: Registry, services: EmbedderServices) -> None:
        self._loaded = loaded
        self._found = registry.embedders
        self.orders = registry.orders
        self._services = services
        self._made: dict[str, EmbedderOffer] = {}

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the distinct ids; loads nothing."""
        return self._found.ids

    def of(self, id_: str) -> EmbedderOffer:
        """Return the provider with this id, one of `ids`; loads no other.

        Raises:
            ConfigError: one of its settings is invalid.
        """
        if id_ not in self._made:
            found = self._found.of(id_)
            assert found is not None
            self._made[id_] = self._offer(found)
        return self._made[id_]

    def __iter__(self) -> Iterator[EmbedderOffer]:
        for found in self._found:
            offer = self.of(found.id)
            yield offer if offer.found is found else EmbedderOffer(found=found)

    def _offer(self, found: FoundEmbedder) -> EmbedderOffer:
        if found.spec is None:
            return EmbedderOffer(found=found)
        embedding = self._loaded.settings.memory.embedding
        model = embedding.model if found.id == embedding.provider else None
        settings = validate_provider_options(found.spec, self._loaded, model=model)
        return EmbedderOffer(found=found, settings=settings, lacks=found.spec.lacks(settings, self._services))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderPlan:
    """Which provider should serve, decided without opening anything, and the candidates."""

    offers: EmbedderOffers
    first: EmbedderAttempt
    fallback: EmbedderAttempt | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderChoice:
    """The provider that was opened, or why there is none, and which one it stands in for.

    `languages` are those it reads, None if unknown. `considered` are the providers that were passed over
    before it.
    """

    embedder: EmbedderAdapter | None = None
    is_local: bool = True
    languages: frozenset[str] | None = None
    problem: str | None = None
    fallback: FallbackStatus | None = None
    considered: tuple[PassedOver, ...] = ()


def plan_embedder(loaded: LoadedSettings, registry: Registry, services: EmbedderServices) -> EmbedderPlan:
    """Decide which provider should serve. Reads the disk: call it in a thread when an event loop is running.

    Raises:
        ConfigError: a provider or one of its keys is unknown, or a model is set without a provider.
    """
    embedding = loaded.settings.memory.embedding
    if embedding.model is not None and embedding.provider in registry.orders:
        raise _config_error(
            loaded,
            f"{SECTION}.model",
            f"{SECTION}.provider is {embedding.provider!r}, but a model belongs to one provider; also name "
            f"the provider, or set {SECTION}.providers.<id>.model",
        )
    for id_ in embedding.providers:
        _check_is_offered(loaded, registry, id_, f"{SECTION}.providers.{id_}")
    for name in ("provider", "fallback"):
        _check_is_offered(loaded, registry, getattr(embedding, name), f"{SECTION}.{name}")
    offers = EmbedderOffers(loaded, registry, services)
    for id_ in embedding.providers:  # report mistakes even in the settings of unused providers
        offers.of(id_)
    has_fallback = embedding.fallback != "none" and embedding.provider != "none"
    return EmbedderPlan(
        offers=offers,
        first=_attempt(embedding.provider, offers),
        fallback=_attempt(embedding.fallback, offers) if has_fallback else None,
    )


async def choose_embedder(
    loaded: LoadedSettings, registry: Registry, services: EmbedderServices, stack: AsyncExitStack
) -> EmbedderChoice:
    """Open the provider that the settings call for onto `stack`; without one, the choice says why.

    Raises:
        ConfigError: a setting of a provider is invalid.
    """
    plan = await asyncio.to_thread(plan_embedder, loaded, registry, services)
    choice = await _open(plan.first, services, stack)
    if choice.embedder is None and plan.fallback is not None:
        choice = await _fallback_provider(plan, choice, services, stack)
    if plan.first.asked != "none":
        _log(choice, services.ops_log)
    return choice


async def _fallback_provider(
    plan: EmbedderPlan, failed: EmbedderChoice, services: EmbedderServices, stack: AsyncExitStack
) -> EmbedderChoice:
    """Open the fallback; if that fails too, report both reasons."""
    assert plan.fallback is not None
    choice = await _open(plan.fallback, services, stack)
    considered = (*failed.considered, *choice.considered)
    if choice.embedder is None:
        both = (
            f"{failed.problem}; the fallback {plan.fallback.asked!r} cannot be used either: {choice.problem}"
        )
        return replace(choice, problem=both, considered=considered)
    from_ = plan.first.chosen.id if plan.first.chosen else plan.first.asked
    return replace(choice, fallback=FallbackStatus(from_=from_, reason=failed.problem), considered=considered)


async def _open(
    attempt: EmbedderAttempt, services: EmbedderServices, stack: AsyncExitStack
) -> EmbedderChoice:
    offer = attempt.chosen
    if offer is None or offer.found.spec is None:
        return EmbedderChoice(problem=attempt.problem, considered=attempt.passed_over)
    try:
        embedder = await stack.enter_async_context(offer.found.spec.open(offer.settings, services))
    except ConfigError:
        raise
    except ComposableMemoryError as error:
        failed = PassedOver(id=offer.id, reason=str(error))
        return EmbedderChoice(problem=str(error), considered=(*attempt.passed_over, failed))
    return EmbedderChoice(
        embedder=embedder,
        is_local=offer.is_local,
        languages=offer.found.spec.languages,
        considered=attempt.passed_over,
    )


def _log(choice: EmbedderChoice, ops_log: OpsLog) -> None:
    if choice.fallback is not None and choice.embedder is not None:
        reason = f"{choice.embedder.id} stands in for {choice.fallback.from_}: {choice.fallback.reason}"
        ops_log.emit(BackendDegraded(what="embedding", level="fallback", reason=reason), status="partial")
    elif choice.problem is not None:
        event = BackendDegraded(what="embedding", level="keyword-only", reason=choice.problem)
        ops_log.emit(event, status="failure")


def _attempt(asked: str, offers: EmbedderOffers) -> EmbedderAttempt:
    """Go through the candidates until one can be opened."""
    is_named = asked not in offers.orders
    passed_over: list[PassedOver] = []
    for offer in _candidates(asked, offers):
        obstacle = offer.unusable or (None if is_named else offer.lacks)
        if obstacle is None:
            return EmbedderAttempt(asked=asked, chosen=offer, passed_over=tuple(passed_over))
        passed_over.append(PassedOver(id=offer.id, reason=obstacle))
    return EmbedderAttempt(asked=asked, passed_over=tuple(passed_over))


def _candidates(asked: str, offers: EmbedderOffers) -> Iterator[EmbedderOffer]:
    """Yield the candidates lazily, so that those after the chosen one are not loaded."""
    order = [id_ for id_ in dict.fromkeys(offers.orders.get(asked, (asked,))) if id_ in offers.ids]
    yield from map(offers.of, order)
    if asked in offers.orders:
        others = (offers.of(id_) for id_ in offers.ids if id_ not in order)
        yield from (offer for offer in others if offer.is_local)


def _check_is_offered(loaded: LoadedSettings, registry: Registry, provider: str, key: str) -> None:
    words = () if key.startswith(f"{SECTION}.providers.") else (*registry.orders, "none")
    known = registry.embedders.ids
    if provider in words or provider in known:
        return
    problem = f"{provider!r} is not installed; installed: {', '.join(known) or 'none'}"
    near = difflib.get_close_matches(provider, [*known, *words], n=1)
    raise _config_error(loaded, key, problem, nearest=near[0] if near else None)


def _config_error(
    loaded: LoadedSettings, key: str, problem: str, *, nearest: str | None = None
) -> ConfigError:
    inside = (origin for each, origin in loaded.origins.items() if f"{each}.".startswith(f"{key}."))
    origin = next(inside, None)
    return ConfigError(key, problem, origin=None if origin is None else str(origin), nearest=nearest)


MIN_SHARE = 0.1
"""A language with a smaller share of the notes is not worth a hint."""

_NAMES = {
    "ar": "Arabic",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "he": "Hebrew",
    "hi": "Hindi",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "pt": "Portuguese",
    "ru": "Russian",
    "th": "Thai",
    "zh": "Chinese",
}


def language_hint(status: MemoryProviderStatus, choice: EmbedderChoice, registry: Registry) -> str | None:
    """Return which languages of the notes the chosen provider cannot read, and which provider can. Blocks.

    Returns None if it reads every language of more than a tenth of the notes, or if no offline provider reads
    them.
    """
    match status.custom:
        case {"languages": dict(shares)} if choice.embedder is not None and choice.languages is not None:
            unread = dict(_unread(shares, choice.languages))
        case _:
            return None
    if not unread or (better := _reader_of(unread, registry)) is None:
        return None
    what = ", ".join(f"{_NAMES.get(code, code)} ({share:.0%} of the notes)" for code, share in unread.items())
    missing = better.missing()
    return (
        f"{choice.embedder.id} does not support {what}, so passages in it are found by words only;"
        f" {better.id} does: {f'{missing}, then ' if missing else ''}set {SECTION}.provider to {better.id}"
    )


def _unread(shares: Mapping[str, object], known: frozenset[str]) -> Iterator[tuple[str, float]]:
    for code, share in shares.items():
        if code not in known and isinstance(share, float | int) and share > MIN_SHARE:
            yield code, float(share)


def _reader_of(languages: Mapping[str, float], registry: Registry) -> EmbedderSpec | None:
    """Return a provider that reads all of `languages` and works offline; imports all providers."""
    specs = (found.spec for found in registry.embedders if found.spec)
    return next(
        (spec for spec in specs if spec.local and languages.keys() <= (spec.languages or set())), None
    )
