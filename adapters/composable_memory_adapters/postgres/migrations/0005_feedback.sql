-- What is learnt: the tables of the feedback store, column by column, so that its statements read and write them.
-- `tenant` fills itself in: these statements know of none. Texts sort by their bytes, as times do in SQLite.
CREATE FUNCTION own_tenant() RETURNS int LANGUAGE sql STABLE
AS $$ SELECT nullif(current_setting('cmem.tenant', true), '')::int $$;

-- A writer locks this row first, so that ids have no gaps that fill later, and `max(id) + 1` is a new one.
CREATE TABLE feedback_revisions (
  tenant int NOT NULL DEFAULT own_tenant() PRIMARY KEY,
  revision bigint NOT NULL DEFAULT 0
);

CREATE TABLE judgements (
  tenant int NOT NULL DEFAULT own_tenant(),
  id bigint NOT NULL,
  place bigint GENERATED ALWAYS AS (id) STORED,
  trace_id text NOT NULL,
  query_id text NOT NULL,
  path text NOT NULL,
  start_line int NOT NULL,
  end_line int NOT NULL,
  kind text NOT NULL,
  judge text NOT NULL,
  at text COLLATE "C" NOT NULL,
  rank int NOT NULL,
  backend text,
  intent text NOT NULL,
  relevance double precision NOT NULL,
  was_used int NOT NULL,
  rationale text NOT NULL,
  start_char int NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, trace_id, query_id, path, start_line, end_line, start_char, kind, judge)
);
CREATE INDEX judgements_by_time ON judgements (tenant, at);

CREATE TABLE backend_queries (
  tenant int NOT NULL DEFAULT own_tenant(),
  trace_id text NOT NULL,
  query_id text NOT NULL,
  backend text COLLATE "C" NOT NULL,
  kind_group text COLLATE "C" NOT NULL,
  day text COLLATE "C" NOT NULL,
  intent text COLLATE "C" NOT NULL,
  precision double precision NOT NULL,
  mean_relevance double precision NOT NULL,
  used int NOT NULL,
  results int NOT NULL,
  PRIMARY KEY (tenant, trace_id, query_id, backend, kind_group)
);

CREATE TABLE evaluations (
  tenant int NOT NULL DEFAULT own_tenant(),
  id bigint NOT NULL,
  place bigint GENERATED ALWAYS AS (id) STORED,
  reserved_at text COLLATE "C" NOT NULL,
  at text COLLATE "C",
  detail text,
  PRIMARY KEY (tenant, id)
);
CREATE INDEX evaluations_by_reservation ON evaluations (tenant, reserved_at);

CREATE TABLE weight_tables (
  tenant int NOT NULL DEFAULT own_tenant(),
  number bigint NOT NULL,
  place bigint GENERATED ALWAYS AS (number) STORED,
  version text NOT NULL,
  replaced text,
  detail text NOT NULL,
  PRIMARY KEY (tenant, number),
  UNIQUE (tenant, version)
);

CREATE TABLE weight_changes (
  tenant int NOT NULL DEFAULT own_tenant(),
  id bigint NOT NULL,
  place bigint GENERATED ALWAYS AS (id) STORED,
  version text,
  replaced text,
  at text COLLATE "C" NOT NULL,
  actor text NOT NULL,
  action text NOT NULL,
  reason text NOT NULL,
  base text NOT NULL,
  gain text,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE shadows (
  tenant int NOT NULL DEFAULT own_tenant(),
  id bigint NOT NULL,
  proposal text NOT NULL,
  since text COLLATE "C" NOT NULL,
  ended_at text COLLATE "C",
  reason text,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE experiments (
  tenant int NOT NULL DEFAULT own_tenant(),
  id text NOT NULL,
  place bigint GENERATED ALWAYS AS IDENTITY,
  memory text,
  state text NOT NULL,
  started_at text COLLATE "C" NOT NULL,
  detail text NOT NULL,
  PRIMARY KEY (tenant, id)
);
CREATE UNIQUE INDEX one_running_experiment ON experiments (tenant, coalesce(memory, '')) WHERE state = 'running';

CREATE TABLE outcomes (
  tenant int NOT NULL DEFAULT own_tenant(),
  id bigint NOT NULL,
  place bigint GENERATED ALWAYS AS (id) STORED,
  experiment_id text NOT NULL,
  trace_id text NOT NULL,
  query_id text NOT NULL,
  at text COLLATE "C" NOT NULL,
  a double precision NOT NULL,
  b double precision NOT NULL,
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, experiment_id, trace_id, query_id)
);

CREATE TABLE golden (
  tenant int NOT NULL DEFAULT own_tenant(),
  id bigint NOT NULL,
  place bigint GENERATED ALWAYS AS (id) STORED,
  question text NOT NULL,
  query text NOT NULL,
  PRIMARY KEY (tenant, id)
);

CREATE TABLE marks (
  tenant int NOT NULL DEFAULT own_tenant(),
  name text NOT NULL,
  value text NOT NULL,
  PRIMARY KEY (tenant, name)
);

CREATE FUNCTION next_id() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('SELECT coalesce(max(id), 0) + 1 FROM %I.%I WHERE tenant = $1', TG_TABLE_SCHEMA, TG_TABLE_NAME)
    INTO NEW.id USING NEW.tenant;
  RETURN NEW;
END $$;

DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['judgements', 'evaluations', 'weight_changes', 'shadows', 'outcomes', 'golden']
  LOOP
    EXECUTE format('CREATE TRIGGER next_id BEFORE INSERT ON %I FOR EACH ROW EXECUTE FUNCTION next_id()', one);
  END LOOP;
  FOREACH one IN ARRAY ARRAY[
    'feedback_revisions', 'judgements', 'backend_queries', 'evaluations', 'weight_tables', 'weight_changes',
    'shadows', 'experiments', 'outcomes', 'golden', 'marks'
  ]
  LOOP
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', one);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', one);
    EXECUTE format(
      'CREATE POLICY own ON %I USING (tenant = (SELECT nullif(current_setting(''cmem.tenant'', true), '''')::int))',
      one
    );
  END LOOP;
END $$;
