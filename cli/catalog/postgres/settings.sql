-- The settings of this session on which counts depend.
SELECT name, setting FROM pg_settings
WHERE name IN ('default_transaction_isolation', 'default_transaction_read_only', 'session_replication_role',
    'lock_timeout', 'statement_timeout')
UNION ALL
SELECT 'in_recovery', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END
