"""What a run of the ingest pipeline knows while it goes from stage to stage."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from time import perf_counter

from composable_memory.content import (
    IngestWarning,
    MemoryContentObject,
    StageResult,
    TemporalPolicyDecision,
)
from composable_memory.ingest.attempts import PipelineError
from composable_memory.ingest.graphing import GraphPart
from composable_memory.ingest.values import IngestRequest, Stage
from composable_memory_ops_logs import Status

__all__ = ["Run"]


@dataclass(slots=True, kw_only=True)
class Run:
    """What a run knows so far: the contents as the stages leave them, and how the stages went."""

    id: str
    request: IngestRequest
    trace_id: str
    now: datetime
    began: float = field(default_factory=perf_counter)
    contents: Sequence[MemoryContentObject] = ()
    decisions: dict[str, TemporalPolicyDecision] = field(default_factory=dict)
    parts: list[GraphPart] = field(default_factory=list)
    vectors: list[Sequence[float]] = field(default_factory=list)
    nodes: int = 0
    edges: int = 0
    indexed: int = 0
    results: list[StageResult] = field(default_factory=list)
    warnings: list[IngestWarning] = field(default_factory=list)
    errors: dict[Stage, PipelineError] = field(default_factory=dict)
    lost: set[Stage] = field(default_factory=set)

    @property
    def status(self) -> Status:
        """Say whether all went well, and if not, whether anything was stored."""
        if not self.errors:
            return "success"
        return "partial" if self.indexed or self.nodes else "failure"

    @property
    def batch_id(self) -> str:
        """Return an id that the same contents always have together."""
        ids = "\0".join(content.id for content in self.contents)
        return sha256(ids.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def skip(self, code: str, message: str) -> str:
        """Warn that a part is missing; what has nothing to do needs no part."""
        if self.contents:
            self.warnings.append(IngestWarning(code=code, message=message))
        return message

    def warn(self, code: str, message: str, content: MemoryContentObject) -> None:
        """Say something about one content."""
        self.warnings.append(IngestWarning(code=code, message=message, details={"id": content.id}))
