"""Reads when a content was observed and when it reached us from everything it says about time (pure)."""

from dataclasses import replace
from datetime import UTC, datetime

from composable_memory.content import IngestWarning, MemoryContentObject, MemoryTemporalMetadata

FIRST_LIKELY_YEAR = 1900
LIKELY_YEARS_AHEAD = 100
INVALID = "graphiti.invalid_observed_at"
MOMENTS = ("created_at", "updated_at", "observed_at", "valid_from", "valid_to", "expires_at")
"""The time fields of `MemoryTemporalMetadata`."""
OBSERVED_KEYS = ("observedAt", "observed_at")


def in_utc(moment: datetime) -> datetime:
    """Return a time in UTC; one without a zone counts as UTC.

    Raises:
        OverflowError: it is too close to the limits of the calendar.
    """
    if moment.tzinfo is UTC:  # as all times in a graph are
        return moment
    return moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment.astimezone(UTC)


class Times:
    """The times of a content that reaches us `now`, and the problems found in them.

    All are in UTC except the creation time, which orders what its author wrote on one day; it defaults to
    when the content reached us.
    """

    def __init__(self, content: MemoryContentObject, now: datetime) -> None:
        """Read the times."""
        self._content = content
        self._now = now
        self.warnings: tuple[IngestWarning, ...] = ()
        self.temporal = self._joined()
        self.ingested_at = (self.temporal and self.temporal.updated_at) or now
        self.observed_at = self._observed_at()
        if self.temporal is not None and self.temporal.created_at is None:
            self.temporal = replace(self.temporal, created_at=self.ingested_at)

    def _joined(self) -> MemoryTemporalMetadata | None:
        """Merge the times of content and provenance, field by field; those of the content take precedence."""
        inherited = self._content.provenance.temporal if self._content.provenance else None
        if self._content.temporal is None and inherited is None:
            return None
        own = self._content.temporal or MemoryTemporalMetadata()
        other = inherited or MemoryTemporalMetadata()
        moments = {name: self._in_utc(name, getattr(own, name) or getattr(other, name)) for name in MOMENTS}
        created_at = own.created_at or other.created_at
        if created_at is not None and created_at.tzinfo is not None and moments["created_at"] is not None:
            moments["created_at"] = created_at
        return MemoryTemporalMetadata(**moments, timezone=own.timezone or other.timezone)

    def _observed_at(self) -> datetime:
        """Return when the content was said or seen, as far as known."""
        temporal = self.temporal
        stated = (temporal and temporal.observed_at) or self._stated_in_words()
        known = stated or (temporal and temporal.created_at and in_utc(temporal.created_at))
        if known is None and not any(warning.code == INVALID for warning in self.warnings):
            self._warn("graphiti.missing_temporal", "has no time; treated as observed when it arrived")
        return known or self.ingested_at

    def _stated_in_words(self) -> datetime | None:
        metadata = self._content.metadata
        value = next((metadata[key] for key in OBSERVED_KEYS if metadata.get(key) is not None), None)
        if value is None:
            return None
        try:
            return self._in_utc("observed_at", datetime.fromisoformat(str(value)))
        except ValueError:
            self._invalid(str(value))
            return None

    def _in_utc(self, name: str, value: datetime | None) -> datetime | None:
        if value is None:
            return None
        try:
            moment = in_utc(value)
        except OverflowError:
            self._invalid(value.isoformat())
            return None
        if value.tzinfo is None:
            self._warn(
                "graphiti.naive_time", f"has a time without a zone ({name}); treated as UTC", str(value)
            )
        if not FIRST_LIKELY_YEAR <= moment.year <= self._now.year + LIKELY_YEARS_AHEAD:
            self._warn("graphiti.unlikely_time", f"has an unlikely time ({name})", moment.isoformat())
        return moment

    def _invalid(self, value: str) -> None:
        self._warn(INVALID, "has an invalid date; another of its times is used", value)

    def _warn(self, code: str, problem: str, value: str | None = None) -> None:
        given = {} if value is None else {"value": value}
        message = ": ".join((f"{self._content.id} {problem}", *given.values()))
        details = {"id": self._content.id, **given}
        self.warnings += (IngestWarning(code=code, message=message, details=details),)
