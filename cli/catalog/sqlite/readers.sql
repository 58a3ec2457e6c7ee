-- What reads a column of a table: kind, name, definition, and whether the catalog knows it: `1` where it does, `0` where only the
-- definition can tell, `own` where it is the table's own, whose definition need not name the table. Binds: the table, the column.
-- The expression of a generated column stands in CREATE TABLE alone, which has the columns in their order before the constraints, between
-- the commas in one parenthesis that are in neither quotes nor comments: `cut` finds the length of a token, then takes the token.
WITH RECURSIVE subject(tab, field) AS (
    SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_xinfo(m.name) AS c
    WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' AND lower(m.name) = lower(?) AND lower(c.name) = lower(?)
), generated(place, name) AS (
    SELECT c.cid, c.name FROM subject JOIN pragma_table_xinfo(subject.tab) AS c WHERE c.hidden IN (2, 3) AND c.name <> subject.field
), cut(at, token, rest, length) AS (
    SELECT 0, '', m.sql, 0
    FROM subject JOIN sqlite_master AS m ON m.type = 'table' AND m.name = subject.tab
    WHERE EXISTS (SELECT 1 FROM generated)
    UNION ALL
    SELECT at + 1, substr(rest, 1, length), substr(rest, 1 + length),
        CASE WHEN length > 0 THEN 0
            WHEN substr(rest, 1, 1) IN ('''', '"', '`') THEN 1 + instr(substr(rest, 2), substr(rest, 1, 1))
            WHEN rest LIKE '[%' THEN instr(rest, ']')
            WHEN rest LIKE '--%' THEN instr(rest || char(10), char(10))
            WHEN rest LIKE '/*%' THEN 3 + instr(substr(rest, 3) || '*/', '*/')
            ELSE max(1, length(substr(rest, 1, 50)) - length(ltrim(lower(substr(rest, 1, 50)), 'abcdefghijklmnopqrstuvwxyz0123456789_ ')))
        END
    FROM cut WHERE rest <> ''
), nested(at, token, depth) AS (
    SELECT at, CASE WHEN token LIKE '--%' OR token LIKE '/*%' THEN ' ' ELSE token END,
        sum(CASE token WHEN '(' THEN 1 WHEN ')' THEN -1 ELSE 0 END) OVER (ORDER BY at)
    FROM cut WHERE token <> ''
), placed(at, token, place) AS (
    SELECT at, token, sum(token = ',' AND depth = 1) OVER (ORDER BY at)
    FROM nested WHERE depth > 1 OR (depth = 1 AND token <> '(')
), declared(place, definition) AS (
    SELECT place, trim(group_concat(token, ''), ', ' || char(9, 10, 13)) FROM (SELECT * FROM placed ORDER BY at) GROUP BY place
)
SELECT 'view' AS kind, m.name, m.sql AS definition, '0' AS certain
FROM subject JOIN sqlite_master AS m ON m.type = 'view'
UNION ALL
-- One of FTS5 may have the table as its content.
SELECT 'virtual table', m.name, m.sql, '0'
FROM subject JOIN sqlite_master AS m ON m.type = 'table' AND m.sql LIKE 'CREATE VIRTUAL%'
UNION ALL
SELECT 'trigger', m.name, m.sql, CASE lower(m.tbl_name) WHEN lower(subject.tab) THEN 'own' ELSE '0' END
FROM subject JOIN sqlite_master AS m ON m.type = 'trigger'
UNION ALL
SELECT 'generated column', generated.name, declared.definition, 'own'
FROM generated LEFT JOIN declared ON declared.place = generated.place
UNION ALL
SELECT 'index', l.name, m.sql, CASE WHEN max(x.name IS subject.field) THEN '1' ELSE 'own' END
FROM subject JOIN pragma_index_list(subject.tab) AS l JOIN pragma_index_xinfo(l.name) AS x ON x.key = 1
    LEFT JOIN sqlite_master AS m ON m.type = 'index' AND m.name = l.name
WHERE l.origin <> 'pk'
GROUP BY l.name
HAVING max(x.name IS subject.field OR x.cid = -2 OR l.partial)
ORDER BY 1, 2
