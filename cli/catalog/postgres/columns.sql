-- Table, what it is (`table`, `engine` of a table that has another one than InnoDB, or what it is else), column, type, whether it is NOT NULL, whether it is generated, its place in the primary key, its collation, its default.
SELECT c.relname::text,
    CASE WHEN c.relkind IN ('r', 'p') THEN 'table' WHEN c.relkind = 'f' THEN 'a foreign table'
        WHEN c.relkind = 'm' THEN 'a materialized view' ELSE 'a view' END,
    a.attname::text, format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN '1' ELSE '0' END, CASE WHEN a.attgenerated = '' THEN '0' ELSE '1' END,
    array_position((i.indkey::int2[])[0:i.indnkeyatts - 1], a.attnum)::text,
    CASE WHEN a.attcollation <> t.typcollation
        THEN 'COLLATE ' || quote_ident(cn.nspname) || '.' || quote_ident(co.collname) END,
    (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = c.oid AND d.adnum = a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
    LEFT JOIN pg_collation co ON co.oid = a.attcollation
    LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid)
    AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
    AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum
