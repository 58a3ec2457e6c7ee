-- How many seconds the session is old, and how many statements are prepared in it.
SELECT CAST(CAST(EXTRACT(EPOCH FROM clock_timestamp() - backend_start) AS BIGINT) AS TEXT),
    CAST((SELECT COUNT(*) FROM pg_prepared_statements) AS TEXT)
FROM pg_stat_activity WHERE pid = pg_backend_pid()
