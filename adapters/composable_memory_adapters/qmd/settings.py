"""Settings of the QMD memory: its command, its folders, search and maintenance."""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, field_validator

from composable_memory.config.settings import SettingsModel
from composable_memory.session_keys import SessionPlace, place_of, without_agent

SearchMode = Literal["search", "vsearch", "query"]
"""How QMD searches: by keywords, by vectors, or by both with a language model that expands and reranks."""

DEFAULT_PATTERN = "**/*.md"
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*(ms|[smhd])", re.IGNORECASE)


def seconds(value: object) -> object:
    """Return the seconds of a duration: `5m`, `1h30m`, `500ms`; a bare number counts minutes.

    A value that is neither text nor number is returned unchanged, and the type rejects it.

    Raises:
        ValueError: it is not a duration.
    """
    if not isinstance(value, str | int | float):
        return value
    text = str(value).strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text) * 60.0
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise ValueError("expected a duration such as 30s, 5m or 1h30m")
    return sum(float(number) * _UNITS_S[unit.lower()] for number, unit in parts)


def _written(duration: float) -> str:
    """Return seconds in a form that is parsed back as seconds."""
    unit = next((unit for unit in ("h", "m") if duration and duration % _UNITS_S[unit] == 0.0), "s")
    return f"{duration / _UNITS_S[unit]:g}{unit}"


Duration = Annotated[float, BeforeValidator(seconds), PlainSerializer(_written), Field(ge=0)]
"""Seconds; written as `30s`, `5m`, `1h30m`, or as a bare number of minutes."""


class CollectionSettings(SettingsModel):
    """A folder of Markdown files that QMD indexes beside the memory files."""

    path: str = Field(description="The folder: absolute, under `~`, or relative to the workspace.")
    name: str | None = Field(
        default=None, min_length=1, description="Its name in paths; unset: the folder's own name."
    )
    pattern: str = Field(
        default=DEFAULT_PATTERN,
        min_length=1,
        description="Which files: a glob, or several separated by commas.",
    )


class SessionExportSettings(SettingsModel):
    """Transcripts of sessions, written as Markdown files that QMD can index."""

    enabled: bool = Field(default=False, description="Export them.")
    dir: Path | None = Field(
        default=None,
        description="Where the transcripts are; unset: `sessions` in the agent's state folder.",
    )
    export_dir: Path | None = Field(
        default=None, description="Where the files go; unset: a folder of this memory."
    )
    retention_days: float | None = Field(
        default=None, gt=0, description="Older transcripts are not exported, and their files are removed."
    )


class UpdateSettings(SettingsModel):
    """When QMD's index follows the files."""

    # The defaults are seconds; validated like user input, they would count as minutes.
    model_config = ConfigDict(validate_default=False)

    interval: Duration = Field(default=300.0, description="Pause between scheduled updates; 0: none.")
    debounce_ms: int = Field(
        default=15_000, ge=0, description="A scheduled update is skipped this soon after another."
    )
    on_boot: bool = Field(default=True, description="Update when the memory opens.")
    wait_for_boot_sync: bool = Field(default=False, description="Open only after that update has finished.")
    embed_interval: Duration = Field(
        default=3600.0, description="Pause between embeddings, if the search mode uses vectors."
    )
    command_timeout_ms: int = Field(default=30_000, ge=100, description="Time limit for a short QMD command.")
    update_timeout_ms: int = Field(default=120_000, ge=100, description="Time limit for one update.")
    embed_timeout_ms: int = Field(
        default=1_800_000,
        ge=100,
        description="Time limit for one embedding run; what is embedded by then is kept.",
    )


class LimitSettings(SettingsModel):
    """How much a search may return, and how long it may take."""

    max_results: int | None = Field(
        default=None, ge=1, le=1000, description="The most results; unset: as many as are asked for."
    )
    max_snippet_chars: int = Field(default=700, ge=40, le=700, description="Longest snippet.")
    max_injected_chars: int | None = Field(
        default=None, ge=40, description="Budget for all snippets of an answer together; unset: no limit."
    )
    timeout_ms: int = Field(default=4000, ge=50, description="Time limit for one search.")


class DaemonSettings(SettingsModel):
    """The QMD server on this machine, which answers in milliseconds; a process of its own takes longer."""

    enabled: bool = Field(
        default=True, description="Start QMD's server while a memory stays open, and use it."
    )
    start_timeout_ms: int = Field(default=15_000, ge=100, description="How long starting it may take.")


class ModelSettings(SettingsModel):
    """QMD's models: an `hf:` address or the path of a GGUF file each; unset, QMD's own choice."""

    embed: str | None = Field(default=None, min_length=1, description="The embedding model.")
    generate: str | None = Field(default=None, min_length=1, description="Widens questions.")
    rerank: str | None = Field(default=None, min_length=1, description="The reranking model.")


class McporterSettings(SettingsModel):
    """Asking a QMD server that mcporter knows, instead of one of our own."""

    enabled: bool = Field(default=False, description="Query QMD through mcporter.")
    command: str = Field(default="mcporter", min_length=1, description="The command, with arguments.")
    server_name: str = Field(default="qmd", min_length=1, description="The server's name in mcporter.")
    start_daemon: bool = Field(
        default=True, description="Start mcporter's daemon, so that models stay loaded."
    )


