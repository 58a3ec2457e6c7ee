-- The updates that run in other sessions of this database, and whether they wait for a lock; and a text in place of those that are hidden.
SELECT query, CASE WHEN wait_event_type = 'Lock' THEN '1' ELSE '0' END
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND (state = 'active' AND query ~* ? OR query = ?)
