-- Ids of what is learnt come from a sequence: Citus refuses triggers on spread tables. It begins above all that
-- the trigger has given, since nobody sees the rows of all tenants here. A writer holds the lock of its tenant
-- when it takes one, so ids still ascend as rows are stored.
CREATE SEQUENCE feedback_ids START 1000000000000;

DO $$
DECLARE one text;
BEGIN
  FOREACH one IN ARRAY ARRAY['judgements', 'evaluations', 'weight_changes', 'shadows', 'outcomes', 'golden']
  LOOP
    EXECUTE format('DROP TRIGGER next_id ON %I', one);
    EXECUTE format('ALTER TABLE %I ALTER COLUMN id SET DEFAULT nextval(''feedback_ids'')', one);
  END LOOP;
END $$;

DROP FUNCTION next_id;
