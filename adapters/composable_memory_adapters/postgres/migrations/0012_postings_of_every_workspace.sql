-- Of every workspace its words lead to the passages that have them, and to what each adds to their BM25.
DROP TABLE postings;
CREATE TABLE postings (
  tenant int NOT NULL,
  word text COLLATE "C" NOT NULL,
  block bigint NOT NULL,
  passages int NOT NULL,            -- how many of the block have it
  places smallint[] NOT NULL,       -- their ids, less 4096 times the block
  weights real[] NOT NULL,          -- of each, for texts of 100 tokens on average
  PRIMARY KEY (tenant, word, block)
);

ALTER TABLE passage_words NO FORCE ROW LEVEL SECURITY;
INSERT INTO postings (tenant, word, block, passages, places, weights)
SELECT tenant, word, id / 4096, count(*), array_agg((id % 4096)::smallint ORDER BY id),
  array_agg((2.2 * times / (times + 1.2 * (0.25 + 0.75 * tokens / 100.0)))::real ORDER BY id)
FROM (
  SELECT tenant, id, tokens, word, sum(counts) AS times
  FROM passage_words,
    unnest(string_to_array(words, E'\n'), ARRAY[1, 2, 1, 1]) AS line (field, counts),
    unnest(string_to_array(field, ' ')) AS word
  WHERE word <> '' GROUP BY tenant, id, tokens, word
) AS of_passages
GROUP BY tenant, word, id / 4096;
ALTER TABLE passage_words FORCE ROW LEVEL SECURITY;
ALTER TABLE passage_words DROP COLUMN weights;
DROP TABLE vocabulary;

ALTER TABLE postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE postings FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON postings USING (tenant = nullif(current_setting('cmem.tenant', true), '')::int);

-- A workspace counts its passages by itself: of a sequence of all, the few of a small one would lie in many blocks.
ALTER TABLE workspace_states ADD COLUMN next_passage bigint NOT NULL DEFAULT 1, DROP COLUMN is_indexed, DROP COLUMN indexed_to;
ALTER TABLE workspace_states NO FORCE ROW LEVEL SECURITY;
ALTER TABLE passages NO FORCE ROW LEVEL SECURITY;
-- No UPDATE: Citus joins no table that is not spread yet with one that is.
INSERT INTO workspace_states (tenant, next_passage) SELECT tenant, max(id) + 1 FROM passages GROUP BY tenant
ON CONFLICT (tenant) DO UPDATE SET next_passage = excluded.next_passage;
ALTER TABLE passages FORCE ROW LEVEL SECURITY;
ALTER TABLE workspace_states FORCE ROW LEVEL SECURITY;
DROP SEQUENCE passage_ids;
