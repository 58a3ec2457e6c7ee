-- What reads a column of a table: kind, name, definition, and whether the catalog knows it: `1` where it does, `0` where only the
-- definition can tell, `own` where it is the table's own, whose definition need not name the table.
-- Binds: the table and the column, by turns.
-- The definition is NULL where this user may not see it. MySQL has expressions in indexes, MariaDB has none.
SELECT 'view', CAST(IF(TABLE_SCHEMA = DATABASE(), TABLE_NAME, CONCAT(TABLE_SCHEMA, '.', TABLE_NAME)) AS CHAR),
    CAST(NULLIF(VIEW_DEFINITION, '') AS CHAR), '0'
FROM information_schema.VIEWS
WHERE TABLE_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
UNION ALL
SELECT IF(ROUTINE_TYPE = 'FUNCTION', 'function', 'procedure'),
    CAST(IF(ROUTINE_SCHEMA = DATABASE(), ROUTINE_NAME, CONCAT(ROUTINE_SCHEMA, '.', ROUTINE_NAME)) AS CHAR),
    CAST(ROUTINE_DEFINITION AS CHAR), '0'
FROM information_schema.ROUTINES
WHERE ROUTINE_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
UNION ALL
SELECT 'event', CAST(IF(EVENT_SCHEMA = DATABASE(), EVENT_NAME, CONCAT(EVENT_SCHEMA, '.', EVENT_NAME)) AS CHAR),
    CAST(EVENT_DEFINITION AS CHAR), '0'
FROM information_schema.EVENTS
WHERE EVENT_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
UNION ALL
SELECT 'trigger', CAST(IF(TRIGGER_SCHEMA = DATABASE(), TRIGGER_NAME, CONCAT(TRIGGER_SCHEMA, '.', TRIGGER_NAME)) AS CHAR),
    CAST(ACTION_STATEMENT AS CHAR), IF(EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = ?, 'own', '0')
FROM information_schema.TRIGGERS
WHERE TRIGGER_SCHEMA NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')
UNION ALL
SELECT 'generated column', CAST(COLUMN_NAME AS CHAR), CAST(GENERATION_EXPRESSION AS CHAR), 'own'
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE() AND GENERATION_EXPRESSION <> '' AND COLUMN_NAME <> ? AND TABLE_NAME = ?
UNION ALL
SELECT 'index', CAST(INDEX_NAME AS CHAR), /*M!100300 NULL, */ /*!80016 GROUP_CONCAT(CAST(EXPRESSION AS CHAR) SEPARATOR ', '), */
    IF(COUNT(COLUMN_NAME) > 0, '1', 'own')
FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = DATABASE() AND INDEX_NAME <> 'PRIMARY' AND (COLUMN_NAME = ? /*!80016 OR EXPRESSION IS NOT NULL */)
    AND TABLE_NAME = ?
GROUP BY INDEX_NAME
ORDER BY 1, 2
