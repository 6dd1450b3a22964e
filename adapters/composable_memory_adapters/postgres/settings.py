"""Settings of the PostgreSQL memory: which server, whose notes, how they are cut and searched."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from composable_memory.config.settings import SettingsModel
from composable_memory_adapters.builtin.settings import (
    BuiltinSettings,
    ChunkingSettings,
    DocumentKinds,
    FollowSettings,
    NotePath,
    QuerySettings,
    SessionSettings,
    Sources,
    SyncSettings,
)


def _expanded(paths: tuple[NotePath, ...]) -> tuple[NotePath, ...]:
    return tuple(dict.fromkeys(path.expanduser() for path in paths))


class PostgresSettings(SettingsModel):
    """Settings of a memory in a PostgreSQL server with pgvector."""

    REMOVED: ClassVar[Sequence[str]] = ("exact_limit",)

    url: SecretStr | None = Field(
        default=None,
        description="The server and the database, `postgresql://user:password@host:5432/database`; TLS is "
        "used unless it is on this machine, or `sslmode` says otherwise.",
    )
    url_env: str = Field(
        default="DATABASE_URL", min_length=1, description="The variable that holds it, where `url` is unset."
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
        description="The name under which notes are shared: all who give it see each other's; unset, this "
        "workspace alone.",
    )
    owner: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="The name of this folder among those that share the workspace; unset, machine and id as"
        " of its first sync.",
    )
    connections: int = Field(default=4, ge=1, le=100, description="Most connections to the server.")
    connect_timeout_ms: int = Field(
        default=3000, ge=1, le=600_000, description="How long it may take to connect."
    )
    statement_timeout_ms: int = Field(
        default=10_000, ge=1, le=3_600_000, description="How long a question may take on the server."
    )
    log_days: int = Field(
        default=90,
        ge=1,
        le=36_500,
        description="For how many days the lines that `cmem logs ship` sends are kept on the server.",
    )
    sources: Sources = Field(default=("memory",), description="What is brought: notes, transcripts, or both.")
    scope: Literal["auto", "memory", "folder"] = Field(
        default="auto",
        description="The notes of the folder: `memory`, that is `MEMORY.md` and `memory/`, the whole"
        " `folder`, or `auto`.",
    )
    extra_paths: Annotated[
        tuple[NotePath, ...],
        BeforeValidator(lambda paths: [one for one in paths if str(one).strip()]),
        AfterValidator(_expanded),
    ] = Field(default=(), description="Further folders and notes, as of the builtin memory.")
    documents: DocumentKinds = Field(
        default=(), description="Kinds of documents that are notes as well; PDF needs the extra `documents`."
    )
    max_files: int = Field(
        default=50_000, ge=1, description="Most notes that a whole folder may have before it is refused."
    )
    chunking: ChunkingSettings = ChunkingSettings()
    sync: FollowSettings = FollowSettings()
    sessions: SessionSettings = SessionSettings()
    query: QuerySettings = QuerySettings()

    def of_notes(self) -> BuiltinSettings:
        """Return which notes are read, as the modules that read notes are told."""
        return BuiltinSettings(
            sources=self.sources,
            scope=self.scope,
            extra_paths=self.extra_paths,
            documents=self.documents,
            max_files=self.max_files,
            chunking=self.chunking,
            sessions=self.sessions,
            sync=SyncSettings(on_search=False, on_session_start=False, **self.sync.model_dump()),
        )
