-- Every key begins with the tenant, so that all tables can be spread over servers by it.
CREATE TABLE workspaces (
  tenant int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE,
  space text,                       -- the embedder whose vectors these are, NULL before the first
  revision bigint NOT NULL DEFAULT 0 -- grows with each change; a writer locks the row first
);

CREATE SEQUENCE passage_ids;

CREATE TABLE notes (
  tenant int NOT NULL,
  path text NOT NULL,
  hash text NOT NULL,               -- SHA-256 of the file
  mtime bigint NOT NULL,            -- nanoseconds
  recipe text NOT NULL,             -- how it was cut; empty where the next sync has to read it again
  title text NOT NULL,
  aliases text NOT NULL,
  tags text NOT NULL,
  type text NOT NULL,
  day text NOT NULL,
  body bytea NOT NULL,              -- the whole text in UTF-8: a NUL cannot stand in a text
  PRIMARY KEY (tenant, path)
);

-- Which root has which file, as it last saw it there. A note is gone when nobody has it any more.
CREATE TABLE copies (
  tenant int NOT NULL,
  owner text NOT NULL,
  path text NOT NULL,
  hash text NOT NULL,
  mtime bigint NOT NULL,
  size bigint NOT NULL,
  is_utf8 bool NOT NULL,
  PRIMARY KEY (tenant, owner, path)
);
CREATE INDEX copies_by_path ON copies (tenant, path);

CREATE TABLE passages (
  tenant int NOT NULL,
  id bigint NOT NULL,
  path text NOT NULL,
  start_line int NOT NULL,
  end_line int NOT NULL,
  start_char int NOT NULL,
  hash text NOT NULL,               -- SHA-256 of the text, by which it finds its vector
  headings text NOT NULL,
  text text NOT NULL,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX passages_by_path ON passages (tenant, path);
CREATE INDEX passages_by_hash ON passages (tenant, hash);

-- Narrow, because a question reads all rows of its tenant.
CREATE TABLE passage_words (
  tenant int NOT NULL,
  id bigint NOT NULL,
  length int NOT NULL,              -- tokens of the text, without those of names, headings and tags
  tokens int NOT NULL,
  weights sparsevec NOT NULL,       -- for each token its part of BM25
  words text NOT NULL,              -- the tokens of text, names, headings and tags, a line each
  PRIMARY KEY (tenant, id)
);
ALTER TABLE passage_words ALTER COLUMN words SET STORAGE EXTERNAL;

CREATE TABLE vectors (
  tenant int NOT NULL,
  id bigint GENERATED ALWAYS AS IDENTITY,
  hash text NOT NULL,
  vector vector NOT NULL,           -- of unit length
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, hash)
);

CREATE TABLE vocabulary (
  tenant int NOT NULL,
  word text COLLATE "C" NOT NULL,
  passages int NOT NULL,            -- how many have it
  PRIMARY KEY (tenant, word)
);

CREATE TABLE long_words (
  tenant int NOT NULL,
  backwards text COLLATE "C" NOT NULL, -- so that those with the same end are neighbours
  PRIMARY KEY (tenant, backwards)
);

-- A workspace is found by its name, everything else by its number; without either nothing is seen.
ALTER TABLE workspaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE workspaces FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON workspaces USING (
  name = current_setting('cmem.workspace', true)
  OR tenant = nullif(current_setting('cmem.tenant', true), '')::int
);

DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['notes', 'copies', 'passages', 'passage_words', 'vectors', 'vocabulary', 'long_words']
  LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', one);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', one);
    EXECUTE format(
      'CREATE POLICY own ON %I USING (tenant = (SELECT nullif(current_setting(''cmem.tenant'', true), '''')::int))',
      one
    );
  END LOOP;
END $$;
