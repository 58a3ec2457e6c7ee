-- The triggers of a table that an update fires, and its columns that any update sets to the time.
SELECT happens, NULL
FROM (
    SELECT CAST(TRIGGER_NAME AS CHAR) AS happens, 0 AS place
    FROM information_schema.TRIGGERS
    WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_MANIPULATION = 'UPDATE' AND EVENT_OBJECT_TABLE = ?
    UNION ALL
    SELECT CONCAT(COLUMN_NAME, ' ON UPDATE CURRENT_TIMESTAMP'), ORDINAL_POSITION
    FROM information_schema.COLUMNS
    WHERE TABLE_SCHEMA = DATABASE() AND EXTRA LIKE '%on update%' AND TABLE_NAME = ?
) AS happening
ORDER BY place, happens
