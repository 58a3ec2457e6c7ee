-- The columns of a table that any update sets to the time.
SELECT CONCAT(COLUMN_NAME, ' ON UPDATE CURRENT_TIMESTAMP')
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE() AND EXTRA LIKE '%on update%' AND TABLE_NAME = ?
ORDER BY ORDINAL_POSITION
