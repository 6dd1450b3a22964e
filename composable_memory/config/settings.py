"""The settings model: every key with its default, range and meaning.

Nothing is read here: see `layers.py` for where values come from, `validation.py` for how errors are
explained.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from composable_memory.types import DEFAULT_MAX_RESULTS

if TYPE_CHECKING:
    from composable_memory_feedback.advice.proposal import AdviceLimits


DEFAULT_BACKEND = "builtin"
"""The backend of a memory without any settings, and the fallback if another one is primary."""


class SettingsModel(BaseModel):
    """A part of the settings. Keys may be written `like_this` or `likeThis`; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,  # most models are only ever validated as part of the whole
        hide_input_in_errors=True,  # the input may be a key, and the causes of our errors are shown too
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: object) -> object:
        """Treat a section whose keys are all commented out, which YAML reads as null, as empty."""
        return {} if data is None else data


class FlushSettings(SettingsModel):
    """When to ask an agent to write down what must survive the compaction of its context."""

    enabled: bool = Field(default=True, description="Ask it.")
    context_window: int = Field(
        default=200_000, ge=1, description="Size of the model's context in tokens, if the agent does not say."
    )
    reserve_tokens: int = Field(
        default=20_000, ge=0, description="Tokens that the agent keeps free for its compaction."
    )
    soft_threshold_tokens: int = Field(
        default=4_000, ge=0, description="How many tokens before compaction the agent is asked to save."
    )
    prompt: str | None = Field(
        default=None, min_length=1, description="What it is asked; `YYYY-MM-DD` is replaced by the date."
    )


class HooksSettings(SettingsModel):
    """What `cmem hook` does for an agent."""

    deadline_ms: int = Field(
        default=5_000,
        ge=100,
        le=600_000,
        description="How long a hook may take before the agent continues without it.",
    )
    recap_tokens: int = Field(
        default=2_000, ge=0, le=2_500, description="Longest recap at the start of a session; 0 turns it off."
    )
    recap_days: int = Field(default=2, ge=0, le=31, description="How many recent days it covers.")
    auto_recall: bool = Field(default=True, description="Look up what is known about each prompt.")
    recall_tokens: int = Field(
        default=800, ge=100, le=2_500, description="Longest text added before a prompt."
    )
    recall_results: int = Field(default=5, ge=1, le=50, description="The most passages in it.")
    auto_capture: bool = Field(
        default=False, description="After each turn, remember by rules what users say about themselves."
    )
    capture_max_chars: int = Field(
        default=500, ge=50, le=10_000, description="Longer messages are not captured."
    )
    session_memory: bool = Field(
        default=True, description="Write what was said to `memory/` when a session ends."
    )
    session_messages: int = Field(
        default=15,
        ge=1,
        le=1_000,
        description="How many of the last messages are kept if no model summarises them.",
    )
    flush: FlushSettings = FlushSettings.model_construct()


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as http://127.0.0.1:8080/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError("do not put a secret in an address, which logs show; use `api_key`")
    return value.rstrip("/")


class JudgeSettings(SettingsModel):
    """The language model that judges results and proposes weights; none without `base_url`."""

    base_url: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        default=None, description="An OpenAI-compatible endpoint, up to and including `/v1`."
    )
    model: str = Field(default="default", min_length=1, description="The model's name at the endpoint.")
    api_key: SecretStr | None = Field(default=None, description="Its API key, if it needs one.")
    max_tokens: int = Field(default=2048, ge=64, description="Longest answer, in tokens.")
    timeout_ms: int = Field(default=30_000, ge=100, le=3_600_000, description="How long one answer may take.")


def _refuse_both(advisor: object) -> object:
    if advisor == "both":
        raise ValueError("asking both advisors was removed; choose statistical, or llm")
    return advisor


class FeedbackSettings(SettingsModel):
    """What is learnt from how results are used, and how far that may change the weights."""

    enabled: bool = Field(
        default=False,
        description="Learn in the background while a memory is open: gather signals, judge, advise.",
    )
    backend: str | None = Field(
        default=None,
        description="The backend that stores what is learnt, for everyone who shares it; unset: a local "
        "file.",
    )
    auto_apply: bool = Field(
        default=False,
        description="Adopt advice that passes every check; otherwise it is only logged.",
    )
    advisor: Annotated[Literal["statistical", "llm"], BeforeValidator(_refuse_both)] = Field(
        default="statistical", description="Who proposes weights: statistics, or the language model."
    )
    transcripts_dir: Path | None = Field(
        default=None,
        description="A folder of transcripts, read to see which results the answers quote; unset: none.",
    )
    interval_s: int = Field(
        default=900, ge=1, le=604_800, description="Pause between rounds of learning in the background."
    )
    window_days: int = Field(
        default=30, ge=1, le=3650, description="How old a judgement may be to count for advice."
    )
    retention_days: int = Field(
        default=365, ge=1, le=36_500, description="How many days judgements are kept."
    )
    evaluations_per_hour: int = Field(
        default=20, ge=0, description="How many queries the language model may judge per hour."
    )
    depth: int = Field(
        default=10, ge=1, le=1000, description="How many results of a ranking count when it is measured."
    )
    min_samples: int = Field(default=50, ge=10, description="How many judged queries advice needs.")
    min_intent_samples: int = Field(
        default=40,
        ge=10,
        description="How many judged queries of one kind are needed for weights of that kind.",
    )
    min_weight: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="The lowest weight that advice may give a backend, relative to the highest, 1.",
    )
    max_step: float = Field(
        default=0.2,
        gt=0,
        le=1,
        description="The most that one piece of advice may move a weight, up or down.",
    )
    golden_tolerance: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="How far nDCG on the golden questions may fall below the recorded value.",
    )
    cool_down_hours: float = Field(
        default=24.0, ge=0, le=8760, description="Least time between two changes made by an advisor."
    )
    llm: JudgeSettings = JudgeSettings.model_construct()

    @property
    def limits(self) -> "AdviceLimits":
        """Return the limits for advisors."""
        from composable_memory_feedback.advice.proposal import (
            AdviceLimits,  # imported here: only advisors need it
        )

        return AdviceLimits(
            min_weight=self.min_weight,
            max_step=self.max_step,
            min_samples=self.min_samples,
            min_intent_samples=self.min_intent_samples,
            golden_tolerance=self.golden_tolerance,
        )


