-- How many seconds the session is old, how many statements are prepared in it, and the port at which the server listens.
SELECT CAST(CAST(EXTRACT(EPOCH FROM clock_timestamp() - backend_start) AS BIGINT) AS TEXT),
    CAST((SELECT COUNT(*) FROM pg_prepared_statements) AS TEXT), CAST(inet_server_port() AS TEXT)
FROM pg_stat_activity WHERE pid = pg_backend_pid()
