-- The columns of a table with which an index begins that can sort all rows by them. The column of an index on an expression has no name.
SELECT a.attname::text
FROM pg_index i
    JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_class x ON x.oid = i.indexrelid
    JOIN pg_am m ON m.oid = x.relam
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
WHERE i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree' AND pg_table_is_visible(c.oid) AND c.relname = ?
