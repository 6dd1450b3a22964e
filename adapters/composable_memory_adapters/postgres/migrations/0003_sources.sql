-- Transcripts and documents beside notes: where a text is from, and the numbers that its lines have.
ALTER TABLE notes ADD COLUMN source text NOT NULL DEFAULT 'memory', ADD COLUMN lines int[];
ALTER TABLE passage_words ADD COLUMN source text NOT NULL DEFAULT 'memory';

-- When the messages of transcripts were said, in quarters of an hour.
CREATE TABLE message_times (
  tenant int NOT NULL,
  path text NOT NULL,
  first_line int NOT NULL,
  last_line int NOT NULL,
  at bigint NOT NULL,               -- seconds since 1970 when the quarter began
  PRIMARY KEY (tenant, path, first_line)
);
CREATE INDEX message_times_by_time ON message_times (tenant, at);
ALTER TABLE message_times ENABLE ROW LEVEL SECURITY;
ALTER TABLE message_times FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON message_times
USING (tenant = (SELECT nullif(current_setting('cmem.tenant', true), '')::int));