def _citation_mode(value: object) -> object:
    match value:
        case "always" | True:
            return "on"
        case "never" | False:
            return "off"
    return value


PluginId = Annotated[str, Field(pattern="^[a-z][a-z0-9_-]{0,63}$")]
"""The id of a backend or an embedding provider."""

CitationMode = Annotated[Literal["auto", "on", "off"], BeforeValidator(_citation_mode)]
"""When to add citations to results; `always` and `never` are aliases of on and off."""


class QuerySettings(SettingsModel):
    """How several memories are asked and how their answers are merged."""

    max_results: int = Field(
        default=DEFAULT_MAX_RESULTS, ge=1, le=1000, description="The most results in an answer."
    )
    min_score: float = Field(
        default=0.0, ge=0, le=1, description="Lowest calibrated score; an exact keyword hit is never cut."
    )
    show_weak: bool = Field(
        default=False, description="Show the nearest results even if none matches the question well."
    )
    fusion: Literal["weighted", "rrf", "convex"] = Field(
        default="weighted", description="How the results of several backends are merged into one list."
    )
    dedup: Literal["exact", "overlap", "near"] = Field(
        default="near",
        description="Which candidates count as the same passage; each level includes the ones before it.",
    )
    depth: int = Field(
        default=24, ge=1, le=1000, description="The fewest candidates that each backend is asked for."
    )
    timeout_ms: int = Field(default=10_000, ge=1, description="Deadline for a backend without its own.")
    rrf_k: int = Field(default=60, ge=1, description="k of reciprocal rank fusion, 1 / (k + rank).")


class EmbeddingSettings(SettingsModel):
    """The embedding provider."""

    provider: PluginId = Field(
        default="auto",
        description="`auto` uses a provider on this machine, `auto-remote` may use a remote one, `none` "
        "searches by keywords only.",
    )
    model: str | None = Field(default=None, min_length=1, description="Unset: the provider's default.")
    fallback: PluginId = Field(
        default="none", description="The provider to use if `provider` cannot be used."
    )
    providers: dict[PluginId, dict[str, object]] = Field(
        default={}, description="The settings of each provider, by its id."
    )


class OpsLogSettings(SettingsModel):
    """The log of questions and answers."""

    enabled: bool = Field(default=True, description="Write it.")
    retention_days: int = Field(default=30, ge=1, description="How many days it is kept.")
    max_size_mb: int = Field(
        default=2000,
        ge=1,
        description="How much space it may take; the oldest lines are deleted to make room.",
    )
    otel: bool = Field(default=False, description="Send spans and metrics, without texts, by OpenTelemetry.")


class BackendSection(SettingsModel):
    """The section of one backend: the keys common to all backends, and its own keys as `options`."""

    model_config = ConfigDict(extra="allow")

    enabled: bool = Field(default=False, description="Whether the backend is queried.")
    weight: float = Field(default=1.0, ge=0, description="The factor for its calibrated scores.")
    timeout_ms: int | None = Field(
        default=None, ge=1, description="Its deadline; unset: `memory.query.timeout_ms`."
    )
    calibration: Literal["auto", "identity", "max", "min-max", "rank"] = Field(
        default="auto", description="How its scores are mapped to the common scale from 0 to 1."
    )
    condition: tuple[Literal["entities", "topics", "times"], ...] | None = Field(
        default=None,
        description="Query it only about questions with one of these; empty: always; unset: the backend's "
        "own default.",
    )

    @property
    def options(self) -> Mapping[str, object]:
        """Return the backend's own keys, as written; its own model validates them."""
        return self.model_extra or {}


class ListedSection(BackendSection):
    """A section under `backends`: a backend with an id chosen by the user, or one that is not installed."""

    kind: PluginId | None = Field(default=None, description="Which installed backend it is.")


class BuiltinSection(BackendSection):
    """The section of the builtin index, the only backend that is on by default."""

    enabled: bool = Field(default=True, description="Whether the backend is queried.")


