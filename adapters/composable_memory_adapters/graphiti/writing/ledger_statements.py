"""The statements by which the ledger finds what is due and notes what was done.

Where a statement names id, sequence and state, it changes only what is still as it was read: an episode may
have been changed, or have vanished from its source, while it was worked on.
"""

__all__ = [
    "CLAIM",
    "CLEAR",
    "COMPLETE",
    "COUNT",
    "COUNT_OF_NOBODY",
    "DUE_NOW",
    "FAIL",
    "FORGET",
    "GIVE_UP",
    "GO_ON",
    "GROUPS",
    "GROUPS_DUE",
    "GROUPS_OF_OTHERS",
    "HURRY",
    "IN_PLACE",
    "IS_RESTING",
    "LAST_ERROR",
    "LAST_SEQUENCE",
    "LOOK_AGAIN",
    "MEMBER",
    "MERGED",
    "MOVED",
    "NAMED",
    "NEXT_DUE",
    "OF_NOBODY",
    "OLD_MESSAGES",
    "POSTPONE",
    "PUT_BACK",
    "REST",
    "REVIVE",
    "ROWS",
    "STAGE",
    "STAGED",
    "STORED",
    "STORE_AGAIN",
    "TAKE",
    "TAKE_ALL",
    "WAKE_GROUPS",
]

