-- Table, what it is (`table`, `engine` of a table that has another one than InnoDB, or what it is else), column, type, whether it is NOT NULL, whether it is generated, its place in the primary key, its collation, its default.
-- Not the columns of views and virtual tables, which may be broken.
SELECT m.name, m.type, c.name, c.type, CAST(c."notnull" AS TEXT),
    CASE WHEN c.hidden IN (2, 3) THEN '1' ELSE '0' END, CASE WHEN c.pk > 0 THEN CAST(c.pk AS TEXT) END,
    (SELECT 'COLLATE "' || replace(x.coll, '"', '""') || '"' FROM pragma_index_list(m.name) AS l JOIN pragma_index_xinfo(l.name) AS x
     WHERE l.origin = 'pk' AND x.key = 1 AND x.name = c.name AND x.coll <> 'BINARY'),
    c.dflt_value
FROM sqlite_master AS m JOIN pragma_table_xinfo(m.name) AS c
WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
UNION ALL
SELECT name, CASE type WHEN 'view' THEN 'a view' ELSE 'a virtual table' END, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM sqlite_master WHERE type = 'view' OR (type = 'table' AND sql LIKE 'CREATE VIRTUAL%')
