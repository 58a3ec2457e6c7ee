SAVEPOINT diesel_sharded;
DROP TABLE `diesel_sharded_batches`;
RELEASE diesel_sharded;
