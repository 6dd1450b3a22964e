-- How much a workspace has, kept by whoever writes: a question after a write counts nothing.
ALTER TABLE workspace_states
  ADD COLUMN notes bigint NOT NULL DEFAULT 0,
  ADD COLUMN transcripts bigint NOT NULL DEFAULT 0, -- how many of the notes are transcripts,
  ADD COLUMN passages bigint NOT NULL DEFAULT 0,
  ADD COLUMN said bigint NOT NULL DEFAULT 0,        -- and of the passages theirs
  ADD COLUMN length bigint NOT NULL DEFAULT 0,      -- tokens of all texts,
  ADD COLUMN tokens bigint NOT NULL DEFAULT 0,      -- and with those of names, headings and tags
  ADD COLUMN pending bigint NOT NULL DEFAULT 0;     -- passages without a vector

DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['workspace_states', 'notes', 'passages', 'passage_words', 'vectors']
  LOOP
    EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY', one);
  END LOOP;
END $$;
-- No UPDATE: Citus joins no table that is not spread yet with one that is.
INSERT INTO workspace_states (tenant, notes, transcripts)
SELECT tenant, count(*), count(*) FILTER (WHERE source = 'sessions') FROM notes GROUP BY tenant
ON CONFLICT (tenant) DO UPDATE SET notes = excluded.notes, transcripts = excluded.transcripts;
INSERT INTO workspace_states (tenant, passages, said, length, tokens)
SELECT tenant, count(*), count(*) FILTER (WHERE source = 'sessions'), sum(length), sum(tokens)
FROM passage_words GROUP BY tenant
ON CONFLICT (tenant) DO UPDATE
SET passages = excluded.passages, said = excluded.said, length = excluded.length, tokens = excluded.tokens;
INSERT INTO workspace_states (tenant, pending)
SELECT passages.tenant, count(*) FROM passages
LEFT JOIN vectors ON vectors.tenant = passages.tenant AND vectors.hash = passages.hash
WHERE vectors.id IS NULL GROUP BY passages.tenant
ON CONFLICT (tenant) DO UPDATE SET pending = excluded.pending;
DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['workspace_states', 'notes', 'passages', 'passage_words', 'vectors']
  LOOP
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', one);
  END LOOP;
END $$;
