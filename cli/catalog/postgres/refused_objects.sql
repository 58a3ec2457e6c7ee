-- The tables and the schemas that a message may name of which the role lacks a privilege: that privilege, the word before a schema's name
-- in GRANT, the schema, the name, and whether the plain name leads to it.
SELECT 'SELECT', '', n.nspname::text, c.relname::text, CASE WHEN pg_table_is_visible(c.oid) THEN '1' ELSE '0' END AS plain
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT has_table_privilege(c.oid, 'SELECT') AND strpos(?, c.relname::text) > 0
UNION ALL
SELECT CASE WHEN has_schema_privilege(n.oid, 'USAGE') THEN 'CREATE' ELSE 'USAGE' END, 'SCHEMA ', '', n.nspname::text, '1'
FROM pg_namespace n
WHERE NOT (has_schema_privilege(n.oid, 'USAGE') AND has_schema_privilege(n.oid, 'CREATE')) AND strpos(?, n.nspname::text) > 0
ORDER BY plain DESC
