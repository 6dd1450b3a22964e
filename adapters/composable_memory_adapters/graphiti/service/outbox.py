"""What was handed to the graph service and has not been seen among its episodes since (pure)."""

from collections.abc import Collection
from datetime import datetime, timedelta

__all__ = ["SentMessages"]


class SentMessages:
    """Remembers what the service has taken, because it says nothing of what became of it.

    Its only worker reads one message after the other. Where it has read none for `stalled_after`, it has
    probably ended, and what waits in its memory is lost. A key tells a message from all others of its group.
    """

    def __init__(self, stalled_after: timedelta) -> None:
        self._stalled_after = stalled_after
        self._waiting: dict[tuple[str, str], datetime] = {}
        self._moved_at: datetime | None = None

    @property
    def groups(self) -> frozenset[str]:
        """Return the groups in which something waits."""
        return frozenset(group_id for group_id, _ in self._waiting)

    def holds(self, group_id: str, key: str) -> bool:
        """Say whether a message waits."""
        return (group_id, key) in self._waiting

    def oldest(self, group_id: str) -> datetime | None:
        """Return the earliest date of the messages that wait in a group."""
        return min((dated for (group, _), dated in self._waiting.items() if group == group_id), default=None)

    def put(self, group_id: str, dates: dict[str, datetime], *, now: datetime) -> None:
        """Note messages, by key with the date they were sent with."""
        if not self._waiting:
            self._moved_at = now
        self._waiting.update({(group_id, key): dated for key, dated in dates.items()})

    def drop(self, group_id: str, keys: Collection[str]) -> None:
        """Forget messages that the service has not taken after all."""
        for key in keys:
            self._waiting.pop((group_id, key), None)

    def settle(self, group_id: str, there: Collection[str], *, now: datetime) -> frozenset[str]:
        """Take out what has become an episode; return the keys."""
        settled = frozenset(key for key in there if self.holds(group_id, key))
        self.drop(group_id, settled)
        if settled:
            self._moved_at = now
        return settled

    def stalled(self, now: datetime) -> str | None:
        """Say in words that nothing moves any more; None while it may."""
        if not self._waiting or self._moved_at is None or now - self._moved_at < self._stalled_after:
            return None
        minutes = (now - self._moved_at).total_seconds() / 60
        return (
            f"the graph service has taken {len(self._waiting)} messages and read none for {minutes:.0f} min"
        )

    def give_up(self) -> None:
        """Forget all that waits, so that it is sent again."""
        self._waiting.clear()
