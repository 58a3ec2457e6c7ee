-- Whether this role has a privilege on a table: of this schema, or where its name is empty the one to which the plain name leads.
SELECT CASE WHEN has_table_privilege(c.oid, ?) THEN '1' ELSE '0' END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = ? AND CASE ? WHEN '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = ? END
