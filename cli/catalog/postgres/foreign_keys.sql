-- Table, the foreign key's id, column, parent, the parent's column, the foreign key's name, its actions.
SELECT c.relname::text, k.oid::text, a.attname::text, p.relname::text, pa.attname::text, k.conname::text,
    CASE k.confdeltype WHEN 'c' THEN 'CASCADE' END, CASE k.confupdtype WHEN 'c' THEN 'CASCADE' END
FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class p ON p.oid = k.confrelid
    CROSS JOIN LATERAL unnest(k.conkey, k.confkey) WITH ORDINALITY AS u(own, theirs, place)
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.own
    JOIN pg_attribute pa ON pa.attrelid = p.oid AND pa.attnum = u.theirs
WHERE k.contype = 'f' AND pg_table_is_visible(c.oid) AND pg_table_is_visible(p.oid)
ORDER BY c.relname, k.oid, u.place
