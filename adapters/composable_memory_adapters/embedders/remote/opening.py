"""Opens remote providers, and describes them to the registry."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from composable_memory.errors import EmbedderUnavailable
from composable_memory.interfaces import EmbedderServices, EmbedderSpec
from composable_memory.supervision.backoff import Pace
from composable_memory_adapters.embedders.remote.embedder import RemoteEmbedder
from composable_memory_adapters.embedders.remote.settings import RemoteSettings

__all__ = ["open_remote", "remote_spec"]

SettingsT = TypeVar("SettingsT", bound=RemoteSettings)


@asynccontextmanager
async def open_remote(
    kind: type[RemoteEmbedder[SettingsT]],
    settings: SettingsT,
    services: EmbedderServices,
    *,
    pace: Pace | None = None,
) -> AsyncIterator[RemoteEmbedder[SettingsT]]:
    """Open a provider; no request is made if the length of its vectors is known.

    Raises:
        EmbedderUnavailable: something is missing in the settings, or the length could not be measured.
    """
    if lack := kind.provider.lack(settings, services):
        raise EmbedderUnavailable(kind.provider.id, settings.model or "no model", *lack)
    embedder = kind(settings, services, pace=pace)
    try:
        await embedder.prepare()
        yield embedder
    finally:
        await embedder.close()


def remote_spec(
    kind: type[RemoteEmbedder[SettingsT]], settings: type[SettingsT], *, summary: str
) -> EmbedderSpec:
    """Return the spec of a provider that is asked over HTTP."""
    return EmbedderSpec(
        id=kind.provider.id,
        summary=summary,
        settings=settings,
        open=partial(open_remote, kind),
        local=False,
        lacks=kind.provider.lacks,
    )
