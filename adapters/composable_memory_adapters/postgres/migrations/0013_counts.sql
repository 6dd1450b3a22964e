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
UPDATE workspace_states SET notes = of_notes.notes, transcripts = of_notes.transcripts
FROM (
  SELECT tenant, count(*) AS notes, count(*) FILTER (WHERE source = 'sessions') AS transcripts FROM notes GROUP BY tenant
) AS of_notes
WHERE of_notes.tenant = workspace_states.tenant;
UPDATE workspace_states
SET passages = of_words.passages, said = of_words.said, length = of_words.length, tokens = of_words.tokens
FROM (
  SELECT tenant, count(*) AS passages, count(*) FILTER (WHERE source = 'sessions') AS said,
    sum(length) AS length, sum(tokens) AS tokens
  FROM passage_words GROUP BY tenant
) AS of_words
WHERE of_words.tenant = workspace_states.tenant;
UPDATE workspace_states SET pending = without.passages
FROM (
  SELECT passages.tenant, count(*) AS passages FROM passages
  LEFT JOIN vectors ON vectors.tenant = passages.tenant AND vectors.hash = passages.hash
  WHERE vectors.id IS NULL GROUP BY passages.tenant
) AS without
WHERE without.tenant = workspace_states.tenant;
DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['workspace_states', 'notes', 'passages', 'passage_words', 'vectors']
  LOOP
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', one);
  END LOOP;
END $$;
