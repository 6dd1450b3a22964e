"""The settings of hooks: what an agent is told, what is written down, and how long that may take."""

from pydantic import Field

from composable_memory.config.base_model import SettingsModel


class FlushSettings(SettingsModel):
    """When an agent is asked to write down what must outlast the compaction of its context."""

    enabled: bool = Field(default=True, description="Ask it.")
    context_window: int = Field(
        default=200_000, ge=1, description="Tokens of the model's context, where the agent does not tell."
    )
    reserve_tokens: int = Field(
        default=20_000, ge=0, description="Tokens that the agent keeps free for its compaction."
    )
    soft_threshold_tokens: int = Field(
        default=4_000, ge=0, description="So many tokens before compaction the agent is asked."
    )
    prompt: str | None = Field(
        default=None, min_length=1, description="What it is asked; `YYYY-MM-DD` becomes the date."
    )


class HooksSettings(SettingsModel):
    """What `cmem hook` does for an agent."""

    deadline_ms: int = Field(
        default=5_000, ge=100, le=600_000, description="How long a hook may take; then the agent goes on."
    )
    recap_tokens: int = Field(
        default=2_000, ge=0, le=2_500, description="Longest recap at the start of a session; 0 gives none."
    )
    recap_days: int = Field(default=2, ge=0, le=31, description="How many of the latest days it has.")
    auto_recall: bool = Field(default=True, description="Look up what is known about each prompt.")
    recall_tokens: int = Field(
        default=800, ge=100, le=2_500, description="Longest text that goes before a prompt."
    )
    recall_results: int = Field(default=5, ge=1, le=50, description="The most passages in it.")
    auto_capture: bool = Field(
        default=False, description="Remember what users say about themselves, by rules, after each turn."
    )
    capture_max_chars: int = Field(
        default=500, ge=50, le=10_000, description="Longer messages are not captured."
    )
    session_memory: bool = Field(
        default=True, description="Write what was said to `memory/` when a session ends."
    )
    session_messages: int = Field(
        default=15, ge=1, le=1_000, description="So many last messages are kept where no model summarises."
    )
    flush: FlushSettings = FlushSettings()
