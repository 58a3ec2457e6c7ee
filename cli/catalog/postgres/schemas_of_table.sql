-- The schemas that have a table of this name.
SELECT n.nspname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND left(n.nspname, 3) <> 'pg_' AND n.nspname <> 'information_schema' AND c.relname = ?
ORDER BY 1
