-- Whether there is a schema of this name.
SELECT '1' FROM pg_namespace WHERE nspname = ?