class ScopeMatch(SettingsModel):
    """What a session must be for a rule to apply; what is not given is not looked at."""

    channel: str | None = Field(default=None, description="Such as `telegram`.")
    chat_type: Literal["direct", "group", "channel"] | None = Field(
        default=None, description="The kind of chat."
    )
    key_prefix: str | None = Field(
        default=None, description="How the session key begins, after `agent:<id>:` unless you include that."
    )
    raw_key_prefix: str | None = Field(default=None, description="How the whole key begins.")


class ScopeRule(SettingsModel):
    """What happens in the sessions that a rule matches."""

    action: Literal["allow", "deny"] = Field(description="Whether they may search.")
    match: ScopeMatch = ScopeMatch()


class ScopeSettings(SettingsModel):
    """Which sessions may search; the first rule that matches decides. Without a session all may."""

    default: Literal["allow", "deny"] = Field(default="allow", description="If no rule matches.")
    rules: tuple[ScopeRule, ...] = ()


DIRECT_ONLY = ScopeSettings(
    default="deny", rules=(ScopeRule(action="allow", match=ScopeMatch(chat_type="direct")),)
)
"""Groups and channels, where others would read private notes, do not search."""


class QmdSettings(SettingsModel):
    """Everything under `memory.qmd` beyond what all backends share."""

    command: str = Field(
        default="qmd", min_length=1, description="QMD's command: a name, a path, or either with arguments."
    )
    search_mode: SearchMode = Field(
        default="search", description="By words (`search`), by similarity (`vsearch`), or both (`query`)."
    )
    rerank: bool = Field(
        default=True,
        description="In the mode `query`, let a language model expand the query and rank; slow without a "
        "GPU.",
    )
    include_default_memory: bool = Field(
        default=True, description="Index MEMORY.md, memory.md and memory/ of the workspace."
    )
    paths: tuple[CollectionSettings, ...] = ()
    sessions: SessionExportSettings = SessionExportSettings()
    update: UpdateSettings = UpdateSettings()
    limits: LimitSettings = LimitSettings()
    scope: ScopeSettings = DIRECT_ONLY
    daemon: DaemonSettings = DaemonSettings()
    models: ModelSettings = ModelSettings()
    mcporter: McporterSettings = McporterSettings()

    @field_validator("paths", mode="before")
    @classmethod
    def _without_blank_paths(cls, value: object) -> object:
        """Accept a bare string as a path, and drop blank entries."""
        if not isinstance(value, list | tuple):
            return () if value is None else value
        entries = [{"path": one} if isinstance(one, str) else one for one in value]
        return tuple(one for one in entries if not isinstance(one, dict) or str(one.get("path", "")).strip())

    @property
    def uses_vectors(self) -> bool:
        """Return whether the search mode needs embeddings."""
        return self.search_mode != "search"


_AGENT = "agent:"


def denial_of(scope: ScopeSettings, session_key: str | None) -> str | None:
    """Return why a session may not search, and how to change that; None if it may.

    The first matching rule decides, or else the default. Callers without a session, or with a blank key, are
    at the command line and may search.
    """
    if session_key is None or not session_key.strip():
        return None
    place = place_of(session_key)
    for number, rule in enumerate(scope.rules, start=1):
        if _matches(rule.match, session_key, place):
            why = f"rule {number} of memory.qmd.scope denies it"
            return None if rule.action == "allow" else _denial(place, why, "a rule before that one")
    why = "no rule of memory.qmd.scope matches it, and its default is deny"
    return None if scope.default == "allow" else _denial(place, why, "a rule")


def _denial(place: SessionPlace, why: str, where: str) -> str:
    fix = "a rule that allows its `keyPrefix` admits it"
    if place.chat_type is not None:
        rule = f"{{action: allow, match: {{chatType: {place.chat_type}}}}}"
        fix = f"{where} such as `{rule}` admits it, if everyone who reads there may read these notes"
    return f"{_described(place)} may not search here: {why}; {fix}"


def _matches(match: ScopeMatch, session_key: str, place: SessionPlace) -> bool:
    """Return whether a session meets all conditions of a rule; a blank text is not a condition."""
    whole = session_key.strip().lower()
    prefix = _plain(match.key_prefix)
    compared = whole if prefix.startswith(_AGENT) else without_agent(session_key)
    return (
        _plain(match.channel) in ("", place.channel)
        and match.chat_type in (None, place.chat_type)
        and compared.startswith(prefix)
        and whole.startswith(_plain(match.raw_key_prefix))
    )


def _plain(text: str | None) -> str:
    return (text or "").strip().lower()


def _described(place: SessionPlace) -> str:
    kind = {None: "a session of unknown kind", "direct": "a session with one person"}.get(
        place.chat_type, f"a session with a {place.chat_type}"
    )
    return kind if place.channel is None else f"{kind} on {place.channel}"
