"""The base of all remote providers: batches requests, checks vectors, translates errors.

The first request loads the HTTP client, so a provider that is only listed costs next to nothing.
"""

import asyncio
import json
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, ClassVar, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, FailFast, FiniteFloat

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbedderUnavailable, EmbeddingError
from composable_memory.interfaces import EmbedderServices, EmbedderSpec
from composable_memory.supervision.backoff import Pace
from composable_memory.supervision.resource import closing
from composable_memory_adapters.embedders.remote.provider_errors import ProviderErrors
from composable_memory_adapters.embedders.remote.settings import RemoteProvider, RemoteSettings, is_credential
from composable_memory_adapters.http_failures import HttpFailure
from composable_memory_ops_logs.plurals import counted

if TYPE_CHECKING:
    from composable_memory_adapters.http_client import Connection

Kind: TypeAlias = Literal["query", "document"]
"""Whether a text is a query, or a passage that may answer one."""
KINDS: tuple[Kind, ...] = ("query", "document")

Vector: TypeAlias = Annotated[list[FiniteFloat], FailFast()]
"""A vector as received: all numbers are finite, and parsing stops at the first that is not."""


def request_batches(
    inputs: Sequence[tuple[int, EmbedderInput]], limits: RemoteSettings
) -> Iterator[tuple[Kind, Mapping[int, str]]]:
    """Yield the texts of each request by index: all of one kind, and none blank."""
    for kind in KINDS:
        of_kind = ((index, item.text) for index, item in inputs if item.kind == kind)
        ready = ((index, truncated(text, limits.max_text_bytes)) for index, text in of_kind)
        texts = [(index, text) for index, text in ready if text.strip()]
        for part in grouped(
            [text for _, text in texts],
            max_texts=limits.max_batch_texts,
            max_bytes=limits.max_batch_bytes,
        ):
            yield kind, dict(texts[part.start : part.stop])


def truncated(text: str, max_bytes: int) -> str:
    """Return the longest prefix of `text` with at most `max_bytes` bytes of UTF-8, in whole characters.

    A lone surrogate, which UTF-8 cannot encode, becomes a question mark.
    """
    if len(text) <= max_bytes and text.isascii():
        return text
    encoded = text.encode("utf-8", "replace")
    return encoded[:max_bytes].decode("utf-8", "ignore")


def grouped(texts: Sequence[str], *, max_texts: int, max_bytes: int) -> Iterator[range]:
    """Yield ranges of `texts` for one request each, as long as both limits allow.

    A text larger than `max_bytes` gets a request of its own.
    """
    start, size = 0, 0
    for index, text in enumerate(texts):
        more = len(text.encode())
        if index > start and (index - start == max_texts or size + more > max_bytes):
            yield range(start, index)
            start, size = index, 0
        size += more
    if start < len(texts):
        yield range(start, len(texts))


T = TypeVar("T")
AnswerT = TypeVar("AnswerT", bound=BaseModel)
SettingsT = TypeVar("SettingsT", bound=RemoteSettings)

MIN_SECRET_CHARS = 4
"""A shorter header value, such as `1` or `eu`, is not a secret, and would match in too many texts."""
MEASURE_TIMEOUT_S = 10.0
MAX_SAVED = 4096
"""How many vectors of failed calls to keep until their texts are requested again."""
PROBE = "length"
"""The text to embed to measure the length of a model's vectors."""


