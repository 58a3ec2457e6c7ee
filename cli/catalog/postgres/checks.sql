-- The names of the CHECKs of a table, and between backticks the columns that they mention.
SELECT k.conname::text,
    COALESCE((SELECT string_agg('`' || replace(a.attname::text, '`', '``') || '`', ' ') FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum = ANY (k.conkey)), '')
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
WHERE pg_table_is_visible(c.oid) AND k.contype = 'c' AND c.relname = ?
ORDER BY k.conname