class MemorySettings(SettingsModel):
    """Everything under the root key `memory`.

    The section of an installed backend is under its id, that of any other under `backends`. `backend` names
    the primary, which is enabled unless its section says otherwise. Beside another primary, the builtin index
    is asked only if its own section says `enabled: true`. If the section does not say, the index is the
    fallback unless `fallback` is `none`; if it says `enabled: false`, only if `fallback` is explicitly
    `builtin`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, BackendSection] = Field(init=False)

    backend: PluginId = Field(
        default=DEFAULT_BACKEND, description="The primary backend: it is always enabled, and reads files."
    )
    fallback: PluginId = Field(
        default=DEFAULT_BACKEND,
        description="The backend that answers when `backend` cannot, unless it is queried anyway.",
    )
    citations: CitationMode = Field(default="auto", description="Whether results carry a citation.")
    agent_id: str = Field(
        default="main",
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="The agent whose memory it is; part of the index file's name.",
    )
    id: str | None = Field(
        default=None,
        pattern="^[a-z0-9]{1,20}$",
        description="A fixed id for the workspace, wherever its folder is; unset: the folder identifies it.",
    )
    query: QuerySettings = QuerySettings.model_construct()
    embedding: EmbeddingSettings = EmbeddingSettings.model_construct()
    ops_log: OpsLogSettings = OpsLogSettings.model_construct()
    feedback: FeedbackSettings = FeedbackSettings.model_construct()
    hooks: HooksSettings = HooksSettings.model_construct()
    builtin: BuiltinSection = BuiltinSection.model_construct()
    backends: dict[PluginId, ListedSection] = Field(default={})

    @property
    def sections(self) -> dict[str, BackendSection]:
        """Return the section of every known backend by id, including disabled ones."""
        return {DEFAULT_BACKEND: self.builtin, **self.__pydantic_extra__, **self.backends}

    def section(self, backend_id: str) -> BackendSection:
        """Return the section of a backend, or an empty one if it has none."""
        return self.sections.get(backend_id) or BackendSection()

    def section_key(self, backend_id: str) -> str:
        """Return the dotted key of a backend's section."""
        return f"memory.backends.{backend_id}" if backend_id in self.backends else f"memory.{backend_id}"

    @property
    def kinds(self) -> dict[str, str]:
        """Return the kind of each section that has one, by the section's id."""
        return {id_: section.kind for id_, section in self.backends.items() if section.kind}

    @property
    def primary(self) -> str | None:
        """Return the id of the backend that reads files: `backend`, or else the first enabled one."""
        ids = (self.backend, *self.sections)
        return next((backend_id for backend_id in ids if self.section(backend_id).enabled), None)

    @property
    def fallback_id(self) -> str | None:
        """Return the id of the backend that stands in for the primary, if any."""
        waits = self.primary == self.backend and not self.section(self.fallback).enabled
        return self.fallback if waits and self.fallback != "none" else None

    @model_validator(mode="before")
    @classmethod
    def _assign_roles(cls, data: object) -> object:
        """Enable the primary, and make the builtin index its fallback, unless the settings say otherwise."""
        if not isinstance(data, Mapping):
            return data
        primary, others = data.get("backend"), data.get("backends") or {}
        if not isinstance(primary, str) or not isinstance(others, Mapping):
            return data
        if primary in data or primary == DEFAULT_BACKEND:
            section = _enabled_by_default(data.get(primary))
            data = {**data, primary: section}
        else:
            section = _enabled_by_default(others.get(primary))
            data = {**data, "backends": {**others, primary: section}}
        return data if primary == DEFAULT_BACKEND or not _stated_enabled(section) else _with_fallback(data)

    @field_validator("backends", mode="before")
    @classmethod
    def _empty_backends(cls, value: object) -> object:
        return {} if value is None else value


class Settings(SettingsModel):
    """All settings."""

    memory: MemorySettings = MemorySettings.model_construct()


def _enabled_by_default(section: object, *, enabled: bool = True) -> object:
    if section is None:
        return {"enabled": enabled}
    return {"enabled": enabled, **section} if isinstance(section, Mapping) else section


def _stated_enabled(section: object) -> bool | None:
    """Return a section's value of `enabled`; None if it has none, or cannot be parsed."""
    try:
        read = BackendSection.model_validate(section)
    except ValidationError:  # validating the whole will report it
        return None
    return read.enabled if "enabled" in read.model_fields_set else None


def _with_fallback(data: Mapping[str, object]) -> Mapping[str, object]:
    """Decide whether the builtin index, beside another primary, is asked too, is the fallback, or is off."""
    section = data.get(DEFAULT_BACKEND)
    match _stated_enabled(section):
        case None:
            unasked = _enabled_by_default(section, enabled=False)
            return {"fallback": DEFAULT_BACKEND, **data, DEFAULT_BACKEND: unasked}
        case False:
            return {"fallback": "none", **data}
    return data


def is_taken(name: str) -> bool:
    """Return whether a key under `memory` belongs to the core, so that no backend may have that id."""
    return name in MemorySettings.model_fields and name != DEFAULT_BACKEND
