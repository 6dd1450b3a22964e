"""Which passages of a workspace have a word, and how much it adds to their BM25.

`postings` has a row for each word in a block of 4,096 passages. A note has thousands of words, and each row
would be rewritten for the few passages that come or go. So a writer adds these to `recent_postings`, where a
row has all words of a bucket, and merges as much from there into `postings` as it has added: by then a row of
`postings` takes many passages at once. Readers combine both; a removed passage has a weight below 0 in
`recent_postings`.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from zlib import crc32

from composable_memory_adapters.postgres.server import Connection

BUCKETS = 256
MOST_RECENT = 1_000
"""Added or removed passages that wait in `recent_postings`; more make writing cheaper and reading dearer."""

FIRST_ASIAN = "\u2e80"
LETTERS = 3
"""Words with the same first letters share a bucket, so that those with a prefix can be looked up."""

# Arrays come as text: the driver looks at each value of an array twice, which took half of a write's time.
PUT_RECENT = """
INSERT INTO recent_postings (tenant, bucket, batch, words, ids, weights)
VALUES ($1, $2, $3, string_to_array($4, ' '), $5::text::bigint[], $6::text::real[])
"""
# Passages that were both added and removed while waiting are left out.
RECENT = """
SELECT word, id, min(weight) AS weight
FROM recent_postings, unnest(words, ids, weights) AS entry (word, id, weight)
WHERE tenant = $1 AND bucket = ANY ($2) GROUP BY word, id HAVING count(*) = 1
"""
# `gone` is removed from the postings: the places of other passages stay for each word (`rest`). A separate
# statement deletes postings that are then empty, since one statement cannot change and delete the same row.
TAKE_OUT = f"""
WITH changed AS (
  UPDATE postings SET passages = rest.passages, places = rest.places, weights = rest.weights
  FROM (
    SELECT word, id / 4096 AS block, array_agg((id % 4096)::smallint) AS places
    FROM ({RECENT}) AS recent WHERE weight < 0 GROUP BY word, block
  ) AS gone
  JOIN postings AS old ON old.tenant = $1 AND old.word = gone.word AND old.block = gone.block,
  LATERAL (
    SELECT count(*) AS passages, coalesce(array_agg(place), '{{}}') AS places,
      coalesce(array_agg(weight), '{{}}') AS weights
    FROM unnest(old.places, old.weights) AS one (place, weight) WHERE place <> ALL (gone.places)
  ) AS rest
  WHERE postings.tenant = $1 AND postings.word = gone.word AND postings.block = gone.block
  RETURNING postings.word, postings.block, postings.passages
)
SELECT word, block FROM changed WHERE passages = 0
"""  # noqa: S608 - our own text
DELETE_EMPTY = """
DELETE FROM postings USING unnest($2::text[], $3::bigint[]) AS gone (its_word, its_block)
WHERE tenant = $1 AND word = its_word AND block = its_block
"""
PUT = f"""
INSERT INTO postings (tenant, word, block, passages, places, weights)
SELECT $1, word, id / 4096 AS block, count(*), array_agg((id % 4096)::smallint), array_agg(weight)
FROM ({RECENT}) AS recent WHERE weight > 0 GROUP BY word, block
ON CONFLICT (tenant, word, block) DO UPDATE SET passages = postings.passages + excluded.passages,
  places = postings.places || excluded.places, weights = postings.weights || excluded.weights
