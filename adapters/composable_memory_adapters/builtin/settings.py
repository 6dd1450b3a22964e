"""Settings of the builtin memory: which notes, how they are cut and searched, when, where the index is."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from composable_memory.config.settings import SettingsModel
from composable_memory.state.folders import file_name_of

DEFAULT_INDEX = "{stateDir}/memory/{agentId}-{workspace}.sqlite"
DEFAULT_TRANSCRIPTS = "{stateDir}/agents/{agentId}/sessions"


def _strip(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _expanded(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(path.expanduser() for path in paths))


def _without_blanks(paths: object) -> object:
    """Drop empty strings, which would mean the workspace, as `.` does."""
    if not isinstance(paths, list | tuple):
        return paths
    return [path for path in paths if not isinstance(path, str) or path.strip()]


def _once(kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(kinds))


def _some_source(sources: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sources)) or ("memory",)


def _checked_template(value: str) -> str:
    unknown = set(re.findall(r"\{(.*?)\}", value)) - {"stateDir", "agentId", "workspace"}
    if unknown:
        known = "{stateDir}, {agentId} and {workspace}"
        raise ValueError(f"unknown {{{min(unknown)}}}; known are {known}")
    if not value.strip():
        raise ValueError("the path is empty; leave the key out for the default")
    return value.strip()


ENGINES = ("auto", "exact", "mapped", "sqlite-vec")
"""The builtin engines; other packages offer more through entry points."""

DocumentKind = Literal["pdf", "docx", "html", "epub"]
"""File formats that are not plain text but contain text."""

PathTemplate = Annotated[str, AfterValidator(_checked_template)]
NotePath = Annotated[Path, BeforeValidator(_strip)]
Sources = Annotated[tuple[Literal["memory", "sessions"], ...], AfterValidator(_some_source)]
DocumentKinds = Annotated[tuple[DocumentKind, ...], AfterValidator(_once)]
Weight = Annotated[float, AfterValidator(lambda value: min(1.0, max(0.0, value)))]


class ChunkingSettings(SettingsModel):
    """How notes are cut; a token is about four characters."""

    tokens: int = Field(default=400, ge=1, description="Size of a chunk in tokens.")
    overlap: int = Field(
        default=80,
        description="How many tokens a chunk repeats from the previous one; always below `tokens`.",
    )

    @model_validator(mode="after")
    def _hold_overlap_below_size(self) -> Self:
        held = min(max(0, self.overlap), self.tokens - 1)
        return self if held == self.overlap else self.model_copy(update={"overlap": held})


class MmrSettings(SettingsModel):
    """Whether results that say the same make room for others (maximal marginal relevance)."""

    enabled: bool = Field(default=False, description="Prefer results that differ from those above them.")
    lambda_: float = Field(
        default=0.7,
        ge=0.0,
        le=1.0,
        alias="lambda",
        description="1 considers only the score, 0 only the difference.",
    )


class DecaySettings(SettingsModel):
    """Whether old notes count less."""

    enabled: bool = Field(default=False, description="Lower the score of dated notes with age.")
    half_life_days: int = Field(
        default=30, ge=1, le=1_000_000, description="Age in days at which the score has halved."
    )


class HybridSettings(SettingsModel):
    """How keyword and vector search are made one."""

    enabled: bool = Field(
        default=True, description="Use both words and vectors; if off, only vectors, if there are any."
    )
    vector_weight: Weight | None = Field(
        default=None, description="Weight of vector search, 0 to 1; unset: the measured default."
    )
    text_weight: Weight | None = Field(
        default=None, description="Weight of keyword search, 0 to 1; the two weights are scaled to sum to 1."
    )
    candidate_multiplier: int = Field(
        default=4, ge=1, le=20, description="Candidates per leg for each result wanted."
    )
    mmr: MmrSettings = MmrSettings.model_construct()
    temporal_decay: DecaySettings = DecaySettings.model_construct()

    @model_validator(mode="after")
    def _scale_weights(self) -> Self:
        """Scale the weights to sum to 1; a single one leaves the rest to the other, two zeros mean unset."""
        vector, text = self.vector_weight, self.text_weight
        if vector is None and text is None:
            return self
        vector = 1.0 - text if vector is None and text is not None else vector or 0.0
        text = 1.0 - vector if text is None else text
        total = vector + text
        scaled = (vector / total, text / total) if total else (None, None)
        return self.model_copy(update=dict(zip(("vector_weight", "text_weight"), scaled, strict=True)))


class QuerySettings(SettingsModel):
    """What a search returns when the caller does not say."""

    max_results: int = Field(default=6, ge=1, le=1000, description="How many results.")
    min_score: float = Field(
        default=0.0,
        ge=0.0,
        le=1.0,
        description="Lowest score; a hit with every word of the query is never cut.",
    )
    hybrid: HybridSettings = HybridSettings.model_construct()
    rerank: str = Field(
        default="auto",
        min_length=1,
        description="What rescores the best passages: `auto` (late interaction, if the extra `rerank` is "
        "installed), `off`, or the id of a reranker from an installed package.",
    )


class SessionDeltaSettings(SettingsModel):
    """How much a transcript has to grow before it is read again; the first to be reached counts."""

    delta_bytes: int = Field(
        default=100_000, ge=0, description="Growth in bytes; 0 for any, when the other is 0 as well."
    )
    delta_messages: int = Field(
        default=50, ge=0, description="Growth in lines; 0 for any, when the other is 0 as well."
    )


class FollowSettings(SettingsModel):
    """How changed notes are followed, beside `cmem index`."""

    watch: bool = Field(default=True, description="Watch the notes for changes while a memory is open.")
    watch_debounce_ms: int = Field(
        default=1500,
        ge=0,
        le=600_000,
        description="How long the notes must be unchanged before a change is indexed.",
    )
    interval_minutes: int = Field(
        default=0,
        ge=0,
        le=525_600,
        description="How often to look for changes while a memory is open; 0: never.",
    )
    sessions: SessionDeltaSettings = SessionDeltaSettings.model_construct()


class SyncSettings(FollowSettings):
    """When the index looks for changed notes."""

    on_session_start: bool = Field(
        default=True, description="Look for changes at the first query of a conversation."
    )
    on_search: bool = Field(default=True, description="Look for changes before a search.")
    on_search_wait_ms: int = Field(
        default=250,
        ge=0,
        le=60_000,
        description="How long a search waits for that before it answers from the index as it is.",
    )
    recheck_s: float = Field(
        default=5.0,
        ge=0.0,
        description="How long the notes are assumed unchanged after a look.",
    )


class SessionSettings(SettingsModel):
    """Where the transcripts of conversations are."""

    folder: PathTemplate = Field(
        default=DEFAULT_TRANSCRIPTS,
        description="The folder with the `.jsonl` files; placeholders as in `store.path`.",
    )


class CacheSettings(SettingsModel):
    """Vectors of texts that are no longer in any note, kept in case the text comes back."""

    enabled: bool = Field(
        default=True,
        description="Keep vectors that are no longer in use; if off, they are removed after each sync.",
    )
    max_entries: int | None = Field(
        default=None, ge=1, description="The most vectors to keep; those in use are always kept."
    )


class VectorSettings(SettingsModel):
    """How vectors are searched."""

    enabled: bool = Field(default=True, description="Search by meaning, if there is an embedder.")
    engine: str = Field(
        default="auto",
        description="`auto` (exact up to `exact_limit`, mapped above it), `exact`, `mapped` (codes in a "
        "file beside the index; candidates are compared exactly), `sqlite-vec`, or the id of a vector "
        "store from an installed package.",
    )
    exact_limit: int = Field(
        default=20_000, ge=0, description="The most vectors that `auto` compares one by one."
    )

    def engine_for(self, count: int) -> str:
        """Return the configured engine, or the one that `auto` chooses for this many vectors."""
        if self.engine != "auto":
            return self.engine
        return "exact" if count <= self.exact_limit else "mapped"


class KeywordSettings(SettingsModel):
    """Keyword search."""

    enabled: bool = Field(default=True, description="Keep a keyword index and search it.")


class StoreSettings(SettingsModel):
    """Where the index is and what it holds."""

    driver: Literal["sqlite"] = Field(default="sqlite", description="Kind of the index file.")
    path: PathTemplate = Field(
        default=DEFAULT_INDEX,
        description="The index file; `{stateDir}`, `{agentId}`, `{workspace}` (its id) and `~` are "
        "replaced, and a relative path starts at the state folder.",
    )
    vector: VectorSettings = VectorSettings.model_construct()
    fts: KeywordSettings = KeywordSettings.model_construct()


class NoteSettings(SettingsModel):
    """Which notes a memory has, how they are cut, and how it is searched."""

    sources: Sources = Field(default=("memory",), description="What is indexed.")
    scope: Literal["auto", "memory", "folder"] = Field(
        default="auto",
        description="Which files are notes: `memory` (`MEMORY.md` and `memory/`), the whole `folder`, or "
        "`auto`.",
    )
    extra_paths: Annotated[
        tuple[NotePath, ...], BeforeValidator(_without_blanks), AfterValidator(_expanded)
    ] = Field(
        default=(),
        description="More folders and notes: absolute, relative to the workspace, or with `~`.",
    )
    documents: DocumentKinds = Field(
        default=(), description="Kinds of documents to index too; PDF needs the extra `documents`."
    )
    max_files: int = Field(
        default=50_000,
        ge=1,
        description="The most notes that a whole folder may have; with more, it is refused.",
    )
    chunking: ChunkingSettings = ChunkingSettings.model_construct()
    sessions: SessionSettings = SessionSettings.model_construct()
    query: QuerySettings = QuerySettings.model_construct()


class BuiltinSettings(NoteSettings):
    """Settings of the builtin memory."""

    sync: SyncSettings = SyncSettings.model_construct()
    cache: CacheSettings = CacheSettings.model_construct()
    store: StoreSettings = StoreSettings.model_construct()


def filled_in(template: str, *, state_dir: Path, agent_id: str, workspace_id: str) -> Path:
    """Return the path from a template with its placeholders filled in.

    The default path of the index contains the workspace's id, so two workspaces never share one.
    """
    filled = (
        template.replace("{stateDir}", str(state_dir))
        .replace("{agentId}", file_name_of(agent_id))
        .replace("{workspace}", workspace_id)
    )
    return state_dir / Path(filled).expanduser()
