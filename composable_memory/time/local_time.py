"""The local time zone, with the right offset in summer and winter."""

from datetime import UTC, datetime, timedelta, tzinfo


class _LocalTime(tzinfo):
    """Local time at any moment, unlike `astimezone()` of one: a day in winter keeps its hours in summer."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        if moment is None:
            return None
        try:
            return moment.replace(tzinfo=None).astimezone().utcoffset()
        except (ValueError, OverflowError):  # at the edge of the calendar
            return timedelta()

    def dst(self, moment: datetime | None) -> timedelta | None:  # noqa: ARG002 - signature of the base class
        return None

    def tzname(self, moment: datetime | None) -> str | None:  # noqa: ARG002
        return "local time"

    def fromutc(self, moment: datetime) -> datetime:
        there = moment.replace(tzinfo=UTC).astimezone()
        here = there.replace(tzinfo=self)
        return here if here.utcoffset() == there.utcoffset() else here.replace(fold=1)


LOCAL_TIME = _LocalTime()
