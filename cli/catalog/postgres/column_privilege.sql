-- The same for one of its columns.
SELECT CASE WHEN has_column_privilege(c.oid, ?, ?) THEN '1' ELSE '0' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ? AND CASE ? WHEN '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = ? END
