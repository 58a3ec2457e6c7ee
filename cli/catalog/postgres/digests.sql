-- Each kind of updates of this database, how many there were since the statistics began, and their milliseconds.
SELECT query, CAST(SUM(calls) AS TEXT), CAST(SUM(total_exec_time) AS TEXT)
FROM {schema}.pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND (query ~* ? OR query = ?)
GROUP BY query
ORDER BY 1
