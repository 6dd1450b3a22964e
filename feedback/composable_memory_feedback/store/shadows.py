"""The proposal in the shadow phase: one at a time, and those before it with why they ended."""

from datetime import datetime
from sqlite3 import Connection

from composable_memory_feedback.advice.values import Proposal
from composable_memory_feedback.store.codecs import PROPOSALS, plain_text, time_of, time_text
from composable_memory_feedback.store.values import ShadowRecord

__all__ = ["end_shadow", "put_shadow", "read_shadow"]

_PUT = "INSERT INTO shadows (proposal, since) VALUES (?, ?)"

_SELECT = "SELECT proposal, since FROM shadows WHERE ended_at IS NULL ORDER BY id DESC LIMIT 1"

_END = "UPDATE shadows SET ended_at = ?, reason = ? WHERE ended_at IS NULL"


def put_shadow(connection: Connection, proposal: Proposal, at: datetime) -> None:
    """Begin the shadow phase of a proposal; that of another one ends."""
    end_shadow(connection, "another proposal took its place", at)
    connection.execute(_PUT, (PROPOSALS.write(proposal), time_text(at)))


def read_shadow(connection: Connection) -> ShadowRecord | None:
    """Return the proposal in its shadow phase."""
    row = connection.execute(_SELECT).fetchone()
    if row is None:
        return None
    return ShadowRecord(proposal=PROPOSALS.read(row["proposal"]), since=time_of(row["since"]))


def end_shadow(connection: Connection, reason: str, at: datetime) -> None:
    """End the shadow phase, if there is one."""
    connection.execute(_END, (time_text(at), plain_text(reason)))
