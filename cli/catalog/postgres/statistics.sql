-- The schema of the extension that keeps statistics of statements, and the libraries that the server has loaded. An ordinary role may not
-- ask for that setting by its name, and sees no row of it.
SELECT
    (SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
     WHERE e.extname = 'pg_stat_statements'),
    (SELECT setting FROM pg_settings WHERE name = 'shared_preload_libraries')
