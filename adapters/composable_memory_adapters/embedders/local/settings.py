"""Settings of the local provider: the model, where models are kept, and how much of the machine to use."""

import re
from pathlib import Path

from pydantic import Field, field_validator

from composable_memory.config.settings import SettingsModel

PROVIDER = "local"
HUB_PREFIX = "hf:"
DEFAULT_MODEL = "hf:ggml-org/embeddinggemma-300m-qat-q8_0-GGUF/embeddinggemma-300m-qat-Q8_0.gguf"
INSTALL = (
    'run `pip install "composable-memory[local]"`, which compiles llama.cpp: it takes a C++ compiler and '
    "some minutes, or one of the ready-made wheels that llama-cpp-python's own pages name"
)


class LocalSettings(SettingsModel):
    """Settings of a GGUF model that runs in this process."""

    model: str | None = Field(
        default=None,
        min_length=1,
        description="`hf:org/repository/file.gguf`, `hf:org/repository`, or the path of a GGUF file; "
        "unset: `model_path`, or else embeddinggemma-300m.",
    )
    model_path: str | None = Field(
        default=None,
        min_length=1,
        description="The same. If the file exists, `auto` chooses this provider. A relative path starts at "
        "`model_cache_dir`.",
    )
    model_cache_dir: Path | None = Field(
        default=None, description="Where downloaded models are kept; unset: `models` in the state folder."
    )
    hub_url: str | None = Field(
        default=None, pattern="^https?://", description="The hub to download from; unset: the official one."
    )
    dimensions: int | None = Field(
        default=None,
        ge=1,
        le=65536,
        description="Length of the vectors of a hub model that is not downloaded yet; otherwise read from "
        "its file.",
    )
    n_ctx: int | None = Field(
        default=None,
        ge=16,
        le=131_072,
        description="The most tokens of a text, the rest is cut off; unset: what suits the model, at most "
        "2048.",
    )
    threads: int | None = Field(
        default=None, ge=1, le=512, description="Threads; unset: half of the processors, at most 4."
    )
    query_prefix: str | None = Field(
        default=None, description="The prefix for questions; unset: the one the model was trained with."
    )
    document_prefix: str | None = Field(
        default=None, description="The prefix for passages; unset: the one the model was trained with."
    )

    @field_validator("model", "model_path")
    @classmethod
    def _check_reference(cls, value: str | None) -> str | None:
        if value is None:
            return None
        value = value.strip()
        if value.startswith(HUB_PREFIX):
            parts = value.removeprefix(HUB_PREFIX).split("/")
            if len(parts) < 2 or not all(re.fullmatch(r"[\w.-]*\w[\w.-]*", part) for part in parts):
                raise ValueError(
                    "expected hf:organisation/repository or hf:organisation/repository/file.gguf"
                )
            if len(parts) > 2 and not value.endswith(".gguf"):
                raise ValueError("the file has to be a .gguf file")
        elif "://" in value:
            raise ValueError("expected a path or hf:organisation/repository; download other files yourself")
        return value

    @property
    def reference(self) -> str | None:
        """Return the reference to the model; None if none is set."""
        return self.model or self.model_path

    def folder(self, state_dir: Path) -> Path:
        """Return the folder in which models are kept."""
        return (self.model_cache_dir or state_dir / "models").expanduser()

    def path_of(self, state_dir: Path) -> Path | None:
        """Return the path of the model's file; None for a hub model or if none is set."""
        reference = self.reference
        if reference is None or reference.startswith(HUB_PREFIX):
            return None
        return self.folder(state_dir) / Path(reference).expanduser()
