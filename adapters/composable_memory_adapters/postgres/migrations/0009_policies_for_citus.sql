-- Citus takes no policy with a query in it. The setting is read once for each use of an index on the tenant.
DO $$
DECLARE one text;
BEGIN
  FOR one IN
    SELECT tablename FROM pg_policies WHERE schemaname = current_schema AND policyname = 'own' AND tablename <> 'workspaces'
  LOOP
    EXECUTE format(
      'ALTER POLICY own ON %I USING (tenant = nullif(current_setting(''cmem.tenant'', true), '''')::int)', one
    );
  END LOOP;
END $$;
