-- What is learnt stands in one table: a value as JSON, by its kind, its key and its time. Keys are written as
-- Python's `json.dumps` does; what has none is told apart by its place alone.
CREATE TABLE entries (
  tenant int NOT NULL,
  id bigint NOT NULL DEFAULT nextval('feedback_ids'),
  kind text COLLATE "C" NOT NULL,
  key text COLLATE "C",
  at text COLLATE "C" NOT NULL,
  detail text NOT NULL,
  PRIMARY KEY (tenant, id),
  UNIQUE (tenant, kind, key)
);
CREATE INDEX entries_in_order ON entries (tenant, kind, id, at);

DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY[
    'judgements', 'evaluations', 'weight_tables', 'weight_changes', 'experiments', 'outcomes', 'golden', 'marks'
  ]
  LOOP
    EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY', one);
  END LOOP;
END $$;

-- Ids are below all that the sequence gives, in the order of storing.
INSERT INTO entries (tenant, id, kind, at, detail)
SELECT tenant, row_number() OVER (PARTITION BY tenant ORDER BY id), 'weight_changes', at,
  '{"table":' || coalesce(detail, 'null') || ',"at":' || to_json(at) || ',"actor":' || to_json(actor)
  || ',"action":' || to_json(action) || ',"reason":' || to_json(reason) || ',"base":' || base
  || ',"replaced":' || coalesce(to_json(replaced)::text, 'null') || ',"gain":' || coalesce(gain, 'null') || '}'
FROM (
  SELECT changes.*, tables.detail FROM weight_changes AS changes
  LEFT JOIN weight_tables AS tables ON tables.tenant = changes.tenant AND tables.version = changes.version
) AS changes;

-- PostgreSQL reads no JSON with a null character, NaN or infinity in it, so keys are read without these.
INSERT INTO entries (tenant, id, kind, key, at, detail)
SELECT tenant, 100000000000 + row_number() OVER (PARTITION BY tenant ORDER BY id), 'golden',
  json_build_array(known_question ->> 'id'), known_query ->> 'at',
  '{"question":' || question || ',"query":' || query || '}'
FROM (
  SELECT *, regexp_replace(question, '\\u0000|(?<=[:,[])(NaN|-?Infinity)', 'null', 'g')::json AS known_question,
    regexp_replace(query, '\\u0000|(?<=[:,[])(NaN|-?Infinity)', 'null', 'g')::json AS known_query
  FROM golden
) AS golden
ON CONFLICT DO NOTHING;

INSERT INTO entries (tenant, id, kind, key, at, detail)
SELECT tenant, 200000000000 + row_number() OVER (PARTITION BY tenant ORDER BY place), 'experiments',
  json_build_array(id), started_at, detail
FROM experiments
ON CONFLICT DO NOTHING;

INSERT INTO entries (tenant, id, kind, key, at, detail)
SELECT tenant, 300000000000 + row_number() OVER (PARTITION BY tenant ORDER BY id), 'outcomes',
  json_build_array(experiment_id, trace_id, query_id), at,
  json_build_object(
    'experiment_id', experiment_id, 'trace_id', trace_id, 'query_id', query_id, 'at', at, 'a', a, 'b', b
  )
FROM outcomes
ON CONFLICT DO NOTHING;

INSERT INTO entries (tenant, id, kind, key, at, detail)
SELECT tenant, 400000000000 + row_number() OVER (PARTITION BY tenant ORDER BY id), 'evaluations',
  json_build_array(known ->> 'trace_id', known ->> 'query_id', at, known ->> 'model'), at, detail
FROM (
  SELECT *, regexp_replace(detail, '\\u0000|(?<=[:,[])(NaN|-?Infinity)', 'null', 'g')::json AS known
  FROM evaluations WHERE detail IS NOT NULL
) AS evaluations
ON CONFLICT DO NOTHING;

INSERT INTO entries (tenant, id, kind, key, at, detail)
SELECT tenant, 500000000000 + row_number() OVER (PARTITION BY tenant ORDER BY id), 'judgements',
  json_build_array(trace_id, query_id, path, start_line, end_line, start_char, kind, judge), at,
  json_build_object(
    'trace_id', trace_id, 'query_id', query_id, 'at', at, 'path', path, 'start_line', start_line,
    'end_line', end_line, 'rank', rank, 'backend', backend, 'intent', intent, 'kind', kind,
    'relevance', relevance, 'was_used', was_used <> 0, 'rationale', rationale, 'by', judge,
    'start_char', start_char
  )
FROM judgements
ON CONFLICT DO NOTHING;

INSERT INTO entries (tenant, id, kind, key, at, detail)
SELECT tenant, 600000000000 + row_number() OVER (PARTITION BY tenant ORDER BY name), 'marks', name, '', value
FROM marks
ON CONFLICT DO NOTHING;

DROP TABLE judgements, evaluations, weight_changes, weight_tables, experiments, outcomes, golden, marks;
ALTER TABLE entries ENABLE ROW LEVEL SECURITY;
ALTER TABLE entries FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON entries USING (tenant = nullif(current_setting('cmem.tenant', true), '')::int);