class RemoteEmbedder(ABC, Generic[SettingsT]):
    """An embedder behind HTTP; a provider implements `request_vectors`.

    A blank text is not sent; its vector is zero. Only the first `max_text_bytes` bytes of a text, in UTF-8,
    are embedded. A request with a transient failure (no connection, 429, 5xx) is retried three times. Every
    error is an `EmbeddingError` and contains no key.
    """

    provider: ClassVar[RemoteProvider]
    normalises: ClassVar[bool] = False
    """Whether to scale vectors to unit length here, because the provider may not."""

    def __init__(self, settings: SettingsT, services: EmbedderServices, *, pace: Pace | None = None) -> None:
        self.settings = settings
        self._services = services
        self._pace = pace
        self._native = self.native_dimensions(settings.model)
        self._dimensions = settings.dimensions or self._native
        self._headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        self._keys = self.keys(self.provider.key(settings, services.environ))
        self._slots = asyncio.Semaphore(settings.max_concurrent_requests)
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._saved: dict[tuple[Kind, str], Vector] = {}
        self.errors = ProviderErrors(
            self.provider, settings.model, urlsplit(settings.base_url).netloc, self._secrets()
        )

    @property
    def id(self) -> str:
        """Return the provider's id."""
        return self.provider.id

    @property
    def model(self) -> str:
        """Return the model's name."""
        return self.settings.model

    @property
    def dimensions(self) -> int:
        """Return the length of the vectors; 0 until `prepare` has measured it, if it was unknown."""
        return self._dimensions or 0

    @property
    def fingerprint(self) -> str:
        """Return a hash of what else affects vectors: endpoint, headers but credentials, truncation."""
        headers = sorted(
            (name.lower(), text) for name, text in self._headers.items() if not is_credential(name)
        )
        shaping = json.dumps([self.settings.base_url, headers, self.settings.max_text_bytes])
        return sha256(shaping.encode()).hexdigest()[:32]

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        """Return the vector of one text."""
        return (await self.embed_batch([input]))[0]

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> list[Vector]:
        """Return the vectors of several texts, in order.

        If one request fails, the vectors of the others are kept for the next call: they were paid for.

        Raises:
            EmbedderUnavailable: the provider cannot be used, or the embedder is closed.
            EmbeddingError: the provider failed, or sent an unusable answer.
        """
        saved = [self._saved.pop((item.kind, item.text), None) for item in inputs]
        vectors = [vector or [0.0] * self.dimensions for vector in saved]
        missing = [(index, item) for index, item in enumerate(inputs) if saved[index] is None]
        async with asyncio.TaskGroup() as group:
            requests = [
                group.create_task(self._fill(vectors, texts, kind))
                for kind, texts in request_batches(missing, self.settings)
            ]
        failures = [failure for request in requests if (failure := request.result())]
        if failures:
            self._save(inputs, vectors)
            raise failures[0]
        return vectors

    async def prepare(self) -> None:
        """Measure the length of the vectors with one request, if neither the settings nor a table has it.

        Raises:
            EmbedderUnavailable: it could not be measured within 10 seconds.
        """
        if self._dimensions is not None:
            return
        problem = f"no answer within {MEASURE_TIMEOUT_S:g} s"
        try:
            async with asyncio.timeout(MEASURE_TIMEOUT_S):
                await self._vectors([PROBE], "document")
                return
        except TimeoutError:
            pass
        except EmbeddingError as error:
            problem = str(error)
        what = f"the length of its vectors is not known and could not be measured ({problem})"
        raise self.errors.unavailable(what, f"set {self.provider.setting('dimensions')}")

    async def close(self) -> None:
        """Close all connections; idempotent."""
        async with self._opening:
            self._is_closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # --- what a provider defines ----------------------------------------------------------------------------

    @abstractmethod
    async def request_vectors(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:
        """Request one vector per text with `post`; no text is blank, and all fit into one request.

        Raises:
            HttpFailure: the request failed.
            EmbeddingError: the answer cannot be used.
        """

    @classmethod
    def native_dimensions(cls, model: str) -> int | None:
        """Return the default length of a model's vectors; None if unknown."""
        return cls.provider.native_dimensions.get(model)

    @classmethod
    def keys(cls, key: str) -> Sequence[str]:
        """Return the keys in the configured value, which may contain several."""
        return [key] if key else []

    @classmethod
    def credential(cls, key: str) -> Mapping[str, str]:
        """Return the headers that authenticate a request."""
        return {"Authorization": f"Bearer {key}"}

    def advice(self, failure: HttpFailure) -> str | None:  # noqa: ARG002 - for providers that know more
        """Return more specific advice on a failure than the default, if there is any."""
        return None

    # --- what a provider uses -------------------------------------------------------------------------------

    @property
    def requested_dimensions(self) -> int | None:
        """Return the length to request; None for the model's own."""
        return None if self.settings.dimensions == self._native else self.settings.dimensions

    def checked(self, vector: Vector) -> Vector:
        """Check a received vector, and scale it to unit length if the provider does not.

        Raises:
            DimensionMismatch: it does not have the promised length.
        """
        if len(vector) != self._dimensions:
            raise DimensionMismatch(self.id, self.model, expected=self.dimensions, got=len(vector))
        return _scaled(vector) if self.normalises else vector

    async def post(self, path: str, body: Mapping[str, object], answer: type[AnswerT]) -> AnswerT:
        """Send JSON to a path below the base URL and return the answer.

        Raises:
            HttpFailure: the request failed.
            EmbeddingError: the answer cannot be read, or the embedder is closed.
        """
        connection = await self.connected()
        content = json.dumps(body, ensure_ascii=False).encode()
        return self.errors.parsed(await connection.post(path, content), answer)

    async def connected(self) -> "Connection":
        """Return the connection; the first call creates it in a thread, which takes a sixth of a second.

        Raises:
            EmbedderUnavailable: the embedder is closed.
        """
        async with self._opening:
            if self._is_closed:
                raise self.errors.unavailable("the embedder is closed", "open a new one")
            if self._connection is None:
                self._connection = await asyncio.to_thread(self._connect)
            return self._connection

    async def in_slot(self, request: Callable[[], Awaitable[T]]) -> T:
        """Run a request as one of at most `max_concurrent_requests`.

        Raises:
            EmbeddingError: the request raised an `HttpFailure`.
        """
        async with self._slots:
            try:
                return await request()
            except HttpFailure as error:
                failure = error
        raise self.failed(failure)

    def failed(self, failure: HttpFailure) -> EmbeddingError:
        """Return the error for a failed request, without secrets."""
        return self.errors.failed(failure, self.advice(failure))

    # --- internals ------------------------------------------------------------------------------------------

    async def _fill(
        self, vectors: list[Vector], texts: Mapping[int, str], kind: Kind
    ) -> EmbeddingError | None:
        """Store the vectors of texts at their indexes, or return the error, so that other requests go on."""
        try:
            got = await self._vectors(list(texts.values()), kind)
        except EmbeddingError as error:
            return error
        for index, vector in zip(texts, got, strict=True):
            vectors[index] = vector
        return None

    def _save(self, inputs: Sequence[EmbedderInput], vectors: Sequence[Vector]) -> None:
        if len(self._saved) + len(inputs) > MAX_SAVED:
            self._saved.clear()
        for item, vector in zip(inputs, vectors, strict=True):
            if any(vector):
                self._saved[item.kind, item.text] = vector

    async def _vectors(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:
        """Return one vector per text, all of one length, which must be the promised one if there is one."""
        vectors = await self.in_slot(partial(self.request_vectors, texts, kind))
        if len(vectors) != len(texts):
            counts = f"{counted(len(vectors), 'vector')} for {counted(len(texts), 'text')}"
            raise self.errors.unreadable(counts)
        self._dimensions = self._dimensions or len(vectors[0])
        if not self._dimensions:
            raise self.errors.unreadable("an empty vector")
        return [self.checked(vector) for vector in vectors]

    def _connect(self) -> "Connection":
        from composable_memory_adapters.http_client import Connection, HttpClient

        client = HttpClient(
            self.settings.base_url, timeout_s=self.settings.timeout_ms / 1000, clock=self._services.clock
        )
        credentials = [self.credential(key) for key in self._keys]
        return Connection(client, credentials=credentials, headers=self._headers, pace=self._pace)

    def _secrets(self) -> Iterator[str]:
        """Yield what must not appear in a message: keys, credentials made from them, longer headers."""
        yield from self._keys
        for key in self._keys:
            yield from (text.removeprefix("Bearer ") for text in self.credential(key).values())
        yield from (text for text in self._headers.values() if len(text) >= MIN_SECRET_CHARS)


@asynccontextmanager
async def open_remote(
    kind: type[RemoteEmbedder[SettingsT]],
    settings: SettingsT,
    services: EmbedderServices,
    *,
    pace: Pace | None = None,
) -> AsyncIterator[RemoteEmbedder[SettingsT]]:
    """Open a provider; if the length of its vectors is known, no request is made.

    Raises:
        EmbedderUnavailable: a setting is missing, or the length could not be measured.
    """
    if lack := kind.provider.lack(settings, services):
        raise EmbedderUnavailable(kind.provider.id, settings.model or "no model", *lack)
    async with closing(kind(settings, services, pace=pace)) as embedder:
        await embedder.prepare()
        yield embedder


def remote_spec(
    kind: type[RemoteEmbedder[SettingsT]], settings: type[SettingsT], *, summary: str
) -> EmbedderSpec:
    """Return the spec of an HTTP provider."""
    return EmbedderSpec(
        id=kind.provider.id,
        summary=summary,
        settings=settings,
        open=partial(open_remote, kind),
        local=False,
        lacks=kind.provider.lacks,
    )


def _scaled(vector: Vector) -> Vector:
    """Scale a vector to unit length, unless its length is nearly zero."""
    length = math.hypot(*vector)
    return [value / length for value in vector] if length > 1e-10 else vector
