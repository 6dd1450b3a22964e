-- Which passages have a word, of large workspaces.
ALTER TABLE workspaces ADD COLUMN is_indexed bool NOT NULL DEFAULT false;

-- No GIN index: under row-level security PostgreSQL does not use one, since its operators might tell of the
-- rows of others. Equality of texts does not. A row for each passage would take eight times the space.
CREATE TABLE postings (
  tenant int NOT NULL,
  word text COLLATE "C" NOT NULL,
  block bigint NOT NULL,
  ids bigint[] NOT NULL,            -- of the passages with the word, of those whose ids by 4096 are the block
  PRIMARY KEY (tenant, word, block)
);
ALTER TABLE postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE postings FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON postings USING (tenant = (SELECT nullif(current_setting('cmem.tenant', true), '')::int));
