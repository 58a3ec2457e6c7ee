-- Each kind of updates of this database, how many there were since the statistics began, and their milliseconds.
SELECT CAST(DIGEST_TEXT AS CHAR), CAST(COUNT_STAR AS CHAR), CAST(SUM_TIMER_WAIT / 1000000000 AS CHAR)
FROM performance_schema.events_statements_summary_by_digest
WHERE SCHEMA_NAME = DATABASE() AND DIGEST_TEXT LIKE 'UPDATE%'
