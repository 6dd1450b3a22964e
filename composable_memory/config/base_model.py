"""What every part of the settings keeps: how keys are written, and that unknown ones are errors."""

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class SettingsModel(BaseModel):
    """A part of the settings. Keys may be written `like_this` or `likeThis`; unknown keys are errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,  # most parts are only ever validated within the whole
        hide_input_in_errors=True,  # it may be a key, and what causes an error of ours is shown as well
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: object) -> object:
        """Take a section whose keys are all commented out, which YAML reads as null, for an empty one."""
        return {} if data is None else data
