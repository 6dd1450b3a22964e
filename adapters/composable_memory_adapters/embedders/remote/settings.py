"""Settings of remote providers, including batch jobs, and what is missing before one can be used."""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from composable_memory.config.settings import SettingsModel
from composable_memory.config.validation import is_secret
from composable_memory.errors import EmbeddingError
from composable_memory.interfaces import EmbedderServices
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.redaction.secret_names import is_secret_name

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")


class RemoteSettings(SettingsModel):
    """The keys of a provider that is asked over HTTP. A blank `model` or `base_url` counts as not set."""

    model_prefixes: ClassVar[tuple[str, ...]] = ()
    """Prefixes that routers put before a model's name, unknown to the provider itself."""

    model: str = Field(default="", description="The model.")
    base_url: str = Field(default="", description="The provider's address.")
    api_key: SecretStr | None = Field(
        default=None, description="The API key; unset: taken from the environment."
    )
    headers: dict[str, SecretStr] = Field(
        default={}, description="Extra headers for every request; they override the provider's."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Length of the vectors; unset: the model's own, measured if not known.",
    )
    timeout_ms: int = Field(
        default=60_000, ge=1, le=86_400_000, description="How long one request may take in total."
    )
    max_text_bytes: int = Field(
        default=8000, ge=16, description="Longer texts are cut to this many bytes of UTF-8."
    )
    max_batch_texts: int = Field(default=100, ge=1, description="The most texts per request.")
    max_batch_bytes: int = Field(
        default=100_000, ge=1, description="The most bytes of text per request; a larger text is sent alone."
    )
    max_concurrent_requests: int = Field(default=4, ge=1, le=64, description="The most requests at once.")

    @field_validator("model", mode="after")
    @classmethod
    def _without_prefix(cls, model: str) -> str:
        name = model.strip()
        prefix = next((one for one in cls.model_prefixes if name.startswith(one)), "")
        return name.removeprefix(prefix)

    @field_validator("base_url", mode="after")
    @classmethod
    def _without_slash(cls, base_url: str) -> str:
        return base_url.strip().rstrip("/")


FAILURE_LIMIT = 2
"""After this many failures in a row, jobs are off for the life of the embedder."""


class BatchSettings(SettingsModel):
    """Whether texts are left with the provider as a job, and how its end is waited for."""

    enabled: bool = Field(
        default=False, description="Embed large numbers of texts as a batch job instead of by requests."
    )
    wait: bool = Field(
        default=True, description="Wait for the job; if off, its result is fetched by a later sync."
    )
    min_texts: int = Field(
        default=200, ge=1, description="With fewer texts, requests are used instead, which takes seconds."
    )
    concurrency: int = Field(default=2, ge=1, le=32, description="How many jobs run at once.")
    poll_interval_ms: int = Field(
        default=2000, ge=100, le=600_000, description="How often to poll the job's state."
    )
    timeout_minutes: int = Field(default=60, ge=1, le=1440, description="How long to wait for a job.")


class SettingsWithJobs(RemoteSettings):
    """The keys of a provider that also takes jobs."""

    batch: BatchSettings = BatchSettings()


class FailureCounter:
    """Counts failed jobs since the last success, and turns jobs off after too many."""

    def __init__(self) -> None:
        self.failures = 0
        self.last_error: str | None = None
        self.is_off = False

    def failed(self, error: EmbeddingError, *, is_final: bool = False) -> None:
        """Count a failure; a final one, or one too many, turns jobs off."""
        self.failures += 1
        self.last_error = str(error)
        self.is_off = self.is_off or is_final or self.failures >= FAILURE_LIMIT

    def succeeded(self) -> None:
        """Reset the count; jobs that are off stay off."""
        if not self.is_off:
            self.failures, self.last_error = 0, None


Lack: TypeAlias = tuple[str, str]
"""Why a provider cannot be used, and how to fix it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteProvider:
    """The fixed facts of a provider: its id, where to find its key, and the lengths of its vectors."""

    id: str
    key_variables: tuple[str, ...] = ()
    needs_key: bool = True
    native_dimensions: Mapping[str, int] = field(default_factory=dict)

    def setting(self, key: str) -> str:
        """Return the full name of one of the provider's settings."""
        return f"memory.embedding.providers.{self.id}.{key}"

    @property
    def key_places(self) -> str:
        """Describe where the key is looked for."""
        return " or ".join((*self.key_variables, self.setting("api_key_env")))

    def key(self, settings: RemoteSettings, environ: Mapping[str, str]) -> str:
        """Return the key from the settings, else from the environment, else an empty string."""
        own = settings.api_key.get_secret_value() if settings.api_key else ""
        found = (own, *(environ.get(name, "") for name in self.key_variables))
        return next((key.strip() for key in found if key.strip()), "")

    def lack(self, settings: RemoteSettings, services: EmbedderServices) -> Lack | None:
        """Return what is missing or invalid in the settings and the environment."""
        key = self.key(settings, services.environ)
        if not settings.base_url:
            return f"no base_url for {self.id}", f"set {self.setting('base_url')}"
        if problem := _url_problem(settings.base_url):
            return f"the base_url {problem}", f"correct {self.setting('base_url')}"
        if not settings.model:
            return f"no model for {self.id}", f"set {self.setting('model')}"
        if self.needs_key and not key and not any(map(is_credential, settings.headers)):
            return f"no API key for {self.id}", f"set {self.key_places}"
        if key and not _HEADER_VALUE.fullmatch(key):
            return "the API key contains a character that HTTP does not allow", f"correct {self.key_places}"
        return self._header_lack(settings)

    def lacks(self, settings: RemoteSettings, services: EmbedderServices) -> str | None:
        """Return the result of `lack` as text."""
        found = self.lack(settings, services)
        return None if found is None else "; ".join(found)

    def _header_lack(self, settings: RemoteSettings) -> Lack | None:
        for name, value in settings.headers.items():
            sound = _HEADER_VALUE.fullmatch(value.get_secret_value() or "-")
            if not sound or not _HEADER_NAME.fullmatch(name):
                what = f"the header {name!r} contains a character that HTTP does not allow"
                return what, f"correct {self.setting('headers')}"
        return None


def is_credential(header: str) -> bool:
    """Return whether a header of this name authenticates a request, and so does not affect the vectors."""
    return is_secret(header) or is_secret_name(header)


def _url_problem(base_url: str) -> str | None:
    """Return what is wrong with the URL, without quoting it, because it may contain a password."""
    try:
        parts = urlsplit(base_url)
        host, user = parts.hostname, parts.username or parts.password
        _ = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in {"http", "https"} or not host:
        return "has to begin with http:// or https:// and a host"
    return "contains a user or password, which belongs in a header" if user else None