"""  # noqa: S608 - our own text
DELETE_RECENT = "DELETE FROM recent_postings WHERE tenant = $1 AND bucket = ANY ($2)"

COUNT_WORDS = """
SELECT word, sum(passages) AS passages FROM (
  SELECT word, passages FROM postings WHERE tenant = $1 AND word = ANY ($2)
  UNION ALL
  SELECT word, sign(weight) FROM unnest($2::text[], $3::smallint[]) AS asked (word, its_bucket)
  JOIN recent_postings ON tenant = $1 AND bucket = its_bucket, unnest(words, weights) AS entry (its, weight)
  WHERE its = word
) AS found GROUP BY word HAVING sum(passages) > 0
"""
BEGINNING = """
SELECT word FROM (
  SELECT word FROM postings WHERE tenant = $1 AND word >= $2 AND word < $2 || chr(1114111)
  UNION SELECT word FROM recent_postings, unnest(words) AS word
  WHERE tenant = $1 AND bucket = ANY ($4) AND word >= $2 AND word < $2 || chr(1114111)
) AS found ORDER BY word COLLATE "C" LIMIT $3
"""


def entries(asked: str, columns: str) -> str:
    """Return SQL for the passages with any of some words: `columns` of `asked`, `id`, and `weight`.

    `asked` has the columns `one`, a word, and `its_bucket`.
    """
    return f"""
  SELECT {columns}, block * 4096 + place AS id, weight FROM {asked}
  JOIN postings ON tenant = $1 AND word = one, unnest(places, weights) AS posting (place, weight)
  UNION ALL
  SELECT {columns}, id, weight FROM {asked}
  JOIN recent_postings ON tenant = $1 AND bucket = its_bucket,
    unnest(words, ids, weights) AS entry (its, id, weight)
  WHERE its = one
"""  # noqa: S608 - our own text


def buckets_of(words: Iterable[str]) -> list[int]:
    """Return the bucket of each word."""
    return [crc32(word[: 1 if word >= FIRST_ASIAN else LETTERS].encode()) % BUCKETS for word in words]


async def count_words(connection: Connection, tenant: int, words: Sequence[str]) -> dict[str, int]:
    """Return how many passages have each of some words; words without any are left out."""
    return dict(map(tuple, await connection.fetch(COUNT_WORDS, tenant, words, buckets_of(words))))


async def words_with(connection: Connection, tenant: int, beginning: str, limit: int) -> list[str]:
    """Return the first words of the index with a prefix."""
    is_whole = beginning >= FIRST_ASIAN or len(beginning) >= LETTERS
    buckets = buckets_of([beginning]) if is_whole else [*range(BUCKETS)]
    return [row["word"] for row in await connection.fetch(BEGINNING, tenant, beginning, limit, buckets)]


class Changes:
    """The words of the passages that one write adds and removes."""

    def __init__(self) -> None:
        self.passages = 0
        """Passages added or removed."""
        self._rows = [(list[str](), list[str](), list[str]()) for _ in range(BUCKETS)]

    def add(self, id_: int, weights: Mapping[str, float], sign: int = 1) -> None:
        """Add the words of a passage: 1 if it is added, -1 if it is removed."""
        self.passages += 1
        number, texts = str(id_), {weight: f"{sign * weight:.8g}" for weight in {*weights.values()}}
        for (word, weight), bucket in zip(weights.items(), buckets_of(weights), strict=True):
            words, ids, its = self._rows[bucket]
            words.append(word)
            ids.append(number)
            its.append(texts[weight])

    async def store(self, connection: Connection, tenant: int, *, batch: int, merge_from: int) -> int:
        """Store them as recent, and merge as much; no other write has the same `batch` number.

        Returns the bucket at which the next write continues merging.
        """
        rows = [
            (tenant, bucket, batch, " ".join(words), f"{{{','.join(ids)}}}", f"{{{','.join(weights)}}}")
            for bucket, (words, ids, weights) in enumerate(self._rows)
            if words
        ]
        await connection.executemany(PUT_RECENT, rows)
        count = min(BUCKETS, ceil(BUCKETS * self.passages / MOST_RECENT))
        buckets = [one % BUCKETS for one in range(merge_from, merge_from + count)]
        await merge(connection, tenant, buckets)
        return (merge_from + count) % BUCKETS


async def merge(connection: Connection, tenant: int, buckets: Sequence[int] = range(BUCKETS)) -> None:
    """Merge recent postings of some or all buckets into `postings`; the caller holds the workspace's lock."""
    if empty := await connection.fetch(TAKE_OUT, tenant, buckets):
        await connection.execute(DELETE_EMPTY, tenant, *zip(*empty, strict=True))
    await connection.execute(PUT, tenant, buckets)
    await connection.execute(DELETE_RECENT, tenant, buckets)
