"""The JSON document of `cmem ingest`."""

from collections import Counter
from collections.abc import Mapping, Sequence

from composable_memory.content import IngestReport
from composable_memory.tools import Document

__all__ = ["IngestDocument", "IngestedDocument", "PassedOverDocument", "WarningDocument"]


class IngestedDocument(Document):
    """What became of the contents in one backend; each is in exactly one of the first four counts."""

    stored: int = 0
    known: int = 0
    pending: int = 0
    failed: int = 0
    entities: int = 0
    facts: int = 0

    @classmethod
    def of(cls, reports: Sequence[IngestReport]) -> "IngestedDocument":
        """Return the sums of some reports."""
        return cls(**{name: sum(getattr(one, name) for one in reports) for name in cls.model_fields})


class PassedOverDocument(Document):
    """A file or folder that was not ingested, and why."""

    path: str
    reason: str


class WarningDocument(Document):
    """Something about contents that their owner should know, and how often it was said."""

    code: str
    message: str
    count: int


class IngestDocument(Document):
    """`cmem ingest`: what was handed in, and what each backend made of it; `took_ms` is wall time."""

    files: int
    contents: int
    passed_over: tuple[PassedOverDocument, ...]
    backends: Mapping[str, IngestedDocument]
    warnings: tuple[WarningDocument, ...]
    problems: tuple[str, ...]
    took_ms: float

    @classmethod
    def of(
        cls,
        reports: Sequence[Mapping[str, IngestReport]],
        *,
        files: int,
        contents: int,
        passed_over: Sequence[tuple[str, str]],
        took_ms: float,
    ) -> "IngestDocument":
        """Return the document of what was said of each source, by backend."""
        every = [report for one in reports for report in one.values()]
        said = Counter((warning.code, warning.message) for report in every for warning in report.warnings)
        ids = dict.fromkeys(backend_id for one in reports for backend_id in one)
        return cls(
            files=files,
            contents=contents,
            passed_over=tuple(PassedOverDocument(path=path, reason=why) for path, why in passed_over),
            backends={id_: IngestedDocument.of([one[id_] for one in reports if id_ in one]) for id_ in ids},
            warnings=tuple(
                WarningDocument(code=code, message=message, count=count)
                for (code, message), count in said.most_common()
            ),
            problems=tuple(dict.fromkeys(problem for report in every for problem in report.problems)),
            took_ms=round(took_ms, 3),
        )

    @property
    def is_partial(self) -> bool:
        """Say whether anything was passed over, waits, or failed."""
        waiting = any(one.pending or one.failed for one in self.backends.values())
        return bool(self.passed_over or self.problems or waiting)

    @property
    def is_vain(self) -> bool:
        """Say whether nothing at all could be ingested."""
        kept = sum(one.stored + one.known + one.pending for one in self.backends.values())
        return not kept and (self.contents > 0 or not self.files)