# Nothing waits longer than an hour: a time beyond that is left only where the clock was set back.
GROUPS_DUE = """
SELECT DISTINCT episodes.group_id FROM episodes LEFT JOIN turns USING (group_id)
WHERE workspace = :workspace AND state IN ('queued', 'retiring', 'merging', 'lost', 'sent')
  AND NOT (episodes.next_try_at > :now AND episodes.next_try_at <= :now + 3600)
  AND NOT (coalesce(turns.next_try_at, 0) > :now AND turns.next_try_at <= :now + 3600)
"""
NEXT_DUE = """
SELECT min(max(
  iif(episodes.next_try_at > :now + 3600, 0, episodes.next_try_at),
  iif(turns.next_try_at > :now + 3600, 0, coalesce(turns.next_try_at, 0))
))
FROM episodes LEFT JOIN turns USING (group_id)
WHERE workspace = :workspace AND state IN ('queued', 'retiring', 'merging', 'lost', 'sent')
"""
LEASE = "SELECT holder FROM turns WHERE group_id = ?"
SET_LEASE = """
INSERT INTO turns (group_id, holder) VALUES (?, ?)
ON CONFLICT (group_id) DO UPDATE SET holder = excluded.holder
"""
IS_RESTING = "SELECT 1 FROM turns WHERE group_id = ?1 AND next_try_at > ?2 AND next_try_at <= ?2 + 3600"
DUE_NOW = """
group_id = ?1 AND state = ?2 AND NOT (next_try_at > ?3 AND next_try_at <= ?3 + 3600) AND workspace = ?4
"""
COMPLETE = """
UPDATE episodes SET state = :now_in, next_try_at = :next_try_at, last_error = NULL,
  since = iif(:now_in = 'retired', since, :now),
  is_marked = iif(state IN ('queued', 'merging', 'lost'), 1, is_marked)
WHERE id = :id AND sequence = :sequence AND state = :state
"""
FAIL = """
UPDATE episodes SET state = 'failed', attempts = attempts + 1, last_error = :error, since = :now
WHERE id = :id AND sequence = :sequence AND state = :state
"""
POSTPONE = """
UPDATE episodes SET attempts = attempts + 1, last_error = :error,
  state = CASE state WHEN 'sent' THEN 'queued' ELSE state END,
  next_try_at = :now + min(:longest, :pause * (1 << min(attempts, 30)))
WHERE id = :id AND sequence = :sequence AND state = :state
"""
GIVE_UP = """
UPDATE episodes SET state = 'failed', since = :now
WHERE id = :id AND sequence = :sequence AND state = 'queued' AND attempts >= :most
"""
LOOK_AGAIN = """
UPDATE episodes SET next_try_at = :at WHERE id = :id AND sequence = :sequence AND state = :state
"""
REST = """
INSERT INTO turns (group_id, failures, next_try_at) VALUES (:group, 1, :now + :pause)
ON CONFLICT (group_id) DO UPDATE SET failures = failures + 1,
  next_try_at = :now + min(:longest, :pause * (1 << min(failures, 30)))
"""
GO_ON = "UPDATE turns SET failures = 0, next_try_at = 0 WHERE group_id = ? AND failures > 0"
REVIVE = """
UPDATE episodes SET state = 'queued', attempts = 0, next_try_at = 0, since = ?
WHERE state = 'failed' AND workspace = ?
"""
HURRY = """
UPDATE episodes SET next_try_at = 0
WHERE workspace = ? AND state IN ('queued', 'retiring', 'merging', 'lost', 'sent') AND next_try_at > 0
"""
WAKE_GROUPS = "UPDATE turns SET failures = 0, next_try_at = 0"
COUNT = "SELECT state, count(*) FROM episodes WHERE workspace = ? GROUP BY state"
LAST_ERROR = """
SELECT last_error FROM episodes
WHERE workspace = ? AND last_error IS NOT NULL AND state IN ('queued', 'failed', 'lost', 'retiring')
ORDER BY sequence DESC LIMIT 1
"""
GROUPS = "SELECT DISTINCT group_id FROM episodes WHERE workspace = ? AND state <> 'moved'"
GROUPS_OF_OTHERS = "SELECT DISTINCT group_id FROM episodes WHERE workspace IS NOT ?"
ROWS = """
SELECT id, sequence, group_id, draft_id, content_id, part_of, session_key, source_path, state, draft, hash,
  attempts, last_error, merged_into, trace_id, observed_at, enqueued_at, since, is_marked
FROM episodes WHERE workspace = ? AND state <> 'moved'
  AND group_id IN (SELECT value FROM json_each(?)) ORDER BY sequence
"""
CLEAR = """
DELETE FROM episodes WHERE workspace = ? AND state <> 'moved' AND group_id IN (SELECT value FROM json_each(?))
"""
LAST_SEQUENCE = "SELECT coalesce(max(sequence), 0) FROM episodes"
PUT_BACK = """
INSERT INTO episodes (id, sequence, group_id, draft_id, content_id, part_of, session_key, source_path, state,
  draft, hash, attempts, last_error, merged_into, trace_id, observed_at, enqueued_at, since, is_marked,
  workspace)
VALUES (:id, :sequence, :group_id, :draft_id, :content_id, :part_of, :session_key, :source_path, :state,
  :draft, :hash, :attempts, :last_error, :merged_into, :trace_id, :observed_at, :enqueued_at, :since,
  :is_marked, :workspace)
"""
STAGE = "INSERT OR REPLACE INTO restored (group_id, staged) VALUES (?, ?)"
STAGED = "SELECT group_id, staged FROM restored"
IN_PLACE = "DELETE FROM restored WHERE group_id = ?"
STORED = """
SELECT id, sequence, state, is_marked, merged_into FROM episodes
WHERE group_id = ? AND workspace = ? AND state IN ('done', 'retired', 'merged', 'forgotten')
"""
STORE_AGAIN = """
UPDATE episodes SET state = :to, attempts = 0, next_try_at = 0, last_error = :why
WHERE id = :id AND sequence = :sequence AND state = :state
"""
NAMED = "group_id = ?1 AND ?2 IN (id, draft_id, content_id, part_of)"
FORGET = """
UPDATE episodes SET state = 'forgotten', draft = '', last_error = NULL, since = ?
WHERE id = ? OR merged_into = ?
"""
MEMBER = "UPDATE episodes SET merged_into = ? WHERE id = ?"
MERGED = "UPDATE episodes SET state = 'merged', since = ? WHERE merged_into = ? AND state = 'done'"
OLD_MESSAGES = """
state = 'done' AND session_key IS NOT NULL AND merged_into IS NULL AND observed_at < ? AND workspace = ?
"""
OF_NOBODY = "workspace IS NULL AND state IN ('queued', 'sent', 'done', 'failed', 'retiring', 'retired')"
COUNT_OF_NOBODY = """
SELECT group_id, count(*) FROM episodes INDEXED BY episodes_of_nobody
WHERE workspace IS NULL AND state IN ('queued', 'sent', 'done', 'failed') GROUP BY group_id
"""
CLAIM = """
INSERT INTO claims SELECT DISTINCT group_id, :workspace FROM episodes WHERE workspace IS NULL
ON CONFLICT DO NOTHING
"""
TAKE_ALL = """
UPDATE episodes SET workspace = :workspace,
  source_path = iif(group_id IS :shared, :prefix || source_path, source_path)
WHERE workspace IS NULL
"""
TAKE = "UPDATE episodes SET workspace = ?, source_path = ? || source_path WHERE id = ?"
MOVED = "UPDATE episodes SET state = 'moved', workspace = ?, since = ? WHERE id = ?"
