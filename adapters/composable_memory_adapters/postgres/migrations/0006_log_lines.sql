-- Lines of the operations logs of those who bring notes, as `cmem logs ship` sends them.
CREATE TABLE log_lines (
  tenant int NOT NULL,
  id text NOT NULL,
  at timestamptz NOT NULL,
  trace_id text NOT NULL,
  action text NOT NULL,
  line jsonb NOT NULL,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX log_lines_by_time ON log_lines (tenant, at);
CREATE INDEX log_lines_by_trace ON log_lines (tenant, trace_id);
ALTER TABLE log_lines ENABLE ROW LEVEL SECURITY;
ALTER TABLE log_lines FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON log_lines USING (tenant = (SELECT nullif(current_setting('cmem.tenant', true), '')::int));
