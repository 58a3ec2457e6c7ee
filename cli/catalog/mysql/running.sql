-- The updates that run in other sessions of this database, and whether they wait for a lock.
SELECT CAST(p.INFO AS CHAR), CASE WHEN t.trx_state = 'LOCK WAIT' THEN '1' ELSE '0' END
FROM information_schema.PROCESSLIST p LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID
WHERE p.DB = DATABASE() AND p.COMMAND IN ('Query', 'Execute') AND p.ID <> CONNECTION_ID() AND p.INFO LIKE '%UPDATE%'
