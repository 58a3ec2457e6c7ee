-- How many rows of each table were updated since the statistics began.
SELECT CAST(OBJECT_NAME AS CHAR), CAST(COUNT_UPDATE AS CHAR)
FROM performance_schema.table_io_waits_summary_by_table
WHERE OBJECT_SCHEMA = DATABASE() AND COUNT_UPDATE > 0
