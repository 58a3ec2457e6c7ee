-- The statistics that the database keeps about the number of a table's rows, if it keeps any.
SELECT CAST(TABLE_ROWS AS CHAR) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?
