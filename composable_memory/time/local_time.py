"""The time of this machine, which in summer is another than in winter."""

from datetime import UTC, datetime, timedelta, tzinfo


class _LocalTime(tzinfo):
    """What `astimezone()` knows of one moment, for any: so a day in winter keeps its hours in summer."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        if moment is None:
            return None
        try:
            return moment.replace(tzinfo=None).astimezone().utcoffset()
        except (ValueError, OverflowError):  # at an edge of the calendar
            return timedelta()

    def dst(self, moment: datetime | None) -> timedelta | None:  # noqa: ARG002 - that of the base class
        return None

    def tzname(self, moment: datetime | None) -> str | None:  # noqa: ARG002
        return "local time"

    def fromutc(self, moment: datetime) -> datetime:
        there = moment.replace(tzinfo=UTC).astimezone()
        here = there.replace(tzinfo=self)
        return here if here.utcoffset() == there.utcoffset() else here.replace(fold=1)


LOCAL_TIME = _LocalTime()
