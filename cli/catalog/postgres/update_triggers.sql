-- The triggers of a table that an update fires, and between backticks the columns of UPDATE OF. 16 is UPDATE.
SELECT t.tgname::text,
    (SELECT string_agg('`' || replace(a.attname::text, '`', '``') || '`', ' ') FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum = ANY (t.tgattr::int2[]))
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE pg_table_is_visible(c.oid) AND NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgtype & 16 <> 0 AND c.relname = ?
ORDER BY t.tgname
