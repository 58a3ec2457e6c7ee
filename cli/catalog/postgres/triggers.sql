-- The names of the triggers on two tables.
SELECT t.tgname::text
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid) AND c.relname IN (?, ?)
