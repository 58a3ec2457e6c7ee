-- The columns of a table with which an index begins that can sort all rows by them. The column of an index on an expression has no name.
SELECT CAST(COLUMN_NAME AS CHAR)
FROM information_schema.STATISTICS
WHERE SEQ_IN_INDEX = 1 AND INDEX_TYPE = 'BTREE' AND TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?
