-- The words of the passages that came and went last, until there are enough of them to change `postings`.
CREATE TABLE recent_postings (
  tenant int NOT NULL,
  bucket smallint NOT NULL,          -- of words with the same first letters
  batch bigint NOT NULL,             -- the revision of the write
  words text[] COLLATE "C" NOT NULL,
  ids bigint[] NOT NULL,             -- of each word a passage,
  weights real[] NOT NULL,           -- and what it adds to its BM25, below 0 where the passage went
  PRIMARY KEY (tenant, bucket, batch)
);
ALTER TABLE recent_postings ALTER COLUMN words SET STORAGE EXTERNAL;
ALTER TABLE recent_postings ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE recent_postings ALTER COLUMN weights SET STORAGE EXTERNAL;
ALTER TABLE recent_postings ENABLE ROW LEVEL SECURITY;
ALTER TABLE recent_postings FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON recent_postings USING (tenant = nullif(current_setting('cmem.tenant', true), '')::int);
ALTER TABLE workspace_states ADD COLUMN next_bucket smallint NOT NULL DEFAULT 0;
