-- What changes of a workspace stands beside its passages. Citus has a copy of `workspaces` on every server: there
-- a writer of one workspace would hold up those of all, and a reader see the revision before what it is of.
CREATE TABLE workspace_states (
  tenant int NOT NULL PRIMARY KEY,
  revision bigint NOT NULL DEFAULT 0, -- grows with each change; a writer locks the row first
  space text,                         -- the embedder whose vectors these are, NULL before the first
  is_indexed bool NOT NULL DEFAULT false,
  indexed_to bigint NOT NULL DEFAULT 0
);
ALTER TABLE workspaces NO FORCE ROW LEVEL SECURITY;
INSERT INTO workspace_states (tenant, revision, space, is_indexed, indexed_to)
SELECT tenant, revision, space, is_indexed, indexed_to FROM workspaces;
ALTER TABLE workspaces FORCE ROW LEVEL SECURITY;
ALTER TABLE workspaces DROP COLUMN revision, DROP COLUMN space, DROP COLUMN is_indexed, DROP COLUMN indexed_to;
ALTER TABLE workspace_states ENABLE ROW LEVEL SECURITY;
ALTER TABLE workspace_states FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON workspace_states USING (tenant = nullif(current_setting('cmem.tenant', true), '')::int);
