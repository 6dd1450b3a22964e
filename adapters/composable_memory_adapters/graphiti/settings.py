"""Settings of the graph memory: where the graph is, whose it is, and how texts become facts."""

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from composable_memory.config.settings import SettingsModel
from composable_memory_ops_logs.redaction.secret_names import is_secret_name

DEFAULT_SERVICE_PORT = 8000
DATABASE_SCHEMES = ("redis", "rediss", "falkor", "falkors", "bolt", "bolt+s", "neo4j", "neo4j+s")


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as http://localhost:8000")
    if parts.username or parts.password or _holds_secret(parts.query):
        raise ValueError("do not put a secret in an address, which logs show; use `api_key`")
    return value.rstrip("/")


def _database_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in DATABASE_SCHEMES or not parts.hostname:
        schemes = ", ".join(DATABASE_SCHEMES)
        raise ValueError(f"expected an address such as falkor://localhost:6379, with one of {schemes}")
    if parts.password or parts.username or _holds_secret(parts.query):
        raise ValueError("give the user and password as `username` and `password`")
    return value


def _host(value: str) -> str:
    if urlsplit(f"http://{value}").netloc != value or "@" in value:
        raise ValueError("expected only the name or IP address of a host")
    return value


def _holds_secret(query: str) -> bool:
    return any(is_secret_name(name) for name, _ in parse_qsl(query, keep_blank_values=True))


HttpUrl = Annotated[str, AfterValidator(_http_url)]
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]


class PrivateServerSettings(SettingsModel):
    """The FalkorDB server that starts and stops with the memory."""

    dir: Path | None = Field(
        default=None, description="Where it keeps the graphs; unset: `graphiti` in the state folder."
    )
    fsync: Literal["always", "everysec"] = Field(
        default="always",
        description="When a fact reaches the disk: before it is acknowledged, or within about a second.",
    )
    start_timeout_ms: int = Field(default=30_000, ge=100, description="How long starting it may take.")


class LlmSettings(SettingsModel):
    """The language model that reads episodes, at any endpoint compatible with OpenAI's chat completions."""

    base_url: HttpUrl | None = Field(
        default=None,
        description="The endpoint, such as http://localhost:8080/v1 for llama.cpp; unset: no model is used.",
    )
    model: str = Field(default="default", min_length=1, description="The model's name at the endpoint.")
    api_key: SecretStr | None = Field(default=None, description="Its API key, if it needs one.")
    structured_output: Literal["auto", "json_schema", "json_object", "none"] = Field(
        default="auto",
        description="How to request JSON; `auto` finds out what the endpoint supports.",
    )
    max_tokens: int = Field(default=4096, ge=64, description="Longest answer, in tokens.")
    timeout_ms: int = Field(default=120_000, ge=100, description="How long one answer may take.")


class IngestSettings(SettingsModel):
    """How contents become facts, and what happens if that fails."""

    extractor: str = Field(
        default="auto",
        pattern=r"^[A-Za-z0-9_.-]{1,100}$",
        description="What extracts entities and facts: `auto` (the model if `llm` names one, otherwise "
        "rules), `llm`, `heuristic` (rules), `none`, or the name of an extractor from an installed package.",
    )
    owner: str = Field(default="owner", min_length=1, description='Who "I" means if no speaker is named.')
    group_by: Literal["agent", "user", "session"] = Field(
        default="agent", description="Which graph a content goes to."
    )
    max_episode_chars: int = Field(
        default=4000, ge=200, description="Longer texts become several episodes, cut between paragraphs."
    )
    timeout_ms: int = Field(default=600_000, ge=1000, description="How long one episode may take.")
    retry_after_ms: int = Field(
        default=30_000,
        ge=100,
        le=3_600_000,
        description="Pause before an episode is retried; doubles up to an hour.",
    )
    max_attempts: int = Field(
        default=8, ge=1, description="After this many attempts an episode waits for `cmem index --force`."
    )
    merge_after_days: float = Field(
        default=7.0, ge=0, description="Age at which the messages of a session are merged; 0: never."
    )


class SearchSettings(SettingsModel):
    """How facts are found and ranked."""

    vector_index: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Use an approximate vector index; `auto`: from 5,000 facts in a group on (FalkorDB).",
    )
    vector_weight: float = Field(
        default=0.5, ge=0, le=1, description="Weight of similarity; words have the rest."
    )


class GraphitiSettings(SettingsModel):
    """The settings keys of the graph memory.

    `base_url` is the address of a Graphiti REST service; `server_host` and `service_port` are another way to
    give it, and either may be omitted. `url` is the address of a shared FalkorDB or Neo4j. With none of
    these, a private FalkorDB starts with the memory.
    """

    base_url: HttpUrl | None = Field(
        default=None, description="The address of a Graphiti REST service, such as http://localhost:8000."
    )
    server_host: Annotated[str, AfterValidator(_host)] | None = Field(
        default=None, min_length=1, description="The host of that service, if `base_url` is not set."
    )
    service_port: int = Field(
        default=DEFAULT_SERVICE_PORT, ge=1, le=65_535, description="The port on `server_host`."
    )
    api_key: SecretStr | None = Field(default=None, description="Sent to the service as a bearer token.")
    url: DatabaseUrl | None = Field(
        default=None, description="A shared database, such as falkor://host:6379 or neo4j://host:7687."
    )
    username: str | None = Field(default=None, min_length=1, description="The user at that database.")
    password: SecretStr | None = Field(default=None, description="The password at that database.")
    database: str | None = Field(
        default=None, min_length=1, description="The database on a Neo4j server; unset: the server's default."
    )
    group: str | None = Field(
        default=None,
        min_length=1,
        description="The group to write to, which workspaces may share; unset: one for this workspace alone.",
    )
    also_search: tuple[str, ...] = Field(default=(), description="More groups to search.")
    private: PrivateServerSettings = PrivateServerSettings()
    llm: LlmSettings = LlmSettings()
    ingest: IngestSettings = IngestSettings()
    search: SearchSettings = SearchSettings()

    @property
    def service_url(self) -> str | None:
        """Return the address of the REST service, or None if there is none."""
        names_no_service = self.server_host is None and "service_port" not in self.model_fields_set
        if self.base_url or names_no_service:
            return self.base_url
        return f"http://{self.server_host or 'localhost'}:{self.service_port}"

    @property
    def local_extractor(self) -> str | None:
        """Return the name of the extractor that works without a model; None if there is none."""
        wanted = self.ingest.extractor
        return {"auto": "heuristic", "llm": "heuristic", "none": None}.get(wanted, wanted)

    @property
    def uses_llm(self) -> bool:
        """Return whether a language model reads the episodes."""
        wanted = self.ingest.extractor
        return wanted == "llm" or (wanted == "auto" and self.llm.base_url is not None)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.service_url and self.url:
            raise ValueError("both a REST service (base_url) and a database (url) are set; remove one")
        if self.ingest.extractor == "llm" and self.llm.base_url is None and not self.service_url:
            raise ValueError("extractor llm needs llm.base_url")
        return self
