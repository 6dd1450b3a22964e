"""The settings of learning: how judgements are gathered, and what holds changes of weights in check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from composable_memory.config.base_model import SettingsModel

if TYPE_CHECKING:
    from composable_memory_feedback.advice.proposal import AdviceLimits


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an address such as http://127.0.0.1:8080/v1")
    if parts.username or parts.password or parts.query:
        raise ValueError("a secret does not belong in an address, which logs show; use `api_key`")
    return value.rstrip("/")


class JudgeSettings(SettingsModel):
    """The language model that judges results and proposes weights; without `base_url` there is none."""

    base_url: Annotated[str, AfterValidator(_endpoint)] | None = Field(
        default=None, description="An endpoint that speaks as OpenAI's does, up to and with `/v1`."
    )
    model: str = Field(default="default", min_length=1, description="The model's name at the endpoint.")
    api_key: SecretStr | None = Field(default=None, description="Its key, if it wants one.")
    max_tokens: int = Field(default=2048, ge=64, description="Longest answer, in tokens.")
    timeout_ms: int = Field(default=30_000, ge=100, le=3_600_000, description="How long one answer may take.")


class FeedbackSettings(SettingsModel):
    """What is learnt from how results were used, and how far that may change the weights."""

    enabled: bool = Field(
        default=False,
        description="Learn in the background of an open memory: gather signals, judge, advise.",
    )
    backend: str | None = Field(
        default=None,
        description="The backend that keeps what is learnt, for all who share it; unset, a file here.",
    )
    auto_apply: bool = Field(
        default=False,
        description="Adopt what passes every check; otherwise advice is only logged.",
    )
    advisor: Literal["statistical", "llm", "both"] = Field(
        default="statistical", description="Who proposes weights: statistics, the language model, or both."
    )
    transcripts_dir: Path | None = Field(
        default=None,
        description="A folder of transcripts, to see which results answers quote; unset, none are read.",
    )
    interval_s: int = Field(
        default=900, ge=1, le=604_800, description="How long the background rests between rounds."
    )
    window_days: int = Field(
        default=30, ge=1, le=3650, description="How far back judgements count for an advice."
    )
    retention_days: int = Field(
        default=365, ge=1, le=36_500, description="For how many days judgements are kept."
    )
    evaluations_per_hour: int = Field(
        default=20, ge=0, description="How many queries the language model may judge in an hour."
    )
    depth: int = Field(
        default=10, ge=1, le=1000, description="How many results of a ranking count when it is measured."
    )
    min_samples: int = Field(default=50, ge=10, description="Judged queries that an advice needs.")
    min_intent_samples: int = Field(
        default=40, ge=10, description="Judged queries of one kind that weights for this kind need."
    )
    min_weight: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="The least weight an advice leaves a backend, where the heaviest has 1.",
    )
    max_step: float = Field(
        default=0.2, gt=0, le=1, description="How far one advice may move a weight, up or down."
    )
    golden_tolerance: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="How far nDCG on the golden questions may fall below what was recorded.",
    )
    cool_down_hours: float = Field(
        default=24.0, ge=0, le=8760, description="Least time between two changes that an advisor makes."
    )
    llm: JudgeSettings = JudgeSettings()

    @property
    def limits(self) -> "AdviceLimits":
        """Return what holds advisors in check."""
        from composable_memory_feedback.advice.proposal import (
            AdviceLimits,  # only those who take advice need it
        )

        return AdviceLimits(
            min_weight=self.min_weight,
            max_step=self.max_step,
            min_samples=self.min_samples,
            min_intent_samples=self.min_intent_samples,
            golden_tolerance=self.golden_tolerance,
        )
