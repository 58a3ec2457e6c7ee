-- The schema of the table to which a plain name leads.
SELECT n.nspname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE pg_table_is_visible(c.oid) AND c.relname = ?
