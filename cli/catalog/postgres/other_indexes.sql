-- The indexes of a table beside its primary key.
SELECT x.relname::text
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x ON x.oid = i.indexrelid
WHERE NOT i.indisprimary AND pg_table_is_visible(c.oid) AND c.relname = ?
