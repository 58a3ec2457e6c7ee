SAVEPOINT diesel_sharded;
DROP TABLE `diesel_sharded_idempotency_keys`;
RELEASE diesel_sharded;
