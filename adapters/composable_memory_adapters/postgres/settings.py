"""Settings of the PostgreSQL memory: the server, the owner of notes, chunking and search."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field, SecretStr

from composable_memory_adapters.builtin.settings import (
    BuiltinSettings,
    FollowSettings,
    NoteSettings,
    SyncSettings,
)


class PostgresSettings(NoteSettings):
    """Settings of a memory in a PostgreSQL server with pgvector."""

    REMOVED: ClassVar[Sequence[str]] = ("exact_limit",)

    url: SecretStr | None = Field(
        default=None,
        description="The server and the database, `postgresql://user:password@host:5432/database`; TLS is "
        "used unless the server is on this machine or `sslmode` says otherwise.",
    )
    url_env: str = Field(
        default="DATABASE_URL",
        min_length=1,
        description="The environment variable that holds the URL, if `url` is unset.",
    )
    schema_: str = Field(
        default="composable_memory",
        alias="schema",
        pattern="^[a-z_][a-z0-9_]{0,62}$",
        description="The schema with the tables.",
    )
    workspace: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="The name under which notes are shared: everyone who uses it sees each other's notes; "
        "unset: this workspace alone.",
    )
    owner: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="This folder's name among those that share the workspace; unset: machine and id at its "
        "first sync.",
    )
    connections: int = Field(default=4, ge=1, le=100, description="The most connections to the server.")
    connect_timeout_ms: int = Field(
        default=3000, ge=1, le=600_000, description="How long connecting may take."
    )
    statement_timeout_ms: int = Field(
        default=10_000, ge=1, le=3_600_000, description="How long a query may take on the server."
    )
    log_days: int = Field(
        default=90,
        ge=1,
        le=36_500,
        description="How many days the server keeps lines sent by `cmem logs ship`.",
    )
    sync: FollowSettings = FollowSettings()

    def of_notes(self) -> BuiltinSettings:
        """Return the settings for the modules that read notes."""
        notes = {name: getattr(self, name) for name in NoteSettings.model_fields}
        sync = SyncSettings(on_search=False, on_session_start=False, **self.sync.model_dump())
        return BuiltinSettings(**notes, sync=sync)
