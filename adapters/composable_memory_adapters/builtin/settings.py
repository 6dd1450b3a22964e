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
    """Leave out empty strings, which would name the workspace as `.` does."""
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
"""The engines of the builtin memory itself; packages offer others as entry points."""

DocumentKind = Literal["pdf", "docx", "html", "epub"]
"""Kinds of files that are no text but hold some."""

PathTemplate = Annotated[str, AfterValidator(_checked_template)]
NotePath = Annotated[Path, BeforeValidator(_strip)]
Sources = Annotated[tuple[Literal["memory", "sessions"], ...], AfterValidator(_some_source)]
DocumentKinds = Annotated[tuple[DocumentKind, ...], AfterValidator(_once)]
Weight = Annotated[float, AfterValidator(lambda value: min(1.0, max(0.0, value)))]


class ChunkingSettings(SettingsModel):
    """How notes are cut; a token is about four characters."""

    tokens: int = Field(default=400, ge=1, description="Size of a chunk in tokens.")
    overlap: int = Field(
        default=80, description="Tokens that a chunk repeats of the one before; held below `tokens`."
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
        description="1 looks at the score alone, 0 at the difference alone.",
    )


class DecaySettings(SettingsModel):
    """Whether old notes count less."""

    enabled: bool = Field(default=False, description="Let the score of dated notes fall with their age.")
    half_life_days: int = Field(
        default=30, ge=1, le=1_000_000, description="Age in days at which the score has fallen to half."
    )


class HybridSettings(SettingsModel):
    """How keyword and vector search are made one."""

    enabled: bool = Field(
        default=True, description="Use both; without, vectors alone where there are vectors."
    )
    vector_weight: Weight | None = Field(
        default=None, description="Weight of vector search, 0 to 1; unset, the measured default."
    )
    text_weight: Weight | None = Field(
        default=None, description="Weight of keyword search, 0 to 1; the two weights are scaled to sum to 1."
    )
    candidate_multiplier: int = Field(
        default=4, ge=1, le=20, description="Candidates per leg for each wanted result."
    )
    mmr: MmrSettings = MmrSettings.model_construct()
    temporal_decay: DecaySettings = DecaySettings.model_construct()

    @model_validator(mode="after")
    def _scale_weights(self) -> Self:
        """Scale the weights to sum to 1; one alone leaves the rest to the other, two zeros are no choice."""
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
        description="Least score; a hit that holds every word of the query is never cut.",
    )
    hybrid: HybridSettings = HybridSettings.model_construct()
    rerank: str = Field(
        default="auto",
        min_length=1,
        description="Who judges the best passages once more: `auto` (late interaction, where the extra "
        "`rerank` is installed), `off`, or the id of a reranker that an installed package offers.",
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

    watch: bool = Field(
        default=True, description="Follow the notes as they change, while a memory stays open."
    )
    watch_debounce_ms: int = Field(
        default=1500,
        ge=0,
        le=600_000,
        description="How long the notes have to be quiet before a change is indexed.",
    )
    interval_minutes: int = Field(
        default=0,
        ge=0,
        le=525_600,
        description="Look for changes this often while a memory stays open; 0 for never.",
    )
    sessions: SessionDeltaSettings = SessionDeltaSettings.model_construct()


class SyncSettings(FollowSettings):
    """When the index looks for changed notes."""

    on_session_start: bool = Field(
        default=True, description="Look for changes when a conversation asks for the first time."
    )
    on_search: bool = Field(default=True, description="Look for changes when a search comes.")
    on_search_wait_ms: int = Field(
        default=250,
        ge=0,
        le=60_000,
        description="How long a search waits for that before it answers from what is there.",
    )
    recheck_s: float = Field(
        default=5.0,
        ge=0.0,
        description="How long the notes are taken as unchanged after they were looked at.",
    )


class SessionSettings(SettingsModel):
    """Where the transcripts of conversations are."""

    folder: PathTemplate = Field(
        default=DEFAULT_TRANSCRIPTS,
        description="The folder of the `.jsonl` files; filled in like `store.path`.",
    )


class CacheSettings(SettingsModel):
    """Vectors of texts that are no longer in any note, kept in case the text comes back."""

    enabled: bool = Field(default=True, description="Keep them; without, they are removed after each sync.")
    max_entries: int | None = Field(
        default=None, ge=1, description="Keep at most this many vectors; those in use are kept in any case."
    )


class VectorSettings(SettingsModel):
    """How vectors are searched."""

    enabled: bool = Field(default=True, description="Search by meaning, where there is an embedder.")
    engine: str = Field(
        default="auto",
        description="`auto` (exact up to `exactLimit`, above it mapped), `exact`, `mapped` (codes in a file "
        "beside the index; what they find is compared exactly), `sqlite-vec`, or the id of a store of "
        "vectors that an installed package offers.",
    )
    exact_limit: int = Field(
        default=20_000, ge=0, description="Most vectors that `auto` compares one by one."
    )

    def engine_for(self, count: int) -> str:
        """Return the engine that is configured, or what `auto` chooses for so many vectors."""
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
        description="The index file; `{stateDir}`, `{agentId}`, `{workspace}` (its id) and `~`"
        " are filled in, a relative path begins at the state folder.",
    )
    vector: VectorSettings = VectorSettings.model_construct()
    fts: KeywordSettings = KeywordSettings.model_construct()


class NoteSettings(SettingsModel):
    """Which notes a memory has, how they are cut, and how it is searched."""

    sources: Sources = Field(default=("memory",), description="What is indexed.")
    scope: Literal["auto", "memory", "folder"] = Field(
        default="auto",
        description="The notes of the workspace: `memory`, that is `MEMORY.md` and `memory/`, the whole"
        " `folder`, or `auto`.",
    )
    extra_paths: Annotated[
        tuple[NotePath, ...], BeforeValidator(_without_blanks), AfterValidator(_expanded)
    ] = Field(
        default=(),
        description="Further folders and notes, absolute, relative to the workspace, or with `~`.",
    )
    documents: DocumentKinds = Field(
        default=(), description="Kinds of documents that are notes as well; PDF needs the extra `documents`."
    )
    max_files: int = Field(
        default=50_000, ge=1, description="Most notes that a whole folder may have before it is refused."
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
    """Return the path that `template` names.

    The default of the index holds the id of the workspace, so that two workspaces never share one.
    """
    filled = (
        template.replace("{stateDir}", str(state_dir))
        .replace("{agentId}", file_name_of(agent_id))
        .replace("{workspace}", workspace_id)
    )
    return state_dir / Path(filled).expanduser()
